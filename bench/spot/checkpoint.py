"""`python -m bench.spot checkpoint --learn DIR --test DIR`: what saving wastes on recorded spot, by when one saves.

A job runs in every time that spot was up and is lost at its end. Waste is the time spent saving, and the work since
the last save, that must be done again, and a restart, over all time that was bought. The age-based interval knows the
hazards of the learn traces; a pool that is in both folders also those of its own. The best fixed interval is chosen
in hindsight, on the test traces themselves.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from bench.spot.fit import fit_priors
from bench.spot.traces import DAY, BadTrace, Trace, load
from cumulo.market.checkpoint import next_checkpoint
from cumulo.market.hazards import Rates, Spell, learn, spells

COSTS_S: Final = (10.0, 30.0, 120.0, 300.0)
FIXED_S: Final = tuple(60.0 * 1.15**step for step in range(48))  # a minute to 12 hours
BY_AGE: Final = "cumulo, by age"
POLICIES: Final = ("every 10 min", "every hour", "Young, by the mean", "best fixed in hindsight", BY_AGE)
_MOMENTS: Final = 4
HEAD = ("a save", "policy", "interval", "waste", "saving", "redone", "restarts", "to the best fixed")


class Waste(NamedTuple):
    """Seconds, and `bought` that they are part of."""

    saving: float = 0.0
    redone: float = 0.0
    restarts: float = 0.0
    bought: float = 0.0

    @property
    def share(self) -> float:
        return (self.saving + self.redone + self.restarts) / self.bought

    def plus(self, other: "Waste") -> "Waste":
        return Waste(*(mine + its for mine, its in zip(self, other, strict=True)))


Until = Callable[[float], float]
"""Seconds of work from a save that ended at this age until the next."""


class Life(NamedTuple):
    """One time of spot: how long it was up, whether it was lost then, and the hazard its pool is thought to have."""

    seconds: float
    lost: bool
    rates: Rates


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--learn", type=Path, required=True, metavar="DIR", help="traces to learn hazards from")
    parser.add_argument("--test", type=Path, required=True, metavar="DIR", help="traces to replay")
    parser.add_argument("--split-day", type=float, help="learn before this day and test after it, of the same traces")
    parser.add_argument("--restart", type=float, default=0.0, help="seconds that a restart takes (default 0)")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows: save_s, policy, interval_s, waste, saving, redone, restarts (shares), to_best_fixed."""
    lives = _lives(load(options.learn), load(options.test), options.split_day)
    return [row for cost in COSTS_S for row in _rows(cost, lives, options.restart)]


def _lives(learn_on: Sequence[Trace], test_on: Sequence[Trace], split_day: float | None) -> list[Life]:
    split_s = math.inf if split_day is None else split_day * DAY
    histories = {trace.name: trace.spells(until_s=split_s) for trace in learn_on}
    priors = fit_priors(list(histories.values()))
    lives: list[Life] = []
    for trace in test_on:
        rates = learn(histories.get(trace.name, ()), priors).lost
        first = 0 if split_day is None else int(split_s // trace.gap_s)
        for each in spells(trace.available[first:], trace.gap_s):
            lives += _ends(each, rates) if each.available else ()
    if not lives:
        raise BadTrace("the traces to test on have no time in which spot was up")
    return lives


def _ends(spell: Spell, rates: Rates) -> list[Life]:
    """An end is known to a tick: several moments in it are taken, lest an interval fits the ticks by chance."""
    into = [(moment + 0.5) / _MOMENTS if spell.ended else 0.0 for moment in range(_MOMENTS)]
    return [Life(spell.to_s + spell.gap_s * share, spell.ended, rates) for share in into]


def _rows(cost_s: float, lives: Sequence[Life], restart_s: float) -> list[dict[str, Any]]:
    every = {seconds: fixed(lives, seconds, cost_s=cost_s, restart_s=restart_s) for seconds in FIXED_S}
    best_s = min(every, key=lambda seconds: every[seconds].share)
    mean_s = math.sqrt(2 * cost_s * _mean_life(lives))
    intervals = (600.0, 3600.0, mean_s, best_s, None)
    found = [fixed(lives, seconds, cost_s=cost_s, restart_s=restart_s) for seconds in intervals if seconds is not None]
    found.append(by_age(lives, cost_s=cost_s, restart_s=restart_s))
    return [
        {
            "save_s": cost_s,
            "policy": name,
            "interval_s": interval_s,
            "waste": own.share,
            "saving": own.saving / own.bought,
            "redone": own.redone / own.bought,
            "restarts": own.restarts / own.bought,
            "to_best_fixed": own.share / every[best_s].share,
        }
        for name, interval_s, own in zip(POLICIES, intervals, found, strict=True)
    ]


def _mean_life(lives: Sequence[Life]) -> float:
    """Seconds between losses, by what was learnt rather than by the test: the mean over the tested pools."""
    return sum(life.rates.mean_left(0.0) for life in lives) / len(lives)


def by_age(lives: Sequence[Life], *, cost_s: float, restart_s: float) -> Waste:
    """Each life by the hazards of its pool."""
    until = {rates: lru_cache(maxsize=None)(partial(_until, rates, cost_s)) for rates in {life.rates for life in lives}}
    found = Waste()
    for life in lives:
        found = found.plus(waste(life, until[life.rates], cost_s=cost_s, restart_s=restart_s))
    return found


def _until(rates: Rates, cost_s: float, age_s: float) -> float:
    return next_checkpoint(cost_s=cost_s, age_s=age_s, lost=rates)


def fixed(lives: Sequence[Life], seconds: float, *, cost_s: float, restart_s: float) -> Waste:
    """Every life with saves after each `seconds` of work: `waste` for all at once."""
    length, lost = np.array([life.seconds for life in lives]), np.array([life.lost for life in lives])
    saves = np.floor(length / (seconds + cost_s))
    rest = length - saves * (seconds + cost_s)
    saving = saves * cost_s + np.where(lost, 0.0, np.maximum(0.0, rest - seconds))
    return Waste(float(saving.sum()), float(rest[lost].sum()), float(lost.sum()) * restart_s, float(length.sum()))


def waste(life: Life, until: Until, *, cost_s: float, restart_s: float = 0.0) -> Waste:
    """What is wasted in one life. A save that is not done when the instance is lost is worth nothing."""
    age, saves = 0.0, 0
    while age + (work := until(age)) + cost_s <= life.seconds:
        age += work + cost_s
        saves += 1
    rest = life.seconds - age
    if life.lost:
        return Waste(saves * cost_s, rest, restart_s, life.seconds)
    return Waste(saves * cost_s + max(0.0, rest - work), 0.0, 0.0, life.seconds)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """For people: shares in per cent of the time bought."""
    cells = [
        (
            f"{row['save_s']:.0f} s", row["policy"],
            "-" if row["interval_s"] is None else f"{row['interval_s'] / 60:.0f} min",
            *(f"{100 * row[name]:.1f} %" for name in ("waste", "saving", "redone", "restarts")),
            f"{row['to_best_fixed']:.2f}",
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(len(line[place]) for line in (HEAD, *cells)) for place in range(len(HEAD))]
    lines = (HEAD, tuple("-" * width for width in widths), *cells)
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
