"""Fitting: the one file that the constants are written to, and how wide a range has to be."""

import json
from collections.abc import Mapping, Sequence
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
