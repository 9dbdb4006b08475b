"""What there is, what it does, what happened, and what it cost."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something that can be launched: whole GPUs, MIG instances of a `profile`, or fractions.

    One takes `milli` of a GPU; `total` and `free` count them in the region. For fractions of a size that was not asked
    for, they count GPUs with room, and `free_milli` is all that room.
    """

    region: str = ""
    gpu: str = ""
    memory_gb: float | None = None
    emulated: bool = False
    mode: str = ""
    profile: str | None = None
    isolation: str = ""
    milli: int = 1000
    purchase: str = ""
    price_usd_h: float | None = None
    rental_usd_h: float | None = None
    total: int = 0
    free: int = 0
    free_milli: int = 0
    max_per_node: int = 0
    shown_usd_h: float | None = None
    term_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a slice of a device: `milli` of it, of a MIG instance memory slices `start` to `start + size - 1`."""

    run: str = ""
    name: str = ""
    instance: str = ""
    account: str = ""
    mode: str = ""
    milli: int = 1000
    memory_bytes: int = 0
    profile: str | None = None
    start: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator of a node; `foreign` says in words who uses it outside Cumulo.

    `mode` is None while nobody holds anything of it; `mig_grid` counts the memory slices of one cut into MIG instances.
    """

    index: int = 0
    uuid: str = ""
    model: str = ""
    memory_gb: float = 0.0
    emulated: bool = False
    health: str = "ok"
    health_reason: str = ""
    modes: tuple[str, ...] = ()
    mode: str | None = None
    milli_free: int = 1000
    mig_grid: int | None = None
    holders: tuple[Holder, ...] = ()
    foreign: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One host: what it has and what is free of it."""

    id: str = ""
    region: str = ""
    name: str = ""
    state: str = ""
    state_reason: str = ""
    emulated: bool = False
    address: str = ""
    cpus: float = 0.0
    cpus_free: float = 0.0
    memory_gb: float = 0.0
    memory_free_gb: float = 0.0
    devices: tuple[Device, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """What a device does now; None where its backend can't tell. Utilisation is 0.0 to 1.0."""

    node: str = ""
    index: int = 0
    uuid: str = ""
    model: str = ""
    emulated: bool = False
    memory_used_bytes: int | None = None
    memory_bytes: int = 0
    utilisation: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    holders: tuple[Holder, ...] = ()
    foreign: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReading:
    """What an instance uses now; `cpu` in CPUs."""

    id: str = ""
    run: str = ""
    name: str = ""
    cpu: float | None = None
    memory_bytes: int = 0
    processes: int = 0
    gpus: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """One look at everything that is measured."""

    at: datetime | None = None
    devices: tuple[DeviceReading, ...] = ()
    instances: tuple[InstanceReading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An immutable fact. `seq` orders all of them."""

    seq: int
    at: datetime | None = None
    kind: str = ""
    run: str | None = None
    instance: str | None = None
    node: str | None = None
    account: str | None = None
    project: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one run, account or project used, and what it cost."""

    key: str = ""
    name: str | None = None
    gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    cost_usd: str = "0"
    rental_usd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A bill: its rows and their sum."""

    items: tuple[UsageRow, ...] = ()
    total: UsageRow | None = None
