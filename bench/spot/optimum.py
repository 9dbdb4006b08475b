"""The least that a job could have cost, had it known when spot would come and go: by exact dynamic programme.

The problem: gap x (ticks on) - changeover x (starts) must reach the work. Slack is what idle ticks and starts use up.
The programme goes over spells rather than ticks, for in an optimum at most one stretch of on-demand is cut short:

* If spot alone can do the work, the longest spells do it with the fewest starts.
* Else every spell of spot is used whole, stood by, or run through on on-demand, and on-demand runs through whole spells
  of no spot; slack that is left over at the end then takes as many ticks off on-demand.
"""

import math

import numpy as np
from numpy.typing import NDArray

from bench.spot.ticks import Bools, Floats
from bench.spot.traces import HOUR

_ROUNDING = 1e-9


def optimum(
    available: Bools, *, gap_s: float, work_s: float, deadline_s: float, changeover_s: float, on_demand: float
) -> float:
    """Cost of one job that starts with `available[0]`, relative to on-demand alone; inf if it can't be done."""
    ticks = math.floor(deadline_s / gap_s + _ROUNDING)
    seen = available[:ticks]
    whole = work_s / HOUR * on_demand
    edges = np.concatenate(([0], np.flatnonzero(np.diff(seen)) + 1, [ticks]))
    lengths = np.diff(edges)
    spot_only = _spot_alone(lengths[seen[edges[:-1]]], gap_s, work_s, changeover_s)
    if spot_only is not None:
        return spot_only * gap_s / HOUR / whole
    unit = float(math.gcd(round(gap_s), round(changeover_s))) or 1.0
    slack = ticks * gap_s - work_s
    idle, demand = _over_spells(
        lengths,
        seen[edges[:-1]],
        round(gap_s / unit),
        round(changeover_s / unit),
        int(slack / unit + _ROUNDING),
        on_demand,
    )
    saved = np.floor((slack - np.arange(len(idle)) * unit) / gap_s + _ROUNDING)
    least = float((np.minimum(idle, demand) - on_demand * saved).min()) if len(idle) else math.inf
    return least * gap_s / HOUR / whole


def _spot_alone(lengths: NDArray[np.int64], gap_s: float, work_s: float, changeover_s: float) -> int | None:
    """Ticks on spot with the fewest starts, None if all spells of spot together are too short."""
    gains = np.sort(lengths)[::-1] * gap_s - changeover_s
    enough = np.flatnonzero(np.cumsum(np.maximum(gains, 0.0)) >= work_s - 1e-6)
    return math.ceil((work_s + changeover_s * (enough[0] + 1)) / gap_s - _ROUNDING) if len(enough) else None


def _over_spells(
    lengths: NDArray[np.int64], there: Bools, gap: int, changeover: int, slack: int, on_demand: float
) -> tuple[Floats, Floats]:
    """Least cost in ticks by slack used, of plans that end idle (or lose spot then) and on on-demand."""
    idle, demand = np.full(max(slack + 1, 0), np.inf), np.full(max(slack + 1, 0), np.inf)
    idle[:1] = 0.0
    for length, spot in zip(lengths, there, strict=True):
        either = np.minimum(idle, demand)
        started = _later(either, changeover)
        demand = np.minimum(_later(idle, changeover), demand) + on_demand * length
        idle = _later(either, int(length) * gap)
        if spot:
            idle = np.minimum(idle, started + length)
    return idle, demand


def _later(values: Floats, units: int) -> Floats:
    """The same costs with that much more slack used."""
    moved = np.full_like(values, np.inf)
    if units < len(values):
        moved[units:] = values[: len(values) - units]
    return moved
