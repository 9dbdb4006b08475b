"""Runs as the API answers them: the run itself, its instances, its units, and how far it says it is."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run says it is: `done` of `total` `unit`s, at `per_s` a second."""

    done: float = 0.0
    total: float = 0.0
    unit: str = ""
    fraction: float | None = None
    furthest: float = 0.0
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
    gpus: str = ""
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
class Deadline:
    """How a run stands to its deadline: what it does now (`choice`) and why (`text`); costs are of the whole run."""

    at: datetime
    choice: str = ""
    text: str = ""
    feasible: bool = True
    work_s: float | None = None
    work_left_s: float | None = None
    on_demand_at: datetime | None = None
    done_at: datetime | None = None
    expected_cost_usd: str | None = None
    on_demand_cost_usd: str | None = None


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
    deadline: Deadline | None = None
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
