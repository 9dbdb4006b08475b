"""What the API answers, as frozen dataclasses in the words of the design.

Times are aware UTC datetimes, memory as the field says (`_bytes`, `_gb` for GiB), durations seconds, money decimal
strings of USD with the exact nano-USD beside them. `decode` reads them, `encode` writes them back.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Who answers at an address, before any token is shown to it."""

    status: str
    version: str = ""
    cloud_id: str = ""
    api: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """Whom the server takes us for."""

    account: str
    project: str = ""
    admin: bool = False
    unix_user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One place where a run could go now or later. Prices in USD per hour, None where there is none."""

    region: str = ""
    node: str = ""
    devices: str = ""
    price_usd_h: float | None = None
    rental_usd_h: float | None = None
    free: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would happen if a run were submitted now."""

    name: str = ""
    kind: str = ""
    ask: str = ""
    units: int = 1
    nodes: int = 1
    satisfiable: bool = True
    starts_now: bool = False
    queue_position: int | None = None
    choices: tuple[Choice, ...] = ()
    problems: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    runtime: str | None = None
    max_duration_s: float | None = None
    expected_start: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run says it is: `done` of `total` `unit`s, at `per_s` a second."""

    done: float = 0.0
    total: float = 0.0
    unit: str = ""
    fraction: float | None = None
    per_s: float | None = None
    remaining_s: float | None = None
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One allocated, metered piece of an attempt on one node."""

    id: str
    unit: int = 0
    attempt: int = 1
    rank: int = 0
    node: str = ""
    state: str = ""
    reason: str | None = None
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    devices: tuple[str, ...] = ()
    device_model: str | None = None
    emulated: bool = False
    accepted_at: datetime | None = None
    placed_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cpus: float | None = None
    memory_gb: float | None = None
    cpu_seconds: float | None = None
    max_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run. In lists `spec` and `instances` are empty; asking for one run fills them (newest 100 instances)."""

    id: str
    name: str
    kind: str = "task"
    status: str = ""
    ask: str = ""
    priority: int = 0
    purchase: str = "on-demand"
    project: str = ""
    account: str = ""
    units: int = 1
    units_active: int = 0
    units_succeeded: int = 0
    units_failed: int = 0
    attempts: int = 0
    exit_code: int | None = None
    reason: str | None = None
    message: str = ""
    placed_on: str = ""
    cost_usd: str = "0"
    rental_usd: str | None = None
    cost_nano: int = 0
    rental_nano: int | None = None
    progress: Progress | None = None
    accepted_at: datetime | None = None
    placed_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    instances: tuple[Instance, ...] = ()

    @property
    def ended(self) -> bool:
        return self.status in ("succeeded", "failed", "cancelled", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One array index of a run, or its only unit."""

    index: int = 0
    status: str = ""
    attempts: int = 0
    exit_code: int | None = None
    reason: str | None = None
    message: str = ""
    accepted_at: datetime | None = None
    placed_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many nodes fail a run for one constraint."""

    constraint: str = ""
    nodes: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """Whether one node would take the run, and if not, why not."""

    node: str = ""
    fits: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A run that stands before ours in the queue."""

    run: str = ""
    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedStart:
    """When a run should start, or in words why that can't be told."""

    at: datetime | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """The smallest change that would start the run now; `change` is keys of the run file."""

    text: str = ""
    change: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedWhy:
    """Why a run ended, with the last lines of its log."""

    text: str = ""
    last_log_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a run is where it is."""

    run: str = ""
    status: str = ""
    summary: str = ""
    binding: str | None = None
    counts: tuple[Count, ...] = ()
    nodes: tuple[NodeVerdict, ...] = ()
    ahead: tuple[Ahead, ...] = ()
    expected_start: ExpectedStart | None = None
    suggestion: Suggestion | None = None
    ended: EndedWhy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One run that waits, in the order in which they are considered."""

    place: int = 0
    run: str = ""
    name: str = ""
    account: str = ""
    kind: str = ""
    ask: str = ""
    priority: int = 0
    accepted_at: datetime | None = None
    waiting_for: str = ""
    expected_start: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something that can be launched. `total` and `free` count devices in the region."""

    region: str = ""
    gpu: str = ""
    memory_gb: float | None = None
    emulated: bool = False
    mode: str = ""
    purchase: str = ""
    price_usd_h: float | None = None
    rental_usd_h: float | None = None
    total: int = 0
    free: int = 0
    max_per_node: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a device."""

    run: str = ""
    name: str = ""
    instance: str = ""
    account: str = ""
    mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator of a node; `foreign` says in words who uses it outside Cumulo."""

    index: int = 0
    uuid: str = ""
    model: str = ""
    memory_gb: float = 0.0
    emulated: bool = False
    health: str = "ok"
    health_reason: str = ""
    held_by: Holder | None = None
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
    held_by: Holder | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReading:
    """What an instance uses now; `cpu` in CPUs."""

    id: str = ""
    run: str = ""
    name: str = ""
    cpu: float | None = None
    memory_bytes: int = 0
    processes: int = 0


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
    gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    cost_usd: str = "0"
    rental_usd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A bill: its rows and their sum."""

    items: tuple[UsageRow, ...] = ()
    total: UsageRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its secret, except in the one answer that creates it (`token`)."""

    id: str
    label: str = ""
    account: str = ""
    project: str = ""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    used_at: datetime | None = None
    revoked_at: datetime | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRow:
    """What one kind of stored thing takes on the server's disk."""

    what: str = ""
    bytes: int = 0
    count: int | None = None
    path: str = ""
    kept_days: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing `doctor` looked at: ok, warn, fail or info."""

    name: str = ""
    status: str = "info"
    text: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogText:
    """A piece of log; it may end in the middle of a line. `cursor` resumes right after it."""

    text: str = ""
    source: str = ""
    unit: int = 0
    attempt: int = 1
    rank: int = 0
    cursor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """The run (or one unit of it) went to another status."""

    status: str = ""
    unit: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is terminal, and all of its log has been given."""

    status: str = ""
    exit_code: int | None = None
    reason: str | None = None
    message: str = ""


LogEvent = LogText | Progress | StatusChange | Ended
