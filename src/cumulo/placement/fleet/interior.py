"""A linear program solved by an interior-point method, stopped short of the corner on purpose.

Prices from a corner of the optimal face jump when demand changes by one ask, and of a degenerate program (a fleet whose
demand just meets its capacity) they are arbitrary. The central path gives the same prices smoothly: every product of a
variable and its slack is `mu`.

Mehrotra's predictor-corrector (SIAM J. Optim. 2(4), 1992), dense: a few hundred rows and columns.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS: Final = 60
_TO_THE_WALL: Final = 0.99
_FEASIBLE: Final = 1e-7


class NoSolution(ArithmeticError):
    """The steps led nowhere: the program has no interior, or its numbers are out of all proportion."""


class _Point(NamedTuple):
    """A primal and dual point: `levels` with `reduced` costs, `slack` with `prices`, all above 0."""

    levels: Floats
    slack: Floats
    prices: Floats
    reduced: Floats

    @property
    def gap(self) -> float:
        products = self.levels @ self.reduced + self.slack @ self.prices
        return float(products) / (len(self.levels) + len(self.slack))

    def step(self, by: "_Point", share: float) -> "_Point":
        """As far along `by` as all stays above 0, primal and dual each by itself."""
        primal = min(_room(self.levels, by.levels), _room(self.slack, by.slack))
        dual = min(_room(self.prices, by.prices), _room(self.reduced, by.reduced))
        primal, dual = min(1.0, share * primal), min(1.0, share * dual)
        return _Point(
            self.levels + primal * by.levels,
            self.slack + primal * by.slack,
            self.prices + dual * by.prices,
            self.reduced + dual * by.reduced,
        )


def central_prices(use: Floats, limits: Floats, gain: Floats, mu: float) -> Floats:
    """The prices of the rows of: maximise `gain @ x` with `use @ x <= limits`, `x >= 0`, on the central path at `mu`.

    `use` is (rows, columns), `limits` (rows) all above 0. Raises NoSolution.
    """
    rows, columns = use.shape
    levels = np.full(columns, limits.max() * 1e-4)
    start = _Point(levels, np.maximum(limits - use @ levels, limits * 0.1), np.ones(rows), np.ones(columns))
    point = start._replace(reduced=np.maximum(use.T @ start.prices - gain, 0.1))
    with np.errstate(all="raise", under="ignore"):
        for _ in range(_STEPS):
            over = limits - use @ point.levels - point.slack
            under = gain - use.T @ point.prices + point.reduced
            feasible = np.abs(over).max() <= _FEASIBLE * limits.max() and np.abs(under).max() <= _FEASIBLE
            if feasible and point.gap <= 1.5 * mu:
                return point.prices
            try:
                point = _advance(use, point, over, under, mu)
            except (np.linalg.LinAlgError, FloatingPointError) as error:
                raise NoSolution(f"no step from a gap of {point.gap:.3g}: {error}") from error
    raise NoSolution(f"not there after {_STEPS} steps: a gap of {point.gap:.3g}")


def _advance(use: Floats, point: _Point, over: Floats, under: Floats, mu: float) -> _Point:
    weight = point.levels / point.reduced
    normal = (use * weight) @ use.T
    normal[np.diag_indices(len(over))] += point.slack / point.prices

    def towards(products: Floats, slack_products: Floats) -> _Point:
        right = use @ (products / point.reduced + weight * under) + slack_products / point.prices - over
        prices = np.linalg.solve(normal, right).astype(np.float64, copy=False)
        reduced = use.T @ prices - under
        levels = (products - point.levels * reduced) / point.reduced
        slack = (slack_products - point.slack * prices) / point.prices
        return _Point(levels, slack, prices, reduced)

    straight = towards(-point.levels * point.reduced, -point.slack * point.prices)
    gap = point.gap
    target = max((point.step(straight, 1.0).gap / gap) ** 3 * gap, mu)
    return point.step(
        towards(
            target - point.levels * point.reduced - straight.levels * straight.reduced,
            target - point.slack * point.prices - straight.slack * straight.prices,
        ),
        _TO_THE_WALL,
    )


def _room(value: Floats, by: Floats) -> float:
    """How many times `by` may be added before a part of `value` is 0."""
    fastest = float((by / value).min())
    return -1.0 / fastest if fastest < 0 else np.inf
