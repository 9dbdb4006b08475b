"""How likely spot is to be lost, or to come back, given how long it has been there or away.

A pool's spot capacity is a sequence of spells, up and down. Most spells are short and a few last for days, so the
hazard falls with age, and a policy that knows the age knows much. Hazards are piecewise constant over ages on a log
scale. A pool with little history borrows from all pools: its rates are shrunk to the pooled ones in two steps, first
one factor for the whole pool, then each age (gamma-Poisson empirical Bayes; Efron and Morris, 1973, is the idea). The
weights are fitted too: `bench.spot fit` takes those by which the past of pools foretells their later days best.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cumulo.catalog.spot_priors import spot_priors

Floats = NDArray[np.float64]

AGES_S: Final = (0.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0, 9600.0, 19200.0, 38400.0, 76800.0)
"""Where the ages' buckets begin, in seconds; the last has no end."""


class Spell(NamedTuple):
    """A time in which spot was there (`available`) or not, as far as it was watched.

    It was watched from age `from_s` to age `to_s`, when it was last seen to last. If it `ended`, it did so within
    `gap_s` after that (0: just then). `weight` counts old spells for less.
    """

    available: bool
    from_s: float
    to_s: float
    ended: bool
    gap_s: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Hazards by age, per second, for one direction: `per_s[i]` from age `ages_s[i]` on."""

    ages_s: tuple[float, ...]
    per_s: tuple[float, ...]

    def at(self, age_s: float) -> float:
        return self.per_s[bisect_right(self.ages_s, max(age_s, 0.0)) - 1]

    def between(self, from_s: ArrayLike, to_s: ArrayLike) -> Floats:
        """The hazard summed over ages from `from_s` to `to_s`: a spell survives that with probability exp(-sum)."""
        return self._summed(to_s) - self._summed(from_s)

    def mean_left(self, age_s: float) -> float:
        """Seconds that a spell of this age is expected to last yet."""
        left, alive = 0.0, 1.0
        edges = [age_s, *(edge for edge in self.ages_s if edge > age_s), math.inf]
        for low, high in itertools.pairwise(edges):
            rate = max(self.at(low), 1e-12)
            lasting = math.exp(-rate * (high - low)) if high < math.inf else 0.0
            left += alive * (1 - lasting) / rate
            alive *= lasting
        return left

    def _summed(self, age_s: ArrayLike) -> Floats:
        ages, rates = np.array(self.ages_s), np.array(self.per_s)
        sums = np.concatenate(([0.0], np.cumsum(np.diff(ages) * rates[:-1])))
        age = np.maximum(np.asarray(age_s, dtype=np.float64), 0.0)
        bucket = np.searchsorted(ages, age, side="right") - 1
        total: Floats = sums[bucket] + (age - ages[bucket]) * rates[bucket]
        return total


@dataclass(frozen=True, slots=True)
class Hazards:
    """What is known of one pool: `lost` while spot is up, `back` while it is down."""

    lost: Rates
    back: Rates

    def up(self, age_s: float) -> float:
        """Hazard per second of losing spot that has been up for `age_s`."""
        return self.lost.at(age_s)

    def down(self, age_s: float) -> float:
        """Hazard per second of getting spot back that has been away for `age_s`."""
        return self.back.at(age_s)

    def steps(self) -> tuple[tuple[float, float], ...]:
        """(age from which it holds, hazard of losing spot per second): what a run needs to time its checkpoints."""
        return tuple(zip(self.lost.ages_s, self.lost.per_s, strict=True))


@dataclass(frozen=True, slots=True)
class Counts:
    """What was watched of one pool in one direction, by bucket of age: ends, and seconds at risk."""

    events: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True)
class Prior:
    """What pools have in common in one direction, and how much it counts against a pool's own history, in events."""

    rates: Rates
    pool_events: float
    age_events: float

    def posterior(self, counts: Counts) -> Rates:
        """The pool's rates: the pooled ones times the pool's factor, then bent to the pool's own at each age."""
        pooled = np.array(self.rates.per_s)
        expected = float(counts.seconds @ pooled)
        factor = (float(counts.events.sum()) + self.pool_events) / (expected + self.pool_events)
        centre = np.maximum(factor * pooled, 1e-12)
        rates = (counts.events + self.age_events) / (counts.seconds + self.age_events / centre)
        return Rates(self.rates.ages_s, tuple(float(rate) for rate in rates))


@dataclass(frozen=True, slots=True)
class Priors:
    """The priors of both directions."""

    lost: Prior
    back: Prior


def learn(history: Iterable[Spell], prior: Priors) -> Hazards:
    """A pool's hazards from its own spells and from what pools have in common."""
    spells = list(history)
    return Hazards(
        prior.lost.posterior(count((spell for spell in spells if spell.available), prior.lost.rates.ages_s)),
        prior.back.posterior(count((spell for spell in spells if not spell.available), prior.back.rates.ages_s)),
    )


def count(spells: Iterable[Spell], ages_s: Sequence[float] = AGES_S) -> Counts:
    """Ends and time at risk in each bucket of age. An end seen only at the next look is spread over the gap, half of
    which was at risk: the rate is then that of the interval, -log(1 - p) / gap, to second order."""
    rows = np.array([(s.from_s, s.to_s, s.ended, s.gap_s, s.weight) for s in spells], dtype=np.float64)
    if not len(rows):
        return Counts(np.zeros(len(ages_s)), np.zeros(len(ages_s)))
    first, last, ended, gap, weight = rows.T[:, :, None]
    low, high = np.array(ages_s), np.array([*ages_s[1:], np.inf])
    inside = _overlap(first, last, low, high)
    spread = _overlap(last, last + gap, low, high)
    share = np.where(gap > 0, spread / np.where(gap > 0, gap, 1.0), (low <= last) & (last < high))
    events = (weight * ended * share).sum(axis=0)
    seconds = (weight * (inside + 0.5 * ended * spread)).sum(axis=0)
    return Counts(events, seconds)


def spells(available: ArrayLike, gap_s: float) -> tuple[Spell, ...]:
    """The spells of a record that tells every `gap_s` seconds whether spot was there.

    The age of the first is unknown and taken to be that of its first sighting; the last has not ended.
    """
    record = np.asarray(available, dtype=bool)
    if not len(record):
        return ()
    starts = np.concatenate(([0], np.flatnonzero(np.diff(record)) + 1, [len(record)]))
    return tuple(
        Spell(bool(record[first]), 0.0, float(end - first - 1) * gap_s, bool(end < len(record)), gap_s)
        for first, end in itertools.pairwise(starts)
    )


def _overlap(first: Floats, last: Floats, low: Floats, high: Floats) -> Floats:
    shared: Floats = np.maximum(np.minimum(last, high) - np.maximum(first, low), 0.0)
    return shared


def shipped_priors() -> Priors:
    """The priors of the catalogue, for pools of which nothing else is known."""
    held = spot_priors()
    return Priors(
        *(Prior(Rates(held.ages_s, own.per_s), own.pool_events, own.age_events) for own in (held.lost, held.back))
    )
