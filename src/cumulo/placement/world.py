"""The snapshot that placement decides on: nodes, what is held of them, and the queue.

A `World` is kept up to date by deltas (`see_node`, `hold`, `release`) and compares equal to one built afresh from the
same facts. CPU in milli, memory in bytes, times in epoch seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from cumulo.domain.ask import Ask
from cumulo.domain.node import Device, DeviceHealth, Node, NodeState
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import SharingMode, Slice, device_uuids
from cumulo.placement.device import DeviceUse, objection

if TYPE_CHECKING:
    from cumulo.placement.index import FleetIndex

_EMPTY = DeviceUse()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What one instance holds of one node. `until` is when it must end at the latest, None if nobody declared it.

    What it would lose if it were preempted counts from `checkpointed_at`, or from `started_at` where that is unknown.
    `bid_nano_h` is what a spot run pays at most for a GPU for an hour; None: whatever it costs. `reservation` is the id
    of the one that it draws on. `lasting`: nobody can tell whether it ever ends, and nobody can stop it for another.
    """

    instance_id: str
    run_id: str
    run_name: str
    node_id: str
    cpus_milli: int
    memory_bytes: int
    slices: tuple[Slice, ...] = ()
    until: float | None = None
    project: str = "default"
    account: str = ""
    purchase: PurchaseOption = PurchaseOption.ON_DEMAND
    bid_nano_h: int | None = None
    reservation: str | None = None
    priority: int = 0
    started_at: float | None = None
    checkpointed_at: float | None = None
    migratable: bool = False
    lasting: bool = False

    @property
    def attempt(self) -> str:
        """What this instance lives and dies with: the id of its attempt, shared by all its ranks."""
        return self.instance_id.rpartition("-")[0] or self.instance_id

    @property
    def device_uuids(self) -> tuple[str, ...]:
        """The devices of which it holds something, each once."""
        return device_uuids(self.slices)


@dataclass(slots=True, kw_only=True)
class NodeUse:
    """A node and how much of it is free. `devices` are those of which something is held, by uuid.

    `may_change_mode` lets a device that is empty go into any mode its node can enforce; without, it stays in its first.
    """

    id: str
    node: Node
    generation: int = 0
    cpus_free: int = 0
    memory_free: int = 0
    devices: dict[str, DeviceUse] = field(default_factory=dict)
    may_change_mode: bool = True

    @property
    def blocked(self) -> str:
        """Why nothing may be placed here at all, in words; empty when it may."""
        if self.node.state is NodeState.READY:
            return ""
        return f"{self.node.state}: {self.node.state_reason}".removesuffix(": ")

    def usable(self, device: Device) -> bool:
        """Whether the device could be given to somebody if nobody held it."""
        return device.health in (DeviceHealth.OK, DeviceHealth.DEGRADED) and not device.foreign

    def held(self, device: Device) -> DeviceUse:
        """What is held of a device: to be read only."""
        return self.devices.get(device.uuid, _EMPTY)

    def empty(self, device: Device) -> bool:
        """Whether nobody holds anything of the device."""
        return device.uuid not in self.devices

    def modes(self, device: Device) -> tuple[SharingMode, ...]:
        """The modes that the device may be in once it is empty."""
        return device.modes if self.may_change_mode else device.modes[:1]

    def copy(self) -> "NodeUse":
        return NodeUse(
            id=self.id,
            node=self.node,
            generation=self.generation,
            cpus_free=self.cpus_free,
            memory_free=self.memory_free,
            devices={uuid: use.copy() for uuid, use in self.devices.items()},
            may_change_mode=self.may_change_mode,
        )


class OverHeld(ValueError):
    """A hold that exceeds what is there. Never the fault of what a person asked."""


@dataclass(slots=True, kw_only=True)
class World:
    """All nodes by id and all holds by instance id. `may_change_mode`: see `NodeUse`."""

    nodes: dict[str, NodeUse] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    may_change_mode: bool = True
    # Nodes whose use another world reads too, since one was copied from the other: copied when it changes here.
    _shared: set[str] = field(default_factory=set, compare=False, repr=False)
    # The nodes as arrays, made when something is first placed, and the nodes that it has not yet seen as they are.
    index: "FleetIndex | None" = field(default=None, compare=False, repr=False)
    touched: set[str] = field(default_factory=set, compare=False, repr=False)
    # The GPU kinds, as of so many nodes.
    _models: tuple[int, frozenset[str]] = field(default=(-1, frozenset()), compare=False, repr=False)
    # A copy, on which things are tried, learns nothing from them.
    learns: bool = field(default=True, compare=False, repr=False)

    def see_node(self, node_id: str, node: Node, *, generation: int | None = None) -> None:
        """Takes in a node as it is now; what is held of it stays held, even of what is gone."""
        known = self.nodes.get(node_id)
        if known is not None and known.node == node and generation in (None, known.generation):
            return
        use = NodeUse(
            id=node_id,
            node=node,
            cpus_free=node.cpus_milli,
            memory_free=node.memory_bytes,
            may_change_mode=self.may_change_mode,
        )
        use.generation = generation if generation is not None else (known.generation if known else 0)
        self.nodes[node_id] = use
        self._models = -1, frozenset()
        self.touched.add(node_id)
        self._shared.discard(node_id)
        for hold in self.holds.values():
            if hold.node_id == node_id:
                _take(use, hold)

    def advance(self, node_id: str) -> int:
        """Raises the generation of a node by one, and returns what it was."""
        use = self._own(node_id)
        use.generation += 1
        return use.generation - 1

    def hold(self, hold: Hold) -> None:
        """Raises OverHeld when a slice can't be held beside what is (`placement.device`), or the node is unknown."""
        if hold.instance_id in self.holds:
            raise OverHeld(f"{hold.instance_id} holds something already")
        use = self.nodes.get(hold.node_id)
        if use is None:
            raise OverHeld(f"{hold.instance_id} can't hold anything of {hold.node_id}: no such node")
        known = {device.uuid: device for device in use.node.devices}
        for uuid, slices in by_device(hold.slices).items():
            if text := objection(use.devices.get(uuid, _EMPTY), uuid, known.get(uuid), slices):
                raise OverHeld(f"{text}: {hold.instance_id} can't hold it")
        self.holds[hold.instance_id] = hold
        _take(self._own(hold.node_id), hold)

    def restore(self, hold: Hold) -> None:
        """Takes in a hold of a node that is known, which is there whatever its devices have become since."""
        self.holds[hold.instance_id] = hold
        _take(self._own(hold.node_id), hold)

    def release(self, instance_id: str) -> None:
        """Gives back what an instance held; nothing if it held nothing."""
        hold = self.holds.pop(instance_id, None)
        if hold is None:
            return
        if self.learns and self.index:
            self.index.appraisal.note(ended=1)
        use = self._own(hold.node_id)
        use.cpus_free += hold.cpus_milli
        use.memory_free += hold.memory_bytes
        for uuid in hold.device_uuids:
            use.devices[uuid].remove(instance_id)
            if not use.devices[uuid].slices:
                del use.devices[uuid]

    def declare_end(self, instance_id: str, until: float | None, *, started_at: float | None = None) -> None:
        """When what is held has started, and must end at the latest, once that is known better."""
        self.holds[instance_id] = replace(self.holds[instance_id], until=until, started_at=started_at)

    def declare_saved(self, instance_id: str, at: float) -> None:
        """Until when its work is saved."""
        self.holds[instance_id] = replace(self.holds[instance_id], checkpointed_at=at)

    def rebuy(self, instance_id: str, purchase: PurchaseOption) -> None:
        """What is held stays held, but is bought otherwise from now on, and draws on no reservation."""
        self.holds[instance_id] = replace(self.holds[instance_id], purchase=purchase, reservation=None)

    def copy(self) -> "World":
        """A world to try things on. It costs little: a node's use is copied once either of the two changes it.

        So a `NodeUse` that was looked up before a change of its node may show what was before.
        """
        self._shared = set(self.nodes)
        return World(
            nodes=dict(self.nodes),
            holds=dict(self.holds),
            may_change_mode=self.may_change_mode,
            _shared=set(self._shared),
            index=self.index.copy() if self.index else None,
            touched=set(self.touched),
            learns=False,
            _models=self._models,
        )

    def _own(self, node_id: str) -> NodeUse:
        """The use of a node, to be changed."""
        use = self.nodes[node_id]
        self.touched.add(node_id)
        if node_id in self._shared:
            self._shared.discard(node_id)
            use = self.nodes[node_id] = use.copy()
        return use

    def models(self) -> frozenset[str]:
        """The GPU kinds that are there."""
        count, models = self._models
        if count != len(self.nodes):
            models = frozenset(device.model for use in self.nodes.values() for device in use.node.devices)
            self._models = len(self.nodes), models
        return models


def _take(use: NodeUse, hold: Hold) -> None:
    use.cpus_free -= hold.cpus_milli
    use.memory_free -= hold.memory_bytes
    for uuid, slices in by_device(hold.slices).items():
        use.devices.setdefault(uuid, DeviceUse()).add(hold.instance_id, slices)


def by_device(slices: Iterable[Slice]) -> dict[str, tuple[Slice, ...]]:
    """Slices by the uuid of the device they lie on."""
    found: dict[str, tuple[Slice, ...]] = {}
    for each in slices:
        found[each.device_uuid] = (*found.get(each.device_uuid, ()), each)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One unit that waits to be placed. `key` is whatever the caller knows it by.

    `duration_s` is the longest it declared to take.
    `bid_nano_h` is as for `Hold`; `reservation` the one that it is to draw on, None for any of its project's.
    """

    key: tuple[str, int, int]  # run id, unit, attempt
    name: str
    ask: Ask
    priority: int
    accepted_at: float
    duration_s: float | None = None
    project: str = "default"
    account: str = ""
    purchase: PurchaseOption = PurchaseOption.ON_DEMAND
    bid_nano_h: int | None = None
    reservation: str | None = None
    migratable: bool = False

    @property
    def order(self) -> tuple[int, float, tuple[str, int, int]]:
        """Sorts the queue: higher priority first, then the older, then by key so that it is the same every time."""
        return -self.priority, self.accepted_at, self.key


def most_bid(bid_nano_h: int | None) -> float:
    """A bid as a number that can be compared: who named none pays whatever it costs."""
    return inf if bid_nano_h is None else bid_nano_h


def in_order(queue: Iterable[Waiting]) -> list[Waiting]:
    return sorted(queue, key=lambda waiting: waiting.order)
