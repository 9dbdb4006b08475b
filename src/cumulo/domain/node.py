"""Hosts and their devices, as an engine observes them and as placement sees them."""

from dataclasses import dataclass, field
from enum import StrEnum

from cumulo.domain.sharing import SharingMode


class NodeState(StrEnum):
    READY = "ready"
    UNREACHABLE = "unreachable"  # does not answer: nothing of it is lost before its lease runs out
    DRAINING = "draining"
    DOWN = "down"


class DeviceHealth(StrEnum):
    OK = "ok"
    DEGRADED = "degraded"
    DRAINING = "draining"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator of a node. `model` is a catalogue kind (`A100-80GB`), or the driver's name where unknown.

    `modes` are what its node can enforce on it, the one that it is in while nobody holds it first.
    """

    uuid: str
    index: int
    model: str
    memory_bytes: int
    emulated: bool = False
    numa_node: int | None = None
    health: DeviceHealth = DeviceHealth.OK
    health_reason: str = ""
    modes: tuple[SharingMode, ...] = (SharingMode.EXCLUSIVE,)
    foreign: str = ""  # who else uses it, in words; empty when nobody does


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One host. `name` is unique within its engine; CPUs and memory are what may be given to instances."""

    name: str
    cpus_milli: int
    memory_bytes: int
    devices: tuple[Device, ...] = ()
    address: str = "127.0.0.1"
    emulated: bool = False
    state: NodeState = NodeState.READY
    state_reason: str = ""
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes of one shape in a region that may grow or shrink between `least` and `most`."""

    name: str
    shape: str
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """What a device is doing now. None where the backend can't tell."""

    uuid: str
    memory_used_bytes: int | None = None
    utilisation: float | None = None  # 0.0 to 1.0
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReading:
    """What an instance uses now, as the node measures it."""

    instance_id: str
    memory_bytes: int
    cpu_seconds: float  # since it started
    cpus_busy: float  # now: how many CPUs it keeps busy
    processes: int
