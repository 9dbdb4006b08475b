"""Clearing the way for a unit that does not fit: what is tried in a pass, and how it is carried out and kept.

Decided is not done: victims and movers take their time to leave. Until they have, later passes keep the room for whom
they leave, and nobody is stopped twice for the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from cumulo.domain.ask import Ask
from cumulo.domain.instance import parse_instance_id
from cumulo.domain.run import PurchaseOption
from cumulo.placement.fit import Place, choose
from cumulo.placement.policy import Policy
from cumulo.placement.preempt import Claim, Preemption, may_go, preempt
from cumulo.placement.reserve import Attempt, Exchange, attempts, held_places, release
from cumulo.placement.room import Room, make_room
from cumulo.placement.world import Hold, OverHeld, Waiting, World

# How often a pass tries each: what is left over, the next pass tries.
MOST_TRIES: Final = 64


class Clearing:
    """Looks for preemptions and moves in `trial`, the world of a pass, and for none that can't be.

    What may go is what ran when the pass began: it stops nobody whom it has just started.
    """

    def __init__(self, trial: World, policy: Policy, now: float | None) -> None:
        self._trial, self._policy, self._now = trial, policy, now
        self._tries = {"room": 0, "preemption": 0}
        spot = [hold for hold in trial.holds.values() if hold.purchase is PurchaseOption.SPOT]
        self._may = {
            "room": policy.make_room and any(hold.migratable for hold in trial.holds.values()),
            "spot": bool(spot),
            "outbid": any(hold.bid_nano_h is not None for hold in spot),
        }
        self._running: list[Attempt] | None = None
        self._freest: dict[Claim, World] = {}

    def room(self, waiting: Waiting, ask: Ask) -> Room | None:
        """Moves that let it in, if the policy wants any."""
        if self._now is None or not self._may["room"] or not self._try("room"):
            return None
        return make_room(self._trial, waiting, ask, self._there(), most_moves=self._policy.most_moves, now=self._now)

    def preemption(self, waiting: Waiting, ask: Ask, by: Claim) -> Preemption | None:
        """Who must go for it, if it may stop anybody."""
        may = by.borrowed_kinds or (by.spot and self._may["spot"]) or (by.outbids and self._may["outbid"])
        if self._now is None or not may:
            return None
        if choose(self._without(by), ask) is None or not self._try("preemption"):
            return None
        victims = may_go(self._trial, self._there(), by, policy=self._policy, now=self._now)
        return preempt(self._trial, waiting, ask, victims)

    def _there(self) -> list[Attempt]:
        """What ran when the pass began and has neither been stopped nor moved in it."""
        if self._running is None:
            self._running = attempts(self._trial.holds.values())
        holds = self._trial.holds
        return [each for each in self._running if holds.get(each.holds[0].instance_id) is each.holds[0]]

    def _without(self, by: Claim) -> World:
        """The world without all that such a claim may stop, as it was when first asked for: no pass makes more room."""
        known = self._freest.get(by)
        if known is None and self._now is not None:
            known = self._freest[by] = self._trial.copy()
            for each in may_go(self._trial, self._there(), by, policy=self._policy, now=self._now):
                release(known, each.attempt)
        return known or self._trial

    def _try(self, what: str) -> bool:
        self._tries[what] += 1
        return self._tries[what] <= MOST_TRIES


class Promise(NamedTuple):
    """A unit, the places that are its own, and whether they are free now."""

    waiting: Waiting
    places: tuple[Place, ...]
    free: bool


def clear(world: World, found: Preemption | Room, until: float | None = None) -> Exchange:
    """Carries it out in `world`: movers are where they go to. Where that can't be: OverHeld, nothing changed."""
    gone = tuple(world.holds[name] for name in leaving(found) if name in world.holds)
    for hold in gone:
        world.release(hold.instance_id)
    taken = held_places(found.waiting, found.places, until)
    if isinstance(found, Room):
        there = {hold.instance_id: hold for hold in gone}
        moved = (_moved(there[move.instance_id], move.place) for move in found.moves if move.instance_id in there)
        taken = (*taken, *moved)
    try:
        take(world, taken)
    except OverHeld:
        for hold in gone:
            world.hold(hold)
        raise
    return Exchange(gone, taken)


def take(world: World, holds: Iterable[Hold]) -> None:
    """All of the holds or none. Raises OverHeld, for a node that is not ready too."""
    done: list[str] = []
    try:
        for hold in holds:
            use = world.nodes.get(hold.node_id)
            if use is not None and use.blocked:
                raise OverHeld(f"{hold.node_id} takes nothing now: {use.blocked}")
            world.hold(hold)
            done.append(hold.instance_id)
    except OverHeld:
        for name in done:
            world.release(name)
        raise


def leaving(found: Preemption | Room) -> tuple[str, ...]:
    """The ids of the instances that have to leave."""
    if isinstance(found, Room):
        return tuple(move.instance_id for move in found.moves)
    return tuple(name for victim in found.victims for name in victim.instance_ids)


def _moved(hold: Hold, place: Place) -> Hold:
    return replace(hold, node_id=place.node_id, slices=place.slices)


def keep(world: World, queue: Iterable[Waiting], found: Preemption | Room) -> Iterator[Promise]:
    """Keeps in `world` what an earlier pass promised, for those of `queue` that it was promised to.

    A promise that can't be kept any more (a node is gone, the run was cancelled) is none: who waits gets a turn again.
    """
    waiting = next((each for each in queue if each.key == found.waiting.key), None)
    free = not any(name in world.holds for name in leaving(found))
    if waiting is not None:
        try:
            clear(world, found)
        except OverHeld:
            return
        yield Promise(waiting, found.places, free)
    if isinstance(found, Room):
        yield from _keep_moved(world, queue, found)


def _keep_moved(world: World, queue: Iterable[Waiting], found: Room) -> Iterator[Promise]:
    """Movers that have left start again where they were to go."""
    units = {each.key[:2]: each for each in queue}
    for move in found.moves:
        was = parse_instance_id(move.instance_id)
        again = units.get((was.run_id, was.unit))
        if move.instance_id in world.holds or again is None or again.key[2] <= was.attempt:
            continue
        try:
            take(world, held_places(again, (move.place,)))
        except OverHeld:
            continue
        yield Promise(again, (move.place,), True)
