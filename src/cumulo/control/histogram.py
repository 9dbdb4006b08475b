"""Counts of durations in fixed buckets, as Prometheus wants them: they only ever grow."""

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)


class Histogram:
    """One thread appends, any may read: a reader sees at worst the sum of one value without its count."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def append(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    def cumulative(self) -> list[int]:
        """How many values were at most each bound, and last how many there were."""
        counts, running = [], 0
        for count in self._counts:
            running += count
            counts.append(running)
        return counts
