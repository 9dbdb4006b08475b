"""Which slices of a node's devices an ask would take: all of a device, a fraction of one, or MIG instances.

Fractions go where the least is left over (best fit), and parts of any kind to devices that are shared already before
they open an empty one, so that whole devices stay free for those who need them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cumulo.catalog.mig import MigLayout, MigProfile, mig_layout
from cumulo.domain.ask import GpuAsk
from cumulo.domain.node import Device
from cumulo.domain.sharing import FRACTION_MODES, WHOLE_MILLI, SharingMode, Slice
from cumulo.placement.mig import IllegalLayout, MigTable, layout_table
from cumulo.placement.world import NodeUse


class Part(NamedTuple):
    """A device, and what one of the slices asked for would be of it (without the start of a MIG instance).

    `most` is how many such slices an empty device takes.
    """

    device: Device
    slice: Slice
    most: int


def part_of(use: NodeUse, device: Device, gpu: GpuAsk) -> Part | None:
    """What the ask would take of this device, whoever holds it now; None if it can't be shared so."""
    modes = use.modes(device)
    if gpu.mig_profile is not None:
        return _mig_part(device, gpu.mig_profile) if SharingMode.MIG in modes else None
    if gpu.fraction:
        mode, milli = fraction_mode(modes, gpu), gpu.milli_of(device.memory_bytes)
        if mode is None or milli > WHOLE_MILLI:
            return None
        memory = gpu.slice_memory or device.memory_bytes * milli // WHOLE_MILLI
        return Part(device, Slice(device_uuid=device.uuid, mode=mode, milli=milli, memory_bytes=memory), 1)
    if SharingMode.EXCLUSIVE not in modes:
        return None
    return Part(device, Slice(device_uuid=device.uuid, memory_bytes=device.memory_bytes), 1)


def fraction_mode(modes: Iterable[SharingMode], gpu: GpuAsk) -> SharingMode | None:
    """The mode a fraction gets on a device that offers `modes`: the one asked for, else the best there is."""
    wanted = FRACTION_MODES if gpu.sharing is None else (gpu.sharing,)
    return next((mode for mode in wanted if mode in modes), None)


def _mig_part(device: Device, name: str) -> Part | None:
    layout = mig_layout(device.model)
    profile = layout.profile(name) if layout else None
    return mig_part(device, layout, profile) if layout and profile else None


def mig_part(device: Device, layout: MigLayout, profile: MigProfile) -> Part:
    """One MIG instance of the device. Its share is that of the memory grid."""
    share = -(-profile.memory_slices * WHOLE_MILLI // layout.grid_size)
    memory = profile.memory_bytes or device.memory_bytes * profile.memory_slices // layout.grid_size
    taken = Slice(device_uuid=device.uuid, mode=SharingMode.MIG, milli=share, memory_bytes=memory, profile=profile.name)
    return Part(device, taken, profile.max_instances)


def room(use: NodeUse, part: Part) -> int:
    """How many such slices the device takes now, if it is usable."""
    held = use.held(part.device)
    if held.mode not in (None, part.slice.mode):
        return 0
    if part.slice.mode is SharingMode.EXCLUSIVE:
        return int(held.mode is None)
    if part.slice.mode is SharingMode.MIG:
        return _mig_room(use, part)
    return max(0, share_free(use, part.device)) // part.slice.milli


def _mig_room(use: NodeUse, part: Part) -> int:
    cut, count = _cut_of(use, part), 0
    while cut is not None and cut.start >= 0:
        cut.add()
        count += 1
    return count


def share_free(use: NodeUse, device: Device) -> int:
    """Thousandths of a device that are free, both of its time and of its memory."""
    held = use.held(device)
    memory_free = device.memory_bytes - held.memory_bytes
    return min(held.milli_free, memory_free * WHOLE_MILLI // max(1, device.memory_bytes))


def take(use: NodeUse, parts: list[Part], count: int) -> tuple[Slice, ...] | None:
    """`count` of the slices, on devices of one kind that have room for them, by device; None if there is too little."""
    if parts and parts[0].slice.mode is SharingMode.MIG:
        return _take_mig(use, parts, count)
    fitting = [part for part in parts if room(use, part)]
    if fitting and fitting[0].slice.mode.fraction:
        fitting.sort(key=lambda part: (use.empty(part.device), share_free(use, part.device) - part.slice.milli))
    else:
        fitting = _together(fitting, count)
    taken = sorted(fitting[:count], key=lambda part: part.device.index)
    return tuple(part.slice for part in taken) if len(fitting) >= count else None


def _together(parts: list[Part], count: int) -> list[Part]:
    """Whole devices in the order in which to take `count` of them: those of the NUMA node they fill best come first.

    Where no NUMA node has as many, those of the fullest ones do, so that as few as can be are spanned.
    """
    by_numa: dict[int | None, list[Part]] = {}
    for part in parts:
        by_numa.setdefault(part.device.numa_node, []).append(part)
    groups = sorted(by_numa.values(), key=len)
    first = next((group for group in groups if len(group) >= count), [])
    rest = [part for group in reversed(groups) if group is not first for part in group]
    return first + rest


def _take_mig(use: NodeUse, parts: list[Part], count: int) -> tuple[Slice, ...] | None:
    """Instance after instance where it takes the least worth from a device (`cumulo.placement.mig`).

    A device that is not cut yet comes after those that are: all of it can still be had as it is.
    """
    cuts = [cut for part in parts if (cut := _cut_of(use, part)) is not None]
    for _ in range(count):
        best = min((cut for cut in cuts if cut.start >= 0), key=_Cut.cost, default=None)
        if best is None:
            return None
        best.add()
    return tuple(each for cut in cuts for each in sorted(cut.taken, key=lambda one: one.start or 0))


@dataclass(slots=True)
class _Cut:
    """A device on which instances of one profile are being placed: its state in the table of its kind."""

    part: Part
    table: MigTable
    profile: int
    state: int
    cut: bool
    taken: list[Slice] = field(default_factory=list)

    @property
    def start(self) -> int:
        """The best start for one more, -1 where none is left."""
        return int(self.table.best_start[self.state, self.profile])

    def cost(self) -> tuple[bool, float, int]:
        return not self.cut, float(self.table.loss[self.state, self.profile]), self.part.device.index

    def add(self) -> None:
        start = self.start
        self.taken.append(replace(self.part.slice, start=start))
        self.state, self.cut = self.table.state_after(self.state, self.profile, start), True


def _cut_of(use: NodeUse, part: Part) -> _Cut | None:
    """None where nothing can be cut: the device is held otherwise, or what lies on it contradicts its table."""
    held, layout = use.held(part.device), mig_layout(part.device.model)
    if layout is None or held.mode not in (None, SharingMode.MIG):
        return None
    table = layout_table(layout)
    try:
        state = table.state(held.instances())
    except IllegalLayout:
        return None
    return _Cut(part, table, table.profile(part.slice.profile), state, bool(held.slices))
