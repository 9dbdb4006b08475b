"""How long a run will take, learnt from runs that ended: a distribution, given how long it has run already.

What a run declares (`max_duration`) is a limit and no estimate, so durations are learnt. Runs are told apart by their
`Traits`; what is known of a run's own family is mixed with what is known of its account, its project and the whole
cloud, so that a family of which two runs are known already counts for a little, and one of fifty for nearly all.

It is survival analysis in discrete time. Time is cut into bins a quarter of an octave wide. Of each group is kept how
many runs reached a bin and how many ended in it; the chance to end in a bin once it is reached (the hazard) is

    h = (ended + K * h_of_the_wider_group) / (reached + K)

which is the posterior mean under a beta-Stacy prior (Walker and Muliere, "Beta-Stacy processes and a generalization
of the Polya-urn scheme", Annals of Statistics 25(4), 1997) with the wider group as its centre, and, for K = 0, the
estimate of Kaplan and Meier. Runs that did not end by themselves, or have not ended yet, count for the bins they
reached: leaving them out would make everything look short. What is left of a run of age t follows from the hazards
past t alone.

A run that declared a limit is first compared with all runs by the part of their limit that they took, then with those
of the same limit: people round, so the limit says much, but not as a time.

Seconds throughout. Memory is bounded: `MOST_GROUPS` groups of two lists of `BINS` numbers; older runs fade.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import erf, floor, log, log1p, log2, sqrt
from typing import Final

from cumulo.placement.traits import Group, Traits

PER_OCTAVE: Final = 4
BINS: Final = 27 * PER_OCTAVE  # from 1 s to four years
LONGEST_S: Final = 2.0 ** (BINS / PER_OCTAVE)
MOST_GROUPS: Final = 2000
# How much a wider group weighs against its members, in runs.
STRENGTH: Final = 3.0
# What a run that ended counts for after another one of its group ended.
FADE: Final = 0.995
# What is believed before anything is known: a median of half an hour, and hours as likely as minutes.
_PRIOR_MEDIAN_S: Final = 1800.0
_PRIOR_SPREAD: Final = 2.5
_PRIOR_TAIL: Final = 0.08
_LEAST_LEFT: Final = 1e-12


@dataclass(slots=True)
class _Counts:
    """Of one group: how many runs ended in each bin, and how many reached it."""

    ended: list[float] = field(default_factory=lambda: [0.0] * BINS)
    reached: list[float] = field(default_factory=lambda: [0.0] * BINS)

    def add(self, place: int, *, ended: bool, fade: float = 1.0) -> None:
        if fade != 1.0:
            self.ended = [count * fade for count in self.ended]
            self.reached = [count * fade for count in self.reached]
        for reached in range(place + ended):
            self.reached[reached] += 1.0
        if ended:
            self.ended[place] += 1.0

    def hazards(self, wider: Sequence[float], more: "_Counts | None") -> list[float]:
        if more is None:
            counted = zip(self.ended, self.reached, wider, strict=True)
            return [(ended + STRENGTH * h) / (reached + STRENGTH) for ended, reached, h in counted]
        reached_now = [a + b for a, b in zip(self.reached, more.reached, strict=True)]
        counted = zip(self.ended, reached_now, wider, strict=True)
        return [(ended + STRENGTH * h) / (reached + STRENGTH) for ended, reached, h in counted]


@dataclass(frozen=True, slots=True)
class Left:
    """How much longer one run takes: a distribution over seconds, at least 0 and at most `most`."""

    age: float
    most: float
    log_left: tuple[float, ...]  # log of the chance to pass the end of each bin
    log_now: float  # log of the chance to have come this far

    def at(self, level: float) -> float:
        """The time within which it ends with probability `level`, in 0 ≤ level < 1."""
        wanted = log(max(1.0 - level, _LEAST_LEFT)) + self.log_now
        place = bisect_left(self.log_left, -wanted, key=lambda value: -value)
        if place >= BINS:
            return self.most
        before = self.log_left[place - 1] if place else 0.0
        part = (wanted - before) / (self.log_left[place] - before)
        total: float = 2.0 ** ((place + part) / PER_OCTAVE)
        return min(max(total - self.age, 0.0), self.most)


@dataclass(slots=True)
class Durations:
    """What is known of how long runs take. Starts out knowing nothing; `learn` is told of each run as it ends."""

    runs: int = 0  # that ended by themselves
    _groups: dict[Group, _Counts] = field(default_factory=dict)
    _parts: _Counts = field(default_factory=_Counts)  # of the limit, in bins from the end of the scale down
    _running: dict[Group, _Counts] = field(default_factory=dict)
    _running_parts: _Counts | None = None
    _known: dict[Traits, tuple[float, ...]] = field(default_factory=dict)

    def learn(self, traits: Traits, seconds: float, *, ended: bool = True) -> None:
        """Takes in a run that took so long; `ended` false if something else ended it, so that it would have gone on."""
        self.runs += ended
        self._known.clear()
        place = _bin(seconds)
        for group in traits.groups():
            counts = self._groups.pop(group, None) or _Counts()
            counts.add(place, ended=ended, fade=FADE)
            self._groups[group] = counts  # the last again: the first is the one longest not seen
        while len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
        if traits.limit_s:
            self._parts.add(_part(seconds, traits.limit_s), ended=ended, fade=FADE)

    def see_running(self, running: Iterable[tuple[Traits, float]]) -> None:
        """What runs now, by its age: it reached that age. Replaces what was told before."""
        self._known.clear()
        self._running.clear()
        self._running_parts = None
        for traits, age in running:
            place = _bin(age)
            for group in traits.groups():
                self._running.setdefault(group, _Counts()).add(place, ended=False)
            if traits.limit_s:
                self._running_parts = self._running_parts or _Counts()
                self._running_parts.add(_part(age, traits.limit_s), ended=False)

    def left(self, traits: Traits, age: float = 0.0) -> Left:
        """How much longer a run with these traits goes on, once it has run for `age` seconds."""
        passed = self._known.get(traits)
        if passed is None:
            passed = self._known[traits] = _passed(self._hazards(traits))
        most = max(0.0, (LONGEST_S if traits.limit_s is None else traits.limit_s) - age)
        return Left(age=age, most=most, log_left=passed, log_now=_log_passed(passed, age))

    def _hazards(self, traits: Traits) -> list[float]:
        if traits.limit_s:
            hazards = self._parts.hazards(_PART_PRIOR, self._running_parts)
            shift = BINS - 1 - _bin(traits.limit_s)
            hazards = hazards[shift:] + [hazards[-1]] * shift
        else:
            hazards = list(_PRIOR)
        for group in traits.groups():
            counts, running = self._groups.get(group), self._running.get(group)
            if counts is not None or running is not None:
                hazards = (counts or _NOTHING).hazards(hazards, running)
        return hazards


def _bin(seconds: float) -> int:
    return min(BINS - 1, max(0, floor(log2(max(seconds, 1.0)) * PER_OCTAVE)))


def _part(seconds: float, limit_s: float) -> int:
    """The bin of a part of a limit: the last for all of it."""
    return max(0, BINS - 1 - max(0, _bin(limit_s) - _bin(seconds)))


def _passed(hazards: Iterable[float]) -> tuple[float, ...]:
    """The log of the chance to pass the end of each bin; strictly falling, so that it can be inverted."""
    passed, total = [], 0.0
    for hazard in hazards:
        total += log1p(-min(max(hazard, 1e-9), 1.0 - 1e-9))
        passed.append(total)
    return tuple(passed)


def _log_passed(passed: Sequence[float], age: float) -> float:
    """Within a bin as many end in each part of an octave as in another."""
    if age <= 1.0:
        return 0.0
    position = min(log2(age) * PER_OCTAVE, BINS - 1e-6)
    place = floor(position)
    before = passed[place - 1] if place else 0.0
    return before + (position - place) * (passed[place] - before)


def _prior() -> tuple[float, ...]:
    """Log-normal, with a tail that never ends sooner than a power law would."""

    def longer(place: int) -> float:
        score = (place / PER_OCTAVE * log(2.0) - log(_PRIOR_MEDIAN_S)) / _PRIOR_SPREAD
        return 0.5 - 0.5 * erf(score / sqrt(2.0))

    return tuple(min(1.0 - longer(place + 1) / longer(place), _PRIOR_TAIL) for place in range(BINS))


def _part_prior() -> tuple[float, ...]:
    """Any part of the limit is as likely as another (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001)."""
    ratio = 2.0 ** (1.0 / PER_OCTAVE)
    ends = [ratio ** (place - (BINS - 1)) for place in range(BINS)]
    return tuple(min(1.0, (end - end / ratio) / max(1.0 - end / ratio, 1e-9)) for end in ends)


_PRIOR: Final = _prior()
_PART_PRIOR: Final = _part_prior()
_NOTHING: Final = _Counts()
