"""How a device is shared: its modes, the slice that an instance holds of it, and what that isolates.

A slice of an exclusive device is all of it. A fraction (MPS, time slicing) is told in thousandths of the device
(`milli`) and in bytes of its memory. A MIG slice is one MIG instance: a profile, and where it lies on the memory grid.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, Self

WHOLE_MILLI: Final = 1000


class SharingMode(StrEnum):
    EXCLUSIVE = "exclusive"
    MIG = "mig"  # hardware: own memory, own SMs, own faults
    MPS = "mps"  # caps threads and memory; a fault of one client reaches all of them
    TIMESLICE = "timeslice"  # isolates nothing: takes turns

    @property
    def isolation(self) -> str:
        """What keeps one holder from another: `hard` (hardware), `capped` (limits, but shared faults), or `none`."""
        return "capped" if self is SharingMode.MPS else "none" if self is SharingMode.TIMESLICE else "hard"

    @property
    def fraction(self) -> bool:
        """Whether slices of this mode are told in milli and memory, as many as fit."""
        return self in FRACTION_MODES


# Best first: what a fraction gets where nobody said which.
FRACTION_MODES: Final = (SharingMode.MPS, SharingMode.TIMESLICE)


class Isolation(StrEnum):
    """What an ask accepts. `hard`: only a device of its own, or a MIG instance."""

    ANY = "any"
    HARD = "hard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The part of one device that one instance holds.

    `milli` is its share of the device, by which it is priced (of MIG: the share of the memory grid, rounded up).
    `profile` and `start` (the first memory slice on the grid) are of MIG alone.
    """

    device_uuid: str
    mode: SharingMode = SharingMode.EXCLUSIVE
    milli: int = WHOLE_MILLI
    memory_bytes: int = 0
    profile: str = ""
    start: int | None = None

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "mode": SharingMode(data["mode"])})


def whole_devices(uuids: Iterable[str]) -> tuple[Slice, ...]:
    """All of each device, where no more is known than which they are."""
    return tuple(Slice(device_uuid=uuid) for uuid in uuids)


def described(model: str, slices: tuple[Slice, ...]) -> str:
    """What an instance holds, for people: `2x A100-80GB`, `0.25 of H100-80GB (mps)`, `2x 1g.10gb of H100-80GB`."""
    if not slices:
        return ""
    first = slices[0]
    if first.mode.fraction:
        return f"{first.milli / WHOLE_MILLI:g} of {model} ({first.mode})"
    return f"{len(slices)}x {first.profile} of {model}" if first.profile else f"{len(slices)}x {model}"


def device_uuids(slices: tuple[Slice, ...]) -> tuple[str, ...]:
    """The devices that slices lie on, each once, in order."""
    return tuple(dict.fromkeys(each.device_uuid for each in slices))


def share_milli(slices: tuple[Slice, ...]) -> int:
    """What slices are of devices altogether, in thousandths of one."""
    return sum(each.milli for each in slices)
