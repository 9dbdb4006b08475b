"""Who has had how much: what each project holds, what it has used of late, and so whose turn it is.

Projects come in the order of their weighted dominant share, the smallest first (dominant-resource fairness: Ghodsi et
al., NSDI 2011, algorithm 1). There a share is what a project holds now; here past use counts too, and fades: with half-
life h, the use u(t) of a project has the decayed average

    a(T) = ln 2 / h * integral over t <= T of u(t) * 2^(-(T - t) / h) dt

which is u itself for a use that never changes. What orders is a(now + h) if what is held now stays held that long: the
mean of a(now) and of what is held. So a project that gets something falls back at once, one that has had much comes
back as it fades, and the whole costs one multiplication, whenever it is asked.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cumulo.domain.sharing import share_milli
from cumulo.placement.fit import Place
from cumulo.placement.policy import Policy
from cumulo.placement.world import Hold, World


class Resources(NamedTuple):
    """Amounts of the three resources that shares are told in: GPUs of all kinds in milli, CPUs in milli, bytes."""

    gpus_milli: float = 0.0
    cpus_milli: float = 0.0
    memory_bytes: float = 0.0

    def times(self, factor: float) -> "Resources":
        return Resources(*(amount * factor for amount in self))

    def plus(self, other: "Resources") -> "Resources":
        return Resources(*(mine + its for mine, its in zip(self, other, strict=True)))

    def dominant(self, capacity: "Resources") -> float:
        """The largest part of any resource that is there at all."""
        return max((mine / all_of_it for mine, all_of_it in zip(self, capacity, strict=True) if all_of_it), default=0.0)


@dataclass(slots=True)
class Holding:
    """What one project holds: GPUs in milli by kind, CPUs in milli, memory in bytes."""

    kinds: dict[str, int] = field(default_factory=dict)
    cpus_milli: int = 0
    memory_bytes: int = 0

    @property
    def gpus_milli(self) -> int:
        return sum(self.kinds.values())

    @property
    def resources(self) -> Resources:
        return Resources(self.gpus_milli, self.cpus_milli, self.memory_bytes)

    def add(self, places: Iterable[Place]) -> None:
        for place in places:
            self.change(place.device_model, share_milli(place.slices), place.cpus_milli, place.memory_bytes)

    def change(self, kind: str, gpus_milli: int, cpus_milli: int, memory_bytes: int) -> None:
        """Adds what may be negative."""
        if gpus_milli:
            self.kinds[kind] = self.kinds.get(kind, 0) + gpus_milli
        self.cpus_milli += cpus_milli
        self.memory_bytes += memory_bytes


def kinds_held(world: World, holds: Iterable[Hold]) -> Iterator[tuple[Hold, str, int]]:
    """Each hold, the kind of its GPUs ("" without), and how many milli of them. One instance has GPUs of one kind."""
    models: dict[str, dict[str, str]] = {}
    for hold in holds:
        if not hold.slices:
            yield hold, "", 0
            continue
        known = models.get(hold.node_id)
        if known is None:
            use = world.nodes[hold.node_id]
            known = models[hold.node_id] = {device.uuid: device.model for device in use.node.devices}
        # A device that its node has no more has no kind.
        yield hold, known.get(hold.slices[0].device_uuid, ""), share_milli(hold.slices)


def holdings(world: World) -> dict[str, Holding]:
    """What each project holds in `world`."""
    found: dict[str, Holding] = {}
    for hold, kind, gpus_milli in kinds_held(world, world.holds.values()):
        held = found.setdefault(hold.project, Holding())
        held.change(kind, gpus_milli, hold.cpus_milli, hold.memory_bytes)
    return found


def capacity(world: World) -> Resources:
    """All that the nodes have, whatever state they are in: a share must not jump when a node is rebooted."""
    nodes = [use.node for use in world.nodes.values()]
    return Resources(
        sum(len(node.devices) for node in nodes) * 1000.0,
        sum(node.cpus_milli for node in nodes),
        sum(node.memory_bytes for node in nodes),
    )


class Usage:
    """What each project has used, as a decayed average kept by deltas: `advance` as time passes, `charge` for what was.

    The order in which pieces are charged makes no difference.
    """

    def __init__(self, half_life_s: float) -> None:
        self.half_life_s = half_life_s
        self._averages: dict[str, tuple[float, Resources]] = {}  # as of when
        self._advanced: float | None = None

    def charge(self, project: str, used: Resources, seconds: float, until: float) -> None:
        """Counts that the project used that much for `seconds` up to `until`. Raises ValueError below 0 s."""
        if seconds < 0:
            raise ValueError(f"{project} can't have used anything for {seconds} s")
        at, average = self._averages.get(project, (until, Resources()))
        piece = used.times(1.0 - self._left(seconds))
        if until >= at:
            self._averages[project] = until, average.times(self._left(until - at)).plus(piece)
        else:
            self._averages[project] = at, average.plus(piece.times(self._left(at - until)))

    def advance(self, held: Mapping[str, Holding], now: float) -> None:
        """Charges every project with what it has held since this was last called: call it before that changes."""
        since, self._advanced = self._advanced, now
        if since is None or now <= since:
            return
        for project, holding in held.items():
            self.charge(project, holding.resources, now - since, now)

    def average(self, project: str, now: float) -> Resources:
        """The decayed average at `now`, which must not be before what was charged."""
        at, average = self._averages.get(project, (now, Resources()))
        return average.times(self._left(max(0.0, now - at)))

    def _left(self, seconds: float) -> float:
        return float(2.0 ** (-seconds / self.half_life_s))


class Shares:
    """The shares of all projects while one pass gives things away; see the module for the formula."""

    def __init__(self, world: World, policy: Policy, usage: Usage | None, now: float) -> None:
        self._policy, self._usage, self._now = policy, usage, now
        self._capacity = capacity(world)
        self.held = holdings(world)

    def of(self, project: str) -> float:
        """The weighted dominant share that orders the project among others."""
        counted = self.holding(project).resources
        if self._usage is not None:
            counted = counted.plus(self._usage.average(project, self._now)).times(0.5)
        return counted.dominant(self._capacity) / self._policy.rules(project).weight

    def holding(self, project: str) -> Holding:
        return self.held.setdefault(project, Holding())

    def take(self, project: str, places: Iterable[Place]) -> None:
        self.holding(project).add(places)

    def give_back(self, world: World, holds: Iterable[Hold]) -> None:
        """Before they are released in `world`, which tells what they hold."""
        for hold, kind, gpus_milli in kinds_held(world, holds):
            self.holding(hold.project).change(kind, -gpus_milli, -hold.cpus_milli, -hold.memory_bytes)

    def guaranteed(self, project: str, kind: str, gpus_milli: int) -> bool:
        """Whether the project is sure of that many more milli of the kind."""
        sure = self._policy.rules(project).guaranteed.get(kind, 0) * 1000
        return 0 < gpus_milli <= sure - self.holding(project).kinds.get(kind, 0)
