"""Differences of two policies on the same streams: their mean and how sure it is."""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple


class Difference(NamedTuple):
    """A mean and the half width of its 95 % interval, infinite where there is one stream only."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + (f" ± {self.half:.2f}" if math.isfinite(self.half) else "")


def difference(ones: Sequence[float], others: Sequence[float]) -> Difference:
    """One less the other, stream by stream, with Student's interval."""
    found = [one - other for one, other in zip(ones, others, strict=True)]
    if len(found) < 2:
        return Difference(fmean(found), math.inf)
    return Difference(fmean(found), student(len(found) - 1) * stdev(found) / math.sqrt(len(found)))


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t (Abramowitz and Stegun, 26.7.5: within 1 % from 3 degrees of freedom on)."""
    z = NormalDist().inv_cdf(0.975)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + (z**3 + z) / 4 / freedom + (5 * z**5 + 16 * z**3 + 3 * z) / 96 / freedom**2 + third / freedom**3


def numbers(text: str) -> list[int]:
    """`42-51` or `1,2,3`. Raises ValueError."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
