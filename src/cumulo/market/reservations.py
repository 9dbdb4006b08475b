"""How many GPUs of a kind can be reserved for a while, and from when on as many as are asked.

What is taken is a list of spans: other reservations, and runs that nothing stops before they end.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """So many GPUs are taken from `since` until `until` (epoch seconds, either may be infinite)."""

    since: float
    until: float
    gpus: int


def free(total: int, taken: Iterable[Span], *, since: float, until: float) -> int:
    """How many of `total` nobody has at any time in between; below 0 where more is taken than there is."""
    there = [span for span in taken if span.since < until and since < span.until]
    moments = {since, *(span.since for span in there if span.since > since)}
    most = max(sum(span.gpus for span in there if span.since <= at < span.until) for at in moments)
    return total - most


def earliest(total: int, taken: Sequence[Span], *, count: int, term_s: float, since: float) -> float | None:
    """When so many can be had for so long, not before `since`; None if nobody can tell."""
    moments = sorted({since, *(span.until for span in taken if since < span.until < float("inf"))})
    return next((at for at in moments if free(total, taken, since=at, until=at + term_s) >= count), None)
