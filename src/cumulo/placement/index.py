"""A world's nodes as the rows of a fleet, kept in step with it, and where an ask would best go among them.

The index belongs to a world and follows it node by node. It learns what the cloud is asked for (`expect`), so that the
choice weighs what it takes from those who come next; a copy of a world chooses by what was learnt, and learns nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from cumulo.catalog.kinds import resolve
from cumulo.domain.ask import DEFAULT_CPUS_MILLI, DEFAULT_MEMORY_BYTES, Ask, GpuAsk
from cumulo.domain.node import Device, NodeState
from cumulo.domain.sharing import WHOLE_MILLI, SharingMode
from cumulo.placement.fleet.appraisal import Appraisal, capacity_of
from cumulo.placement.fleet.chooser import WORTH_COMPILING, Chooser, compiled_kernels
from cumulo.placement.fleet.losses import NEVER, Asked
from cumulo.placement.fleet.mix import AskShape
from cumulo.placement.fleet.rows import CLOSED, EMPTY, MPS, TIMESLICE, Kind, Row, Rows
from cumulo.placement.slicing import fraction_mode, share_free
from cumulo.placement.world import NodeUse, World

_NO_DEVICES: Final = Kind("", 0, ())
_MODES: Final = {SharingMode.MPS: MPS, SharingMode.TIMESLICE: TIMESLICE}
# Labels of a node that say how near it is to others, the nearest first.
LOCALITY: Final = ("link-domain", "rack", "zone")


class Spot(NamedTuple):
    """Where one instance goes: a node, the kind of GPU taken there ("" for none), and the device of a fraction."""

    node_id: str
    model: str
    device: Device | None = None


def index_of(world: World) -> "FleetIndex":
    """The index of a world as it is now."""
    if world.index is None:
        world.index = FleetIndex(world, Appraisal())
    world.index.follow(world)
    return world.index


def expect(world: World, ask: Ask) -> None:
    """Tells the world that such an ask came, so that the next choices reckon with more of its like."""
    if ask.gpu is None or ask.gpu.mig_profile is None:
        index_of(world).expect(ask)


class FleetIndex:
    """The rows of a world's nodes, and the asks it was asked to place by number."""

    def __init__(self, world: World, appraisal: Appraisal) -> None:
        self.appraisal = appraisal
        self._make(world)

    def _make(self, world: World) -> None:
        self._devices: list[tuple[Device, ...]] = []
        self._nodes: list[str] = []
        self._rows_of: dict[str, range] = {}
        # Nodes with devices of one model that differ in memory or modes: too rare for rows, they are walked.
        self.odd = frozenset(node_id for node_id, use in world.nodes.items() if _odd(use))
        found = {kind for use in world.nodes.values() for kind in _by_kind(use)} | {_NO_DEVICES}
        self._kinds = {kind: number for number, kind in enumerate(sorted(found))}
        rows: list[Row] = []
        for node_id in sorted(world.nodes):
            use = world.nodes[node_id]
            made = self._rows(use)
            self._rows_of[node_id] = range(len(rows), len(rows) + len(made))
            rows += made
            self._nodes += [node_id] * len(made)
            self._devices += list(_by_kind(use).values())
        self.rows = Rows(tuple(self._kinds), rows)
        self._capacity, self._most = capacity_of(self.rows), self.rows.state.free.shape[1]
        kernels = compiled_kernels() if len(rows) >= WORTH_COMPILING else None
        worth = self.appraisal.worth(self._capacity, self._most)
        self.chooser = Chooser(self.rows, worth, tolerance=self.appraisal.tolerance, kernels=kernels)
        self._numbers: dict[tuple[Ask, int], tuple[int, ...]] = {}
        world.touched.clear()

    def copy(self) -> "FleetIndex":
        """The same for a copy of the world."""
        twin = object.__new__(FleetIndex)
        twin.appraisal, twin._devices, twin._nodes = self.appraisal, list(self._devices), self._nodes
        twin._rows_of, twin._kinds, twin._capacity, twin._most = self._rows_of, self._kinds, self._capacity, self._most
        twin.rows = self.rows.copy()
        twin.chooser = self.chooser.copy(twin.rows)
        twin._numbers, twin.odd = self._numbers, self.odd  # the chooser numbers asks alike for both
        return twin

    def follow(self, world: World) -> None:
        """Takes in what changed in the world since the last time."""
        if len(world.nodes) != len(self._rows_of):
            self._make(world)
            return
        for node_id in sorted(world.touched):
            use, known = world.nodes.get(node_id), self._rows_of.get(node_id)
            if use is None or known is None or not self._fits(known, kinds := _by_kind(use)):
                self._make(world)
                return
            for row, made, devices in zip(known, self._rows(use), kinds.values(), strict=True):
                self.rows.refresh(row, made)
                self._devices[row] = devices
        world.touched.clear()

    def _fits(self, rows: range, kinds: Mapping[Kind, tuple[Device, ...]]) -> bool:
        """Whether a node's rows are still those of these kinds and numbers of devices."""
        return len(rows) == len(kinds) and all(
            self._kinds.get(kind) == self.rows.state.kind[row] and len(devices) == len(self._devices[row])
            for row, (kind, devices) in zip(rows, kinds.items(), strict=True)
        )

    def expect(self, ask: Ask) -> None:
        """Counts an ask; now and then works out anew what the fleet's room is worth."""
        shape, memory = self._shape(ask)
        self.appraisal.note(placed=ask.nodes)
        if self.appraisal.see(shape, memory):
            worth = self.appraisal.review(self._capacity, self._most)
            self.chooser.value_by(worth, tolerance=self.appraisal.tolerance)

    def warm(self, ask: Ask, gpus: int, kinds: frozenset[str] | None) -> None:
        """Works out what an ask costs everywhere."""
        for number in self._known(ask, gpus, kinds):
            self.chooser.losses(number)

    def best(self, ask: Ask, gpus: int, kinds: frozenset[str] | None) -> Spot | None:
        """Where one instance with `gpus` GPUs of those kinds (None: any) goes now."""
        picks = [(self.chooser.pick(number), number) for number in self._known(ask, gpus, kinds)]
        there = [(pick.loss, number, pick) for pick, number in picks if pick is not None]
        if not there:
            return None
        _, _, pick = min(there)
        return self._spot(pick.row, pick.device, gpus)

    def cost(self, ask: Ask, gpus: int, kinds: frozenset[str] | None) -> int | None:
        """What one instance costs where it costs the least, in micro-devices; None where it fits nowhere."""
        least = [int(self.chooser.losses(number).min(initial=NEVER)) for number in self._known(ask, gpus, kinds)]
        return min((loss for loss in least if loss != NEVER), default=None)

    def gang(self, ask: Ask, gpus: int, kinds: frozenset[str] | None, world: World) -> list[Spot] | None:
        """Where `ask.nodes` instances go, a node each, all of one kind, as near to one another as can be.

        Ranks follow the places: neighbours in rank are neighbours in the rack.
        """
        best: tuple[tuple[int, ...], int, list[tuple[int, int]]] | None = None
        for number in self._known(ask, gpus, kinds):
            losses, kind_of = self.chooser.losses(number), self.rows.state.kind
            rows = np.flatnonzero(losses != NEVER)
            for kind in np.unique(kind_of[rows]) if gpus else [None]:
                alike = rows if kind is None else rows[kind_of[rows] == kind]
                if len(alike) < ask.nodes:
                    continue
                near = {row: self._near(world, row) for row in alike[np.argsort(losses[alike], kind="stable")].tolist()}
                chosen = _together(near, ask.nodes)
                spread = tuple(len({near[row][level] for row in chosen}) for level in range(len(LOCALITY)))
                loss = int(losses[chosen].sum())
                found = [(row, self.chooser.device(number, row)) for row in chosen]
                if best is None or (spread, loss) < best[:2]:
                    best = spread, loss, found
        return None if best is None else [self._spot(row, device, gpus) for row, device in best[2]]

    def _near(self, world: World, row: int) -> tuple[str, ...]:
        """Where a row's node stands, in the order of LOCALITY; "" where it does not say."""
        labels = world.nodes[self._nodes[row]].node.labels
        return tuple(labels.get(label, "") for label in LOCALITY)

    def _spot(self, row: int, device: int, gpus: int) -> Spot:
        chosen = self._devices[row][device] if device >= 0 else None
        model = self._devices[row][0].model if gpus and self._devices[row] else ""
        return Spot(self._nodes[row], model, chosen)

    def _known(self, ask: Ask, gpus: int, kinds: frozenset[str] | None) -> tuple[int, ...]:
        """The numbers of an ask: one for each mode in which its fraction may be shared here."""
        known = self._numbers.get((ask, gpus))
        if known is None:
            asked = self._asked(ask, gpus, kinds)
            known = self._numbers[ask, gpus] = tuple(self.chooser.learn(each) for each in asked)
        return known

    def _asked(self, ask: Ask, gpus: int, kinds: frozenset[str] | None) -> list[Asked]:
        cpus, memory = ask.cpus_milli, ask.memory_bytes
        if ask.gpu is None or not gpus:
            cpus = DEFAULT_CPUS_MILLI if cpus is None else cpus
            memory = DEFAULT_MEMORY_BYTES if memory is None else memory
            return [Asked(0, np.zeros(len(self._kinds), dtype=np.int16), cpus, memory, EMPTY)]
        milli = {kind: _milli(kind, ask.gpu, kinds) for kind in self._kinds}
        modes = {each for each, _ in milli.values() if each is not None}
        return [
            Asked(
                gpus,
                np.array([each if its == mode else 0 for its, each in milli.values()], dtype=np.int16),
                -1 if cpus is None else cpus,
                -1 if memory is None else memory,
                mode,
            )
            for mode in sorted(modes)
        ]

    def _shape(self, ask: Ask) -> tuple[AskShape, int]:
        """What the mix counts an ask as, and its memory. A default share is that of the average device it may go to."""
        gpu = ask.gpu
        if gpu is None:
            return (
                AskShape(0, (0,) * len(self._kinds), ask.cpus_milli or DEFAULT_CPUS_MILLI),
                ask.memory_bytes or DEFAULT_MEMORY_BYTES,
            )
        kinds = _named(gpu, self._kinds)
        milli = tuple(_milli(kind, gpu, kinds)[1] for kind in self._kinds)
        there = np.array([bool(each) for each in milli]) * self._capacity.devices
        share = gpu.count_min * max(milli, default=0) / WHOLE_MILLI / max(1.0, there.sum())
        cpus = ask.cpus_milli
        if cpus is None:
            # More than any one node has is not given either (`fit.need_of`).
            most = (self._capacity.node_cpus * (there > 0)).max(initial=0.0)
            cpus = int(min(share * (self._capacity.cpus * (there > 0)).sum(), most))
        memory = ask.memory_bytes
        if memory is None:
            memory = int(share * (self._capacity.memory * (there > 0)).sum())
        return AskShape(gpu.count_min, milli, cpus), memory

    def _rows(self, use: NodeUse) -> list[Row]:
        ready = use.node.state is NodeState.READY and use.id not in self.odd
        return [
            Row(
                kind=self._kinds[kind],
                node_cpus=use.node.cpus_milli,
                node_memory=use.node.memory_bytes,
                node_devices=len(use.node.devices),
                devices=tuple(_free(use, device) for device in devices),
                cpus=use.cpus_free,
                memory=use.memory_free,
                ready=ready,
                first=place == 0,
            )
            for place, (kind, devices) in enumerate(_by_kind(use).items())
        ]


def _by_kind(use: NodeUse) -> dict[Kind, tuple[Device, ...]]:
    """The devices of a node by kind; one kind without devices where it has none, or is odd."""
    found: dict[Kind, tuple[Device, ...]] = {}
    for device in use.node.devices:
        kind = Kind(device.model, device.memory_bytes, use.modes(device))
        found[kind] = (*found.get(kind, ()), device)
    return {_NO_DEVICES: ()} if not found or _odd(use) else found


def _odd(use: NodeUse) -> bool:
    """Whether a node has devices of one model that differ in what an ask may name."""
    kinds = {(device.model, device.memory_bytes, use.modes(device)) for device in use.node.devices}
    return len(kinds) > len({model for model, _, _ in kinds})


def _free(use: NodeUse, device: Device) -> tuple[int, int]:
    """What is free of a device, in thousandths, and how it is shared."""
    if not use.usable(device):
        return 0, CLOSED
    if use.empty(device):
        return WHOLE_MILLI, EMPTY
    mode = _MODES.get(use.held(device).mode or SharingMode.EXCLUSIVE)
    return (0, CLOSED) if mode is None else (max(0, share_free(use, device)), mode)


def _milli(kind: Kind, gpu: GpuAsk, kinds: frozenset[str] | None) -> tuple[int | None, int]:
    """How an ask would share devices of a kind, and what it takes of each; (None, 0) where the kind won't do."""
    if not kind.model or (kinds is not None and kind.model not in kinds) or not gpu.admits_memory(kind.memory_bytes):
        return None, 0
    modes = tuple(SharingMode(mode) for mode in kind.modes)
    if not gpu.fraction:
        return (EMPTY, WHOLE_MILLI) if SharingMode.EXCLUSIVE in modes else (None, 0)
    mode, milli = fraction_mode(modes, gpu), gpu.milli_of(kind.memory_bytes)
    return (None, 0) if mode is None or milli > WHOLE_MILLI else (_MODES[mode], milli)


def _named(gpu: GpuAsk, kinds: Iterable[Kind]) -> frozenset[str] | None:
    """The models that an ask names, of those that are there; None for any."""
    if not gpu.names:
        return None
    present = frozenset(kind.model for kind in kinds)
    return frozenset[str]().union(*(resolve(name, present=present) for name in gpu.names))


def _together(near: Mapping[int, tuple[str, ...]], count: int) -> list[int]:
    """`count` of the rows, which come cheapest first with where each stands, as near to one another as can be."""
    neighbourhoods: list[list[int]] = []
    for level in range(len(LOCALITY)):
        groups: dict[str, list[int]] = {}
        for row, places in near.items():
            if places[level]:
                groups.setdefault(places[level], []).append(row)
        enough = [group for group in groups.values() if len(group) >= count]
        if enough:
            # The one that the gang fills best, so that larger ones stay whole; of equals the cheapest.
            return sorted(min(enough, key=len)[:count])
        neighbourhoods = neighbourhoods or sorted(groups.values(), key=lambda group: -len(group))
    found = [row for group in neighbourhoods for row in group]
    return (found + [row for row in near if row not in set(found)])[:count]
