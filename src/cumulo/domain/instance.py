"""Instances as they cross the border between the control plane and an engine: data only, nothing but plain values.

Everything here can be written as JSON and read back unchanged (`to_wire`, `from_wire`), since an engine may live in
another process or on another machine.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.domain.sharing import Slice, device_uuids, whole_devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The Unix account an instance runs as. `uid` None: whoever the engine itself runs as."""

    name: str
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    home: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec:
    """All an engine needs to start one instance. Ids name things that outlive it: run, unit, attempt.

    `files` are (target, manifest digest) pairs; the target "." is the workdir. `peers` are the addresses of all
    instances of the attempt in rank order. `hazard` is how likely the node is taken back: (age in seconds from which it
    holds, per second), ages rising from 0; empty where nobody knows.
    """

    instance_id: str
    cloud_id: str
    run_id: str
    run_name: str
    project: str
    unit: int
    attempt: int
    rank: int
    node: str
    slices: tuple[Slice, ...]
    cpus_milli: int
    memory_bytes: int
    identity: Identity
    command: str
    setup: str = ""
    requirements: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    files: tuple[tuple[str, str], ...] = ()
    mounts: tuple[str, ...] = ()
    runtime: str | None = None
    dev: bool = False
    grace_s: float = 30.0
    max_duration_s: float | None = None
    peers: tuple[str, ...] = ("127.0.0.1",)
    master_port: int = 29500
    array_index: int | None = None
    hazard: tuple[tuple[float, float], ...] = ()

    @property
    def device_uuids(self) -> tuple[str, ...]:
        """The devices that its slices are of, each once."""
        return device_uuids(self.slices)

    def to_wire(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {"identity": asdict(self.identity), "slices": [each.to_wire() for each in self.slices]}

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Self:
        values = dict(data)
        identity = dict(values["identity"])
        identity["groups"] = tuple(identity["groups"])
        values["identity"] = Identity(**identity)
        if "device_uuids" in values:  # written before devices could be shared
            values["slices"] = whole_devices(values.pop("device_uuids"))
        else:
            values["slices"] = tuple(map(Slice.from_wire, values["slices"]))
        for name in ("requirements", "mounts", "peers"):
            values[name] = tuple(values[name])
        values["files"] = tuple((target, digest) for target, digest in values["files"])
        values["hazard"] = tuple((age_s, per_s) for age_s, per_s in values.get("hazard", ()))
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedInstance:
    """What an engine saw of one instance. Times are epoch seconds; None where it has not happened.

    `cloud_id` differing from ours marks it foreign. `log_bytes` is how much log there is to fetch.
    """

    instance_id: str
    cloud_id: str
    state: InstanceState
    node: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: EndReason | None = None
    message: str = ""
    log_bytes: int = 0
    slices: tuple[Slice, ...] | None = None  # what it holds, where the engine knows
    max_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    progress: str | None = None  # the last progress line the run wrote, as it wrote it
    checkpoint: str | None = None  # the last such line that tells of saved work

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Self:
        values = dict(data)
        values["state"] = InstanceState(values["state"])
        values["reason"] = EndReason(values["reason"]) if values["reason"] else None
        slices = values["slices"]
        values["slices"] = None if slices is None else tuple(map(Slice.from_wire, slices))
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look at an engine. Absence of an instance counts only if `complete` and `as_of` (epoch seconds) is later
    than the write that the absence would contradict.
    """

    instances: tuple[ObservedInstance, ...]
    complete: bool
    as_of: float


class InstanceParts(NamedTuple):
    """What an instance's id says."""

    run_id: str
    unit: int
    attempt: int
    rank: int


def parse_instance_id(text: str) -> InstanceParts:
    """Raises ValueError for what is no instance's id."""
    run_id, unit, attempt, rank = text.split("-")
    return InstanceParts(run_id, int(unit), int(attempt), int(rank))


def instance_id(run_id: str, unit: int, attempt: int, rank: int) -> str:
    """The id of an instance says whose it is, so that placing the same attempt twice is refused by the store's key."""
    return f"{run_id}-{unit}-{attempt}-{rank}"
