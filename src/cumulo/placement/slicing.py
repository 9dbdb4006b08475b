"""Which slices of a node's devices an ask would take: all of a device, a fraction of one, or MIG instances.

Fractions go where the least is left over (best fit), and parts of any kind to devices that are shared already before
they open an empty one, so that whole devices stay free for those who need them.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from cumulo.catalog.mig import MigLayout, MigProfile, mig_layout
from cumulo.domain.ask import GpuAsk
from cumulo.domain.node import Device
from cumulo.domain.sharing import FRACTION_MODES, WHOLE_MILLI, SharingMode, Slice
from cumulo.placement.device import DeviceUse, mig_spots, mig_starts
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
        return len(_take_mig(part, held, part.most))
    return max(0, share_free(use, part.device)) // part.slice.milli


def share_free(use: NodeUse, device: Device) -> int:
    """Thousandths of a device that are free, both of its time and of its memory."""
    held = use.held(device)
    memory_free = device.memory_bytes - held.memory_bytes
    return min(held.milli_free, memory_free * WHOLE_MILLI // max(1, device.memory_bytes))


def take(use: NodeUse, parts: list[Part], count: int) -> tuple[Slice, ...] | None:
    """`count` of the slices, on devices of one kind that have room for them, by device; None if there is too little."""
    fitting = [part for part in parts if room(use, part)]
    if fitting and fitting[0].slice.mode.fraction:
        fitting.sort(key=lambda part: (use.empty(part.device), share_free(use, part.device) - part.slice.milli))
    elif fitting and fitting[0].slice.mode is SharingMode.MIG:
        fitting.sort(key=lambda part: (use.empty(part.device), use.held(part.device).milli_free))
    taken: list[tuple[int, Slice]] = []
    for part in fitting:
        left = count - len(taken)
        if left <= 0:
            break
        mig = part.slice.mode is SharingMode.MIG
        slices = _take_mig(part, use.held(part.device), left) if mig else [part.slice]
        taken += [(part.device.index, each) for each in slices]
    taken.sort(key=lambda placed: (placed[0], placed[1].start or 0))
    return tuple(each for _, each in taken) if len(taken) == count else None


def _take_mig(part: Part, held: DeviceUse, count: int) -> list[Slice]:
    """Up to `count` instances of the profile on one device, each where it costs the others the least."""
    layout = mig_layout(part.device.model)
    profile = layout.profile(part.slice.profile) if layout else None
    if layout is None or profile is None:
        return []
    there = list(held.instances())
    taken: list[Slice] = []
    while len(taken) < count and (starts := mig_starts(layout, profile, there)):
        best = min(starts, key=lambda start: (_lost(layout, there, (profile.name, start)), start))
        taken.append(replace(part.slice, start=best))
        there += mig_spots(taken[-1:])
    return taken


def _lost(layout: MigLayout, there: list[tuple[str, int]], new: tuple[str, int]) -> int:
    """How many places for instances, of every profile, are gone once `new` lies there too."""
    after = [*there, new]
    return -sum(len(mig_starts(layout, profile, after)) for profile in layout.profiles)
