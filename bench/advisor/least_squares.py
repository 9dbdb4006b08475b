"""Least squares with priors: each constant has a value it is drawn to, and how far it may stray from it.

That is how a benchmark with three results shares what all benchmarks have in common, and still has its own constants
where its results insist. Rows far off weigh less (Huber).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

_NOISE = 0.15
"""Logarithmic error of a result that says nothing: what a prior of one standard deviation is weighed against."""


class Prior(NamedTuple):
    """A constant's start and standard deviation."""

    start: float
    deviation: float


def shrunk(
    residuals: Callable[[Mapping[str, float]], Any],
    priors: Mapping[str, Prior],
    *,
    steps: int = 30,
    knee: float = 0.1,
    begin: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The constants that make `residuals` (an array, logarithms of predicted/measured) and the straying small.

    Rows weigh less once off by `knee`: infinity where each of few results is to count. Gauss-Newton with damping
    (Levenberg-Marquardt) and numeric derivatives, from `begin` where that is nearer than the priors.
    """
    names = sorted(priors)
    origin = np.array([priors[name].start for name in names])
    bend = knee / _NOISE
    deviation = np.array([priors[name].deviation for name in names])

    def rows(point: Any) -> Any:
        return np.asarray(residuals(dict(zip(names, point.tolist(), strict=True))), dtype=float) / _NOISE

    def loss(found: Any, point: Any) -> float:
        size = np.abs(found)
        huber = np.where(size <= bend, size**2, bend * (2 * size - bend))
        return float(huber.sum() + (((point - origin) / deviation) ** 2).sum())

    point = np.array([(begin or {}).get(name, priors[name].start) for name in names])
    damping = 1e-3
    found = rows(point)
    for _ in range(steps):
        nudge = 1e-4
        jacobian = np.stack([(rows(point + nudge * unit) - found) / nudge for unit in np.eye(len(names))], axis=1)
        weight = 1 / np.maximum(np.abs(found) / bend, 1)
        gradient = jacobian.T @ (weight * found) + (point - origin) / deviation**2
        curvature = (jacobian.T * weight) @ jacobian + np.diag(1 / deviation**2)
        before = loss(found, point)
        while damping < 1e6:
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient)
            tried = point + step
            there = rows(tried)
            if loss(there, tried) < before:
                break
            damping *= 5
        else:
            break
        point, found, damping = tried, there, max(damping / 5, 1e-9)
        if before - loss(found, point) < 1e-5 * before:
            break
    return dict(zip(names, point.tolist(), strict=True))
