"""A reservation for the head of the queue, and who may slip in front of it (EASY backfill).

The head is the first that does not fit. What must end before it fits is found, those that end soonest first; the moment
by which it has ended is the shadow time. A run behind the head may start if it has ended by then, or if the head would
still fit then with that run beside it (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001). So no run behind it delays it.

Where what must end declared no end there is no shadow time. Then the head gets the nodes where the fewest such have to
end, and nothing without an end may take what it needs there. That number never grows while it is the head, and falls
whenever one of them ends, so a large run is not starved by small ones. What declares an end may slip in for as long as
the head has waited already: its wait at most doubles.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cumulo.domain.ask import Ask
from cumulo.domain.instance import instance_id
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import share_milli
from cumulo.placement.fit import Place, admitted_kinds, choose, places_on
from cumulo.placement.quota import least_milli
from cumulo.placement.world import Hold, NodeUse, Waiting, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Where the head is to start, when at the latest (None: nobody can tell), and the attempts that must end first."""

    waiting: Waiting
    places: tuple[Place, ...]
    at: float | None
    waits_for: tuple[str, ...]

    @property
    def node_ids(self) -> frozenset[str]:
        return frozenset(place.node_id for place in self.places)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Holds that end together."""

    id: str
    holds: tuple[Hold, ...]

    def on(self, node_id: str) -> "Attempt":
        return Attempt(self.id, tuple(hold for hold in self.holds if hold.node_id == node_id))

    @property
    def spot(self) -> bool:
        return all(hold.purchase is PurchaseOption.SPOT for hold in self.holds)

    @property
    def gpus_milli(self) -> int:
        return sum(share_milli(hold.slices) for hold in self.holds)

    @property
    def cpus_milli(self) -> int:
        return sum(hold.cpus_milli for hold in self.holds)

    @property
    def memory_bytes(self) -> int:
        return sum(hold.memory_bytes for hold in self.holds)


def attempts(holds: Iterable[Hold]) -> list[Attempt]:
    """Holds by the attempt they belong to, in the order of their ids."""
    found: dict[str, list[Hold]] = defaultdict(list)
    for hold in holds:
        found[hold.attempt].append(hold)
    return [Attempt(name, tuple(found[name])) for name in sorted(found)]


def release(world: World, attempt: Attempt) -> None:
    for hold in attempt.holds:
        world.release(hold.instance_id)


def restore(world: World, attempt: Attempt) -> None:
    for hold in attempt.holds:
        world.hold(hold)


@dataclass(slots=True)
class Kept:
    """A reservation while a pass goes on. `future` is the world at its shadow time, without the head itself."""

    reservation: Reservation
    future: World
    now: float

    def in_time(self, waiting: Waiting) -> bool:
        """Whether it has ended by the time the head needs its room."""
        if waiting.duration_s is None:
            return False
        head, at = self.reservation.waiting, self.reservation.at
        return (
            self.now + waiting.duration_s <= at if at is not None else waiting.duration_s <= self.now - head.accepted_at
        )

    def exchange(self, gone: tuple[Hold, ...], taken: tuple[Hold, ...]) -> "Exchange | None":
        """Lets some go and others come at the shadow time if the head still fits then; None, and nothing done, if not.

        Of those that go and come again elsewhere, the ones that have ended by then do not come.
        """
        there = tuple(hold for hold in gone if hold.instance_id in self.future.holds)
        over = {hold.instance_id for hold in gone} - {hold.instance_id for hold in there}
        made = Exchange(there, tuple(hold for hold in taken if hold.instance_id not in over))
        made.do(self.future)
        if self.reservation.node_ids.isdisjoint(hold.node_id for hold in made.taken):
            return made
        again = choose(self.future, self.reservation.waiting.ask)
        if again is not None:
            self.reservation = replace(self.reservation, places=again)
            return made
        made.undo(self.future)
        return None


@dataclass(frozen=True, slots=True)
class Exchange:
    """What has left a world and what has come in its place."""

    gone: tuple[Hold, ...]
    taken: tuple[Hold, ...]

    def do(self, world: World) -> None:
        for hold in self.gone:
            world.release(hold.instance_id)
        for hold in self.taken:
            world.hold(hold)

    def undo(self, world: World) -> None:
        for hold in self.taken:
            world.release(hold.instance_id)
        for hold in self.gone:
            world.hold(hold)


def held_places(waiting: Waiting, places: tuple[Place, ...], until: float | None = None) -> tuple[Hold, ...]:
    """What the attempt holds once it has the places, under instance ids made from its key."""
    return tuple(
        Hold(
            instance_id=instance_id(*waiting.key, rank),
            run_id=waiting.key[0],
            run_name=waiting.name,
            node_id=place.node_id,
            cpus_milli=place.cpus_milli,
            memory_bytes=place.memory_bytes,
            slices=place.slices,
            until=until,
            project=waiting.project,
            account=waiting.account,
            purchase=waiting.purchase,
            bid_nano_h=waiting.bid_nano_h,
            priority=waiting.priority,
            migratable=waiting.migratable,
        )
        for rank, place in enumerate(places)
    )


def cleared(world: World) -> World:
    """The world with nothing held of it but what is there to stay."""
    empty = World(may_change_mode=world.may_change_mode)
    for name, use in world.nodes.items():
        empty.see_node(name, use.node)
    for hold in world.holds.values():
        if hold.lasting and hold.node_id in empty.nodes:
            empty.restore(hold)
    return empty


def ending(world: World) -> list[Attempt]:
    """All attempts that hold something but those that are there to stay."""
    return attempts(hold for hold in world.holds.values() if not hold.lasting)


def reserve(
    world: World,
    waiting: Waiting,
    ask: Ask,
    *,
    now: float,
    ends: Mapping[str, float],
    spot_yields: bool = False,
    empty: World | None = None,
) -> Kept | None:
    """A reservation for `waiting`; None if it could not start though all that is held were free (`empty`, if known).

    `ends` are estimates, by instance id, for what declared none. What should have ended already is taken to end now; so
    are spot runs with `spot_yields`, since they can be stopped.
    """
    empty = empty or cleared(world)
    if choose(empty, ask) is None:
        return None
    waiting = replace(waiting, ask=ask)
    timed, untimed = _by_end(ending(world), now, ends, spot_yields)
    future = world.copy()
    for _, attempt in timed:
        release(future, attempt)
    if (places := choose(future, ask)) is None:
        return _reserve_untimed(future, empty, waiting, [attempt for _, attempt in timed], untimed, now)
    # The fewest of those that end that must have: halving the doubt, with what is released kept in step.
    fewest, enough = 0, len(timed)
    released = enough
    while fewest < enough:
        middle = (fewest + enough) // 2
        released = _release_first(future, timed, released, middle)
        if (found := choose(future, ask)) is None:
            fewest = middle + 1
        else:
            enough, places = middle, found
    _release_first(future, timed, released, enough)
    at = timed[enough - 1][0] if enough else now
    return _kept(future, waiting, places, at, [attempt for _, attempt in timed[:enough]], now)


def _kept(
    future: World, waiting: Waiting, places: tuple[Place, ...], at: float | None, released: list[Attempt], now: float
) -> Kept:
    needed = {place.node_id for place in places}
    waits_for = tuple(each.id for each in released if not needed.isdisjoint(hold.node_id for hold in each.holds))
    return Kept(Reservation(waiting=waiting, places=places, at=at, waits_for=waits_for), future, now)


def _by_end(
    running: list[Attempt], now: float, ends: Mapping[str, float], spot_yields: bool
) -> tuple[list[tuple[float, Attempt]], list[Attempt]]:
    timed: list[tuple[float, Attempt]] = []
    untimed: list[Attempt] = []
    for attempt in running:
        known = [hold.until if hold.until is not None else ends.get(hold.instance_id) for hold in attempt.holds]
        told = [end for end in known if end is not None]
        if spot_yields and attempt.spot:
            timed.append((now, attempt))
        elif len(told) == len(known):
            timed.append((max(now, *told), attempt))
        else:
            untimed.append(attempt)
    timed.sort(key=lambda ending: (ending[0], ending[1].id))
    return timed, untimed


def _release_first(world: World, timed: list[tuple[float, Attempt]], released: int, wanted: int) -> int:
    for _, attempt in timed[released:wanted]:
        release(world, attempt)
    for _, attempt in timed[wanted:released]:
        restore(world, attempt)
    return wanted


def _reserve_untimed(
    future: World, empty: World, waiting: Waiting, ended: list[Attempt], untimed: list[Attempt], now: float
) -> Kept | None:
    """All that has an end is released in `future`: the nodes where the fewest without one must end, until it fits."""
    ask = waiting.ask
    kinds = admitted_kinds(ask.gpu, future) if ask.gpu else None
    gpus = ask.gpu.count_min if ask.gpu else 0
    released = list(ended)
    for ready, (node_id, there) in enumerate(_cheapest_nodes(future, empty, ask, untimed), start=1):
        use = future.nodes[node_id]
        for attempt in there:
            if places_on(use, ask, kinds, gpus):
                break
            if attempt.holds[0].instance_id in future.holds:
                release(future, attempt)
                released.append(attempt)
        places = choose(future, ask) if ready >= ask.nodes else None
        if places is not None:
            return _kept(future, waiting, places, None, released, now)
    return None


def _cheapest_nodes(future: World, empty: World, ask: Ask, untimed: list[Attempt]) -> list[tuple[str, list[Attempt]]]:
    """The nodes that could take one instance, where the fewest must end first; of each, what to end first to last."""
    by_node: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in untimed:
        for node_id in {hold.node_id for hold in attempt.holds}:
            by_node[node_id].append(attempt)
    kinds = admitted_kinds(ask.gpu, empty) if ask.gpu else None
    gpus = ask.gpu.count_min if ask.gpu else 0
    found: list[tuple[int, str, list[Attempt]]] = []
    for node_id, use in empty.nodes.items():
        if places_on(use, ask, kinds, gpus):
            count, there = _fewest(future.nodes[node_id], by_node[node_id], ask)
            found.append((count, node_id, there))
    found.sort(key=lambda cost: cost[:2])
    return [(node_id, there) for _, node_id, there in found]


def _fewest(use: NodeUse, there: list[Attempt], ask: Ask) -> tuple[int, list[Attempt]]:
    """How many of the attempts on a node must end for one instance, by amounts alone, and all with those first."""
    gpus, cpus, memory = least_milli(replace(ask, nodes=1)), ask.cpus_milli or 0, ask.memory_bytes or 0
    gpus -= sum(1000 - use.held(device).milli for device in use.node.devices if use.usable(device))
    cpus -= use.cpus_free
    memory -= use.memory_free
    needed: list[Attempt] = []
    rest: list[Attempt] = []
    for attempt in sorted(there, key=lambda each: (-each.on(use.id).gpus_milli, each.id)):
        part = attempt.on(use.id)
        if (gpus > 0 and part.gpus_milli) or (cpus > 0 and part.cpus_milli) or (memory > 0 and part.memory_bytes):
            needed.append(attempt)
            gpus, cpus, memory = gpus - part.gpus_milli, cpus - part.cpus_milli, memory - part.memory_bytes
        else:
            rest.append(attempt)
    return len(needed), needed + rest
