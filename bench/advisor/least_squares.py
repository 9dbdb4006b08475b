"""Least squares with priors: each constant has a value it is drawn to, and how far it may stray from it.

That is how a benchmark with three results shares what all benchmarks have in common, and still has its own constants
where its results insist. Rows far off weigh less (Huber).
"""

from collections.abc import Callable, Mapping
from math import exp, log
from typing import Any, NamedTuple

import numpy as np

_NOISE = 0.15
"""Logarithmic error of a result that says nothing: what a prior of one standard deviation is weighed against."""
_LONGEST_STEP = 2.0
"""Of a constant at a time: far from the rows the slope tells little of where they are."""


class Prior(NamedTuple):
    """A constant's start and standard deviation."""

    start: float
    deviation: float


def minimise(
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
    damping, nudge = 1e-3, 1e-4
    found = rows(point)
    for _ in range(steps):
        jacobian = np.stack([(rows(point + nudge * unit) - found) / nudge for unit in np.eye(len(names))], axis=1)
        weight = 1 / np.maximum(np.abs(found) / bend, 1)
        gradient = jacobian.T @ (weight * found) + (point - origin) / deviation**2
        curvature = (jacobian.T * weight) @ jacobian + np.diag(1 / deviation**2)
        before = loss(found, point)
        while damping < 1e6:
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient)
            tried = point + np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
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


def minimise_positive(
    residuals: Callable[[Mapping[str, float]], Any],
    priors: Mapping[str, Prior],
    *,
    steps: int = 30,
    knee: float = 0.15,
    begin: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The same of constants that are positive: the search, and each prior's deviation, are of their logarithms."""

    def of_logs(logs: Mapping[str, float]) -> Any:
        return residuals({name: exp(value) for name, value in logs.items()})

    drawn = {name: Prior(log(prior.start), prior.deviation) for name, prior in priors.items()}
    nearer = {name: log(value) for name, value in begin.items()} if begin else None
    found = minimise(of_logs, drawn, steps=steps, knee=knee, begin=nearer)
    return {name: exp(value) for name, value in found.items()}
