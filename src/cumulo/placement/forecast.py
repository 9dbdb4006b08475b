"""When what waits is expected to start, as a range, and what nobody can tell.

The queue is played many times (`cast`), and the range that comes out is corrected by how earlier ones fared (`record`).
Nothing of it is paid for by runs that are placed: it is worked out when somebody asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from cumulo.domain.ask import Ask
from cumulo.placement.cast import LEAST_ENDED, PLAIN, Key, Past, ranges
from cumulo.placement.explain import reasons
from cumulo.placement.order import Pass, hold_places
from cumulo.placement.policy import Policy
from cumulo.placement.record import Range
from cumulo.placement.refuse import Constraint
from cumulo.placement.traits import started, traits_held
from cumulo.placement.world import Waiting, World

# What keeps a unit whatever room there is, and what has to happen first.
_NOT_BY_ROOM: Final = {
    Constraint.QUOTA: "project {project} holds less of its quota",
    Constraint.RESERVED: "less is reserved, or less of it in use",
    Constraint.PRICE: "the spot price falls",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """When a waiting run is expected to start (epoch seconds): eight times in ten between `low` and `high`, as often
    before `likely` as after it. None where that can't be told; `text` says on what it rests, or why nobody can tell.

    `raw` is the range before it was corrected, by which the record is to learn once the run has started.
    """

    low: float | None = None
    likely: float | None = None
    high: float | None = None
    text: str = ""
    raw: Range | None = None


def expect(
    world: World,
    queue: Sequence[Waiting],
    target: Waiting,
    decided: Pass,
    *,
    now: float,
    past: Past,
    policy: Policy = PLAIN,
) -> Expectation:
    """When `target`, which is in `queue`, starts. `decided` is what a pass by `policy` decides on the queue now."""
    if any(decision.waiting.key == target.key for decision in decided.decisions):
        return Expectation(low=now, likely=now, high=now, text="now")
    why = reasons(world, target.ask)
    if not why.ever:
        return Expectation(text="never on the nodes that are there now")
    for held in decided.held_back:
        if held.waiting.key == target.key and held.constraint in _NOT_BY_ROOM:
            first = _NOT_BY_ROOM[held.constraint].format(project=target.project)
            return Expectation(text=f"can't tell: not before {first}")
    trial, left = _after(world, queue, decided, now)
    return _told(ranges(trial, left, now, past, target.key, policy=policy)[target.key], trial, target.ask, now, past)


def forecast(
    world: World,
    queue: Sequence[Waiting],
    decided: Pass,
    *,
    now: float,
    past: Past,
    policy: Policy = PLAIN,
) -> dict[Key, Range]:
    """The corrected range of everything in `queue` that can be told, inf where part of it can't be."""
    trial, left = _after(world, queue, decided, now)
    told = {decision.waiting.key: Range(low=now, likely=now, high=now) for decision in decided.decisions}
    for key, raw in ranges(trial, left, now, past, policy=policy).items():
        if raw.likely < inf:
            told[key] = past.record.correct(raw, now)
    return told


def _after(world: World, queue: Sequence[Waiting], decided: Pass, now: float) -> tuple[World, list[Waiting]]:
    """The world once the pass is carried out, and who waits then. What no room would help is in nobody's way."""
    trial = world.copy()
    gone = {held.waiting.key for held in decided.held_back if held.constraint in _NOT_BY_ROOM}
    for decision in decided.decisions:
        waiting = decision.waiting
        gone.add(waiting.key)
        hold_places(trial, waiting, decision.places, None if waiting.duration_s is None else now + waiting.duration_s)
    return trial, [waiting for waiting in queue if waiting.key not in gone]


def _told(raw: Range, world: World, ask: Ask, now: float, past: Past) -> Expectation:
    if raw.likely == inf:
        return Expectation(text=_untold(world, ask, now, past), raw=raw)
    told = past.record.correct(raw, now)
    ended = past.durations.runs
    rests = "judged by what was declared: little has ended here yet"
    if ended >= LEAST_ENDED:
        rests = f"judged by {ended} runs that ended"
    return Expectation(
        low=told.low,
        likely=told.likely,
        high=None if told.high == inf else told.high,
        text=rests if told.high < inf else f"{rests}; nobody can tell when at the latest",
        raw=raw,
    )


def _untold(world: World, ask: Ask, now: float, past: Past) -> str:
    why = reasons(world, ask)
    blocking = {refusal.node_id for refusal in why.refusals if not refusal.constraint.lasting}
    holds = [hold for hold in world.holds.values() if hold.node_id in blocking]
    endless = sorted({hold.run_name for hold in holds if not past.can_tell(traits_held([hold], started(hold, now)))})
    if not endless:
        return "can't tell: too much is ahead of it" if holds else "can't tell: no node that could take it is ready"
    shown = ", ".join(endless[:5]) + (f" and {len(endless) - 5} more" if len(endless) > 5 else "")
    return f"can't tell: {shown} declared no max_duration, and too few runs have ended to judge by"
