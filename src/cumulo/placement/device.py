"""What is held of one device, and whether a slice may be added to it: the rules of each sharing mode.

A device is in one mode at a time, that of the slices held of it, and in none while it is empty. Whatever the mode, what
is held never exceeds the device.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from cumulo.catalog.mig import MigLayout, mig_layout
from cumulo.domain.node import Device
from cumulo.domain.sharing import WHOLE_MILLI, SharingMode, Slice
from cumulo.placement.mig import IllegalLayout, layout_table


@dataclass(slots=True)
class DeviceUse:
    """The slices held of one device, by instance, and their sums."""

    slices: dict[str, tuple[Slice, ...]] = field(default_factory=dict)
    milli: int = 0
    memory_bytes: int = 0

    @property
    def mode(self) -> SharingMode | None:
        """The mode the device is in; None while nothing is held of it."""
        return next((held[0].mode for held in self.slices.values()), None)

    @property
    def milli_free(self) -> int:
        return WHOLE_MILLI - self.milli

    @property
    def holders(self) -> tuple[str, ...]:
        """The instances that hold something of it, sorted."""
        return tuple(sorted(self.slices))

    def instances(self) -> tuple[tuple[str, int], ...]:
        """The MIG instances that lie on it, as (profile, start)."""
        return tuple(mig_spots(each for held in self.slices.values() for each in held))

    def add(self, instance_id: str, slices: tuple[Slice, ...]) -> None:
        """Takes slices of this device without asking whether they may be held."""
        self.slices[instance_id] = (*self.slices.get(instance_id, ()), *slices)
        self.milli += sum(each.milli for each in slices)
        self.memory_bytes += sum(each.memory_bytes for each in slices)

    def remove(self, instance_id: str) -> None:
        """Gives back all that an instance holds of this device."""
        slices = self.slices.pop(instance_id)
        self.milli -= sum(each.milli for each in slices)
        self.memory_bytes -= sum(each.memory_bytes for each in slices)

    def copy(self) -> "DeviceUse":
        return DeviceUse(dict(self.slices), self.milli, self.memory_bytes)


def objection(use: DeviceUse, uuid: str, device: Device | None, new: tuple[Slice, ...]) -> str:
    """Why the slices `new` can't be held of a device beside what is; empty when they can.

    Of a device that its node does not have (any more), None, nothing but the modes of its slices is known.
    """
    mode = new[0].mode
    if use.slices and SharingMode.EXCLUSIVE in (mode, use.mode):
        return f"device {uuid} is held by {', '.join(use.holders)}"
    if {each.mode for each in new} != {use.mode or mode}:
        return f"device {uuid} is in mode {use.mode or mode}, and in one mode at a time"
    if mode is SharingMode.EXCLUSIVE:
        return "" if len(new) == 1 else f"device {uuid} is taken twice"
    if device is None:
        return ""
    if mode is SharingMode.MIG:
        return _mig_objection(use, device, new)
    if use.milli + sum(each.milli for each in new) > WHOLE_MILLI:
        return f"{use.milli_free} of {WHOLE_MILLI} milli of device {uuid} are free"
    if use.memory_bytes + sum(each.memory_bytes for each in new) > device.memory_bytes:
        return f"{device.memory_bytes - use.memory_bytes} of {device.memory_bytes} bytes of device {uuid} are free"
    return ""


def _mig_objection(use: DeviceUse, device: Device, new: tuple[Slice, ...]) -> str:
    layout = mig_layout(device.model)
    if layout is None:
        return f"device {device.uuid} is a {device.model}, which has no MIG"
    there = list(use.instances())
    for profile, start in mig_spots(new):
        if layout.profile(profile) is None:
            return f"device {device.uuid} is a {device.model}, which has no MIG profile {profile}"
        if start not in mig_starts(layout, profile, there):
            lie = ", ".join(f"{name} at {at}" for name, at in sorted(there, key=lambda spot: spot[1]))
            return f"a {profile} can't lie at {start} of device {device.uuid}, where lie: {lie or 'none'}"
        there.append((profile, start))
    return ""


def mig_spots(slices: Iterable[Slice]) -> list[tuple[str, int]]:
    """MIG slices as (profile, start)."""
    return [(each.profile, each.start) for each in slices if each.start is not None]


def mig_starts(layout: MigLayout, profile: str, there: Iterable[tuple[str, int]]) -> tuple[int, ...]:
    """Where an instance of `profile` may lie beside those `there`; nowhere where those contradict each other."""
    table = layout_table(layout)
    try:
        return table.starts(table.state(there), table.profile(profile))
    except IllegalLayout:
        return ()
