"""When everything that waits would start, drawn many times: the queue is played with drawn durations and arrivals.

Each play draws how long everything takes from what was learnt (`durations`) and what arrives meanwhile (`arrivals`).
All draws come from a generator seeded with nothing but a constant: the same snapshot gets the same answer. The work is
bounded by `EVENTS` starts and ends over all plays: the longer the queue, the fewer plays. What a play does not get to
is taken to start as much later as more is ahead of it.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from random import Random
from typing import Final

from cumulo.domain.ask import Ask
from cumulo.placement.arrivals import Arrivals
from cumulo.placement.durations import Durations
from cumulo.placement.floor import Floor, Held, Shape
from cumulo.placement.play import Play, Unit
from cumulo.placement.policy import Policy
from cumulo.placement.record import Range, Record
from cumulo.placement.traits import Traits, started, traits_held, traits_of
from cumulo.placement.turns import due
from cumulo.placement.world import Hold, Waiting, World

EVENTS: Final = 40_000
MOST_PLAYS: Final = 24
LEAST_PLAYS: Final = 6
# Of so few ended runs nothing can be told about one that declared nothing.
LEAST_ENDED: Final = 5
# What is learnt of durations may be wrong for all runs alike: in each play all are longer, or all shorter, than learnt.
# The odds that a run has ended are multiplied by a factor with 9 ** COMMON as its 90 % point.
COMMON: Final = 0.55
# The part of what is ahead that must have started to tell how fast it goes.
LEAST_GONE: Final = 0.1
PLAIN: Final = Policy()
_SEED: Final = 20_1017

Key = tuple[str, int, int]


@dataclass(slots=True)
class Past:
    """What placement has learnt: how long runs take, what arrives, and how its forecasts fared."""

    durations: Durations = field(default_factory=Durations)
    arrivals: Arrivals = field(default_factory=Arrivals)
    record: Record = field(default_factory=Record)

    def can_tell(self, traits: Traits) -> bool:
        """Whether anything can be said of how long such a run takes."""
        return traits.limit_s is not None or self.durations.runs >= LEAST_ENDED


def ranges(
    world: World,
    queue: Sequence[Waiting],
    now: float,
    past: Past,
    target: Key | None = None,
    *,
    policy: Policy = PLAIN,
    most_plays: int = MOST_PLAYS,
) -> dict[Key, Range]:
    """When each unit of `queue`, which fit nowhere now, starts, or `target` alone. Not corrected by the record.

    Whose turn it is follows from priority and who is due (see `turns`): shares of projects and quotas are left out.
    """
    return _Cast(world, queue, now, past, policy).ranges(target, most_plays)


class _Cast:
    """All that is the same in every play: the floor, who runs and who waits, and from what their times are drawn."""

    def __init__(self, world: World, queue: Sequence[Waiting], now: float, past: Past, policy: Policy) -> None:
        self.now, self.past, self.stretch, self.most_heads = now, past, policy.stretch, policy.reservations
        self.floor = Floor(world)
        self._shapes: dict[tuple[Ask, float | None], int] = {}
        self.shapes: list[Shape] = []
        self.running = self._running(world)
        ordered = sorted(
            queue, key=lambda each: (-each.priority, due(each, policy.stretch), each.accepted_at, each.key)
        )
        self.keys = [waiting.key for waiting in ordered]
        self.queue = [self._unit(waiting, number) for number, waiting in enumerate(ordered)]
        self.arriving = [(self._unit(waiting, 0), waiting.accepted_at) for waiting in past.arrivals]

    def _running(self, world: World) -> list[tuple[list[Held], float | None, Callable[[float], float] | None]]:
        """Of each attempt what it holds, when it must end, and how to draw when it does."""
        holds = sorted(world.holds.values(), key=_attempt)
        attempts = [list(of_attempt) for _, of_attempt in groupby(holds, key=_attempt)]
        known = [(traits_held(each, self.now), max(0.0, self.now - started(each[0], self.now))) for each in attempts]
        self.past.durations.see_running(known)
        return [
            ([held for hold in each for held in self.floor.held(hold)], each[0].until, self._left(traits, age))
            for each, (traits, age) in zip(attempts, known, strict=True)
        ]

    def _left(self, traits: Traits, age: float = 0.0) -> Callable[[float], float] | None:
        return self.past.durations.left(traits, age).at if self.past.can_tell(traits) else None

    def _unit(self, waiting: Waiting, number: int) -> Unit:
        shape = waiting.ask, waiting.duration_s
        place = self._shapes.get(shape)
        if place is None:
            place = self._shapes[shape] = len(self.shapes)
            self.shapes.append(self.floor.shape(*shape))
        order = -waiting.priority, due(waiting, self.stretch), number
        return Unit(place, order, waiting.accepted_at, self._left(traits_of(waiting)))

    def ranges(self, target: Key | None, most_plays: int) -> dict[Key, Range]:
        last = len(self.queue) if target is None else self.keys.index(target) + 1
        plays = min(most_plays, max(LEAST_PLAYS, EVENTS // max(1, 2 * last + len(self.running))))
        chance = Random(_SEED)  # noqa: S311 (nothing here is secret)
        levels = [chance.sample(range(plays), plays) for _ in self.running]
        wanted = range(len(self.queue)) if target is None else range(last - 1, last)
        starts: dict[int, list[float]] = {number: [] for number in wanted}
        for play in range(plays):
            drawn = [(level[play] + chance.random()) / plays for level in levels]
            found = self._play((play + 0.5) / plays, drawn, chance, set(wanted), EVENTS // plays)
            for number in wanted:
                starts[number].append(found.get(number, inf))
        return {self.keys[number]: _range(starts[number]) for number in wanted}

    def _play(
        self, common: float, drawn: list[float], chance: Random, wanted: set[int], events: int
    ) -> dict[int, float]:
        """One play: when those of the queue start that are `wanted`, by their place in it, as far as it gets."""
        tilt: float = (common / (1.0 - common)) ** COMMON

        def draw(level: float) -> float:
            return level * tilt / (1.0 - level + level * tilt)

        play = Play(self.floor, self.shapes, self.now, most_heads=self.most_heads)
        for (held, until, left), level in zip(self.running, drawn, strict=True):
            play.runs(held, None if left is None else self.now + left(draw(level)), until)
        for unit in self.queue:
            play.waits(unit, fresh=False)
        arrivals = self.past.arrivals.again(self.now, chance.random(), chance.random())
        arriving = next(arrivals, None)
        came = len(self.queue)
        started: list[int] = []
        found: dict[int, float] = {}
        while wanted and play.events < events:
            end = play.next_end()
            if end == inf:
                return found  # what runs never ends, and what arrives makes no room
            if arriving is not None and arriving[0] < end:
                play.to(arriving[0])
                unit, then = self.arriving[arriving[1]]
                priority, due_then, _ = unit.order
                came += 1
                order = priority, due_then + arriving[0] - then, came
                play.waits(Unit(unit.shape, order, arriving[0], unit.seconds), fresh=True)
                arriving = next(arrivals, None)
            else:
                play.to(end)
            for *_, number in play.start(lambda: draw(chance.random())):
                insort(started, number)
                if number in wanted:
                    wanted.discard(number)
                    found[number] = play.now
        return found | {number: self._later(number, started, play.now) for number in wanted}

    def _later(self, number: int, started: list[int], reached: float) -> float:
        """When one starts that the play did not get to, if those ahead of it go on starting as fast as so far."""
        gone = bisect_left(started, number)
        return self.now + (reached - self.now) * (number + 2) / (gone + 1) if gone >= LEAST_GONE * number else inf


def _attempt(hold: Hold) -> str:
    return hold.attempt


def _range(starts: list[float]) -> Range:
    found = sorted(starts)
    low, likely, high = (_quantile(found, level) for level in (0.1, 0.5, 0.9))
    return Range(low=low, likely=likely, high=high)


def _quantile(found: list[float], level: float) -> float:
    """Linear between order statistics; inf as soon as one of both is."""
    position = level * (len(found) - 1)
    place = int(position)
    part = position - place
    if part == 0 or found[place] == inf:
        return found[place]
    return found[place] + part * (found[place + 1] - found[place])
