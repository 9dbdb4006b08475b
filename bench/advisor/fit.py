"""Fitting: least squares on the logarithm of the error, and the one file that the constants are written to."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from bench.advisor.score import quantile
from cumulo.catalog.coefficients import ADVISOR, VERSION, coefficients

SECTIONS = ("training", "memory", "serving", "laws")


class BadData(Exception):
    """The data cannot be read or fitted; the message is for people."""


def fit(section: str, module: ModuleType, folder: Path, path: Path = ADVISOR) -> None:
    """Fits one section by its module and writes it, leaving the others as they are."""
    values = rounded(module.fit(folder))
    # Read only now: another section may have been written while this one was fitted.
    held: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    held["version"] = VERSION
    held[section] = values
    held["sources"] = {**held.get("sources", {}), section: module.SOURCES}
    path.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n")
    coefficients.cache_clear()


def rounded(value: Any, digits: int = 5) -> Any:
    """Five figures: more are noise, and would change with every fit."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(each, digits) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each, digits) for each in value]
    return value


def minimise(
    residuals: Callable[[Mapping[str, float]], Sequence[float]],
    start: Mapping[str, float],
    *,
    begin: Mapping[str, float] | None = None,
    prior: float = 2.0,
    knee: float = 0.15,
    steps: int = 25,
) -> dict[str, float]:
    """The positive constants that make `residuals` (logarithms of predicted/measured) small.

    Gauss-Newton on the logarithms of the constants with the steps damped (Levenberg-Marquardt), rows weighted down once
    their residual passes `knee` (Huber). `prior` is the standard deviation, in logarithms, of how far a constant may
    lie from its start: it keeps what the rows say nothing about where it was. The search sets out from `begin`, where
    it is known already about where it ends.
    """
    names = sorted(start)
    origin = np.log([start[name] for name in names])

    def at(point: Any) -> dict[str, float]:
        return {name: float(value) for name, value in zip(names, np.exp(point), strict=True)}

    def rows(point: Any) -> Any:
        return np.asarray(residuals(at(point)), dtype=float)

    def loss(found: Any, point: Any) -> float:
        size = np.abs(found)
        huber = np.where(size <= knee, size**2, knee * (2 * size - knee))
        return float(huber.sum() / knee**2 + (((point - origin) / prior) ** 2).sum())

    point, damping = np.log([(begin or start)[name] for name in names]), 1e-2
    found = rows(point)
    for _ in range(steps):
        jacobian = np.stack([(rows(point + 1e-3 * unit) - found) / 1e-3 for unit in np.eye(len(names))], axis=1)
        weight = 1 / (knee**2 * np.maximum(np.abs(found) / knee, 1))
        gradient = jacobian.T @ (weight * found) + (point - origin) / prior**2
        curvature = (jacobian.T * weight) @ jacobian + np.eye(len(names)) / prior**2
        before = loss(found, point)
        while damping < 1e6:
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient)
            tried = point + np.clip(step, -1, 1)
            there = rows(tried)
            if loss(there, tried) < before:
                break
            damping *= 4
        else:
            break
        point, found, damping = tried, there, max(damping / 4, 1e-6)
        if before - loss(found, point) < 1e-6 * before:
            break
    return at(point)


def spread(
    residuals: Sequence[float], *, inside: float = 0.8, least: float = 1.02, most: float = np.inf
) -> tuple[float, float]:
    """Factors (low, high) around an estimate between which `inside` of the true values lay.

    `residuals` are logarithms of predicted/measured, best of rows that the constants were not fitted to. The interval
    is symmetric in logarithms: the tails of so few rows tell little about each side. `least` bounds the upper factor
    from below, `most` the ratio of both from above.
    """
    width = quantile([abs(each) for each in residuals], inside)
    width = min(max(width, float(np.log(least))), float(np.log(most)) / 2)
    return float(np.exp(-width)), float(np.exp(width))
