"""A coarse picture of the cloud, on which a queue can be played fast: rooms, and what asks take of them.

A room is the devices of one kind on one node: how many are wholly free, and what is left of those that are shared.
Where on a device a slice lies, links and scores are left out: they move a start by little, and playing them takes long.
"""

from collections import Counter
from dataclasses import dataclass

from cumulo.domain.ask import Ask
from cumulo.domain.node import NodeState
from cumulo.domain.sharing import WHOLE_MILLI, SharingMode
from cumulo.placement.fit import admitted_kinds, most_by_model, need_of, parts_of
from cumulo.placement.slicing import Part
from cumulo.placement.world import Hold, NodeUse, World


@dataclass(frozen=True, slots=True)
class Room:
    """The devices of one kind on one node, at the start: how many are free, and of the shared ones their mode and what
    is left of each, in milli.
    """

    node: int
    model: str
    memory_bytes: int
    total: int
    whole: int
    modes: tuple[SharingMode, ...]
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Taking:
    """What one instance takes of a room: CPUs and memory at least, and as much as it gets."""

    cpus_least: int
    cpus: int
    memory_least: int
    memory: int
    mode: SharingMode
    milli: int  # of each device, or of the device that is shared


@dataclass(frozen=True, slots=True)
class Shape:
    """What all units with one ask and one declared limit have in common. `takings` are by room: all it may ever use.

    `ask` is a number that tells distinct asks apart.
    """

    ask: int
    nodes: int
    pieces: int
    limit_s: float | None
    takings: dict[int, Taking]


@dataclass(frozen=True, slots=True)
class Held:
    """What one instance holds of one room at the start: whole devices, (shared device, milli), CPUs and memory."""

    room: int
    whole: int
    parts: tuple[tuple[int, int], ...]
    cpus: int
    memory: int


class Floor:
    """The nodes and what is held of them, as every play begins with."""

    def __init__(self, world: World) -> None:
        self.rooms: list[Room] = []
        self.cpus_free: list[int] = []
        self.memory_free: list[int] = []
        self.of_node: list[tuple[int, ...]] = []
        self._uses: list[NodeUse] = []
        self._of_node: dict[str, dict[str, int]] = {}
        self._part: dict[str, int] = {}
        self._asks: dict[Ask, int] = {}
        self._world = world
        for use in world.nodes.values():
            self._add(use)

    def _add(self, use: NodeUse) -> None:
        of_model: dict[str, int] = {}
        for model in sorted({device.model for device in use.node.devices}) or [""]:
            devices = [device for device in use.node.devices if device.model == model]
            whole = 0
            parts: list[int] = []
            modes: list[SharingMode] = []
            for device in devices:
                held = use.held(device)
                if not use.usable(device):
                    continue
                if held.mode is None:
                    whole += 1
                elif held.mode is not SharingMode.EXCLUSIVE:
                    self._part[device.uuid] = len(parts)
                    parts.append(held.milli_free)
                    modes.append(held.mode)
            of_model[model] = len(self.rooms)
            memory = devices[0].memory_bytes if devices else 0
            self.rooms.append(Room(len(self._uses), model, memory, len(devices), whole, tuple(modes), tuple(parts)))
        self._of_node[use.id] = of_model
        self.of_node.append(tuple(of_model.values()))
        self._uses.append(use)
        self.cpus_free.append(use.cpus_free)
        self.memory_free.append(use.memory_free)

    def held(self, hold: Hold) -> list[Held]:
        """What an instance holds, by room."""
        of_model = self._of_node[hold.node_id]
        use = self._uses[self.rooms[next(iter(of_model.values()))].node]
        kinds = {device.uuid: device.model for device in use.node.devices if use.usable(device)}
        whole: Counter[int] = Counter()
        parts: dict[int, list[tuple[int, int]]] = {}
        for each in hold.slices:
            if each.device_uuid in self._part:
                room = of_model[kinds[each.device_uuid]]
                parts.setdefault(room, []).append((self._part[each.device_uuid], each.milli))
            elif each.device_uuid in kinds:
                whole[of_model[kinds[each.device_uuid]]] += 1
        rooms = sorted(whole.keys() | parts.keys()) or [next(iter(of_model.values()))]
        return [
            Held(
                room,
                whole[room],
                tuple(parts.get(room, ())),
                hold.cpus_milli if room == rooms[0] else 0,
                hold.memory_bytes if room == rooms[0] else 0,
            )
            for room in rooms
        ]

    def shape(self, ask: Ask, limit_s: float | None) -> Shape:
        kinds = admitted_kinds(ask.gpu, self._world) if ask.gpu else None
        gpus = ask.gpu.count_min if ask.gpu else 0
        takings = {}
        for use in self._uses:
            parts = parts_of(use, ask, kinds, gpus)
            if use.node.state is not NodeState.READY or (gpus and not parts):
                continue
            node = use.node
            full, empty = NodeUse(id="", node=node), NodeUse(id="", node=node)
            empty.cpus_free, empty.memory_free = node.cpus_milli, node.memory_bytes
            least, most = need_of(full, ask, parts, gpus), need_of(empty, ask, parts, gpus)
            if least.cpus_milli > node.cpus_milli or least.memory_bytes > node.memory_bytes:
                continue
            enough = most_by_model(parts)
            for model, room in self._of_node[use.id].items():
                part = next((part for part in parts if part.device.model == model), None)
                if gpus and (part is None or enough[model] < gpus):
                    continue
                takings[room] = Taking(
                    least.cpus_milli,
                    most.cpus_milli,
                    least.memory_bytes,
                    most.memory_bytes,
                    SharingMode.EXCLUSIVE if part is None else part.slice.mode,
                    0 if part is None else _share(part),
                )
                if not gpus:
                    break  # any room of the node speaks for its CPUs
        return Shape(self._asks.setdefault(ask, len(self._asks)), ask.nodes, gpus, limit_s, takings)


def _share(part: Part) -> int:
    """What a slice takes of a device, so that no more fit on an empty one than the driver allows."""
    milli = part.slice.milli
    return max(milli, -(-WHOLE_MILLI // part.most)) if part.slice.mode is SharingMode.MIG else milli
