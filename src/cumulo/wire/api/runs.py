"""Runs: submitted, planned, listed, looked at, explained, queued."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from cumulo.wire.api.model import Body, Decimal, Model
from cumulo.wire.run_file import RunFile


class Submission(Body):
    """A run file; `queue` accepts an ask that no node could satisfy today."""

    run: RunFile
    queue: bool = False


class Choice(Model):
    """A place where the run could go. Prices are USD per hour of the whole run; null: none is known."""

    region: str
    node: str
    devices: str
    price_usd_h: float | None
    rental_usd_h: float | None
    free: int


class Deadline(Model):
    """How a run stands to its deadline. `choice` (wait, spot, on-demand) is what it does now and `text` why.

    On-demand begins at `on_demand_at` at the latest, `done_at` is the earliest end; costs are of the whole run.
    """

    at: datetime
    choice: str
    text: str
    feasible: bool
    work_s: float | None
    work_left_s: float | None
    on_demand_at: datetime | None
    done_at: datetime | None
    expected_cost_usd: Decimal | None
    on_demand_cost_usd: Decimal | None


class Plan(Model):
    """What would happen if the run were submitted now."""

    name: str
    kind: str
    ask: str
    units: int
    nodes: int
    satisfiable: bool
    starts_now: bool
    queue_position: int
    choices: list[Choice]
    problems: list[str]
    suggestions: list[str]
    warnings: list[str]
    purchase: str
    max_price_usd_h: float | None
    runtime: str | None
    max_duration_s: float | None
    expected_start: datetime | None
    expected_earliest: datetime | None
    expected_latest: datetime | None
    expected_text: str
    deadline: Deadline | None


class Progress(Model):
    """How far a run says it is. `fraction`, rate and time left are null where they can't be told.

    `furthest` is more than `done` where an attempt began further back than the one before had come.
    """

    done: float
    total: float
    unit: str
    fraction: float | None
    furthest: float
    per_s: float | None
    remaining_s: float | None
    metrics: dict[str, float | str]


class RunRow(Model):
    """A run in a list. `attempts` is that of the unit with the most; costs grow while it runs."""

    id: str
    name: str
    kind: Literal["task", "dev", "service"]
    status: str
    ask: str
    priority: int
    purchase: str
    project: str
    account: str
    units: int
    units_active: int
    units_succeeded: int
    units_failed: int
    attempts: int
    exit_code: int | None
    reason: str | None
    message: str
    placed_on: str
    cost_usd: Decimal
    rental_usd: Decimal
    cost_nano: int
    rental_nano: int
    progress: Progress | None
    accepted_at: datetime
    placed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None


class Instance(Model):
    """One allocated piece of an attempt. `unit` is the array index; `devices` are uuids."""

    id: str
    unit: int
    attempt: int
    rank: int
    node: str
    state: str
    reason: str | None
    message: str
    exit_code: int | None
    signal: int | None
    devices: list[str]
    device_model: str
    gpus: str
    emulated: bool
    accepted_at: datetime
    placed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    cpus: float
    memory_gb: float
    cpu_seconds: float | None
    max_memory_bytes: int | None


class SpecSummary(Model):
    """What was asked for. Environment variables by name only: their values are nobody's business in an answer."""

    command: str
    setup: str
    requirements: list[str]
    env: list[str]
    workdir: str | None
    file_mounts: dict[str, str]
    mounts: list[str]
    runtime: str | None
    array: str | None
    after: list[str]
    max_duration_s: float | None
    grace_s: float
    max_attempts: int
    max_price_usd_h: float | None
    reservation: str | None


class Run(RunRow):
    """One run. `spec` is told to its owner and to admins; `instances` are the newest hundred."""

    spec: SpecSummary | None
    deadline: Deadline | None
    instances: list[Instance]


class Change(Body):
    """What is wanted of a run. `unit` is an array index; only cancelling takes one."""

    wanted: Literal["cancelled", "stopped", "running"]
    grace_s: Annotated[float, Field(ge=0, le=3600)] | None = None
    unit: Annotated[int, Field(ge=0)] | None = None


class Unit(Model):
    index: int
    status: str
    attempts: int
    exit_code: int | None
    reason: str | None
    message: str
    placed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None


class Count(Model):
    constraint: str
    nodes: int
    text: str


class NodeVerdict(Model):
    node: str
    fits: bool
    text: str


class Ahead(Model):
    run: str
    name: str
    text: str


class ExpectedStart(Model):
    """When a queued run is expected to start: eight times in ten between `earliest` and `latest`, as often before `at`
    as after it. Null where it can't be told; `text` says on what it rests, or why nobody can tell.
    """

    at: datetime | None
    earliest: datetime | None
    latest: datetime | None
    text: str


class Suggestion(Model):
    """The smallest change that would start the run now: in words, and as keys of the run file."""

    text: str
    change: dict[str, Any]


class EndedWhy(Model):
    text: str
    last_log_lines: list[str]


class Why(Model):
    """Why a run stands where it stands. `binding` names the constraint that holds a queued run back."""

    run: str
    status: str
    summary: str
    binding: str | None
    counts: list[Count]
    nodes: list[NodeVerdict]
    ahead: list[Ahead]
    expected_start: ExpectedStart | None
    suggestion: Suggestion | None
    deadline: Deadline | None
    last_attempt: str
    ended: EndedWhy | None


class QueueRow(Model):
    place: int
    run: str
    name: str
    account: str
    kind: str
    ask: str
    priority: int
    accepted_at: datetime
    waiting_for: str
    expected_start: datetime | None


class RunPage(Model):
    items: list[RunRow]
    next: str | None


class UnitPage(Model):
    items: list[Unit]
    next: str | None


class InstancePage(Model):
    items: list[Instance]
    next: str | None


class QueuePage(Model):
    items: list[QueueRow]
    next: str | None


class Names(Model):
    """Names of runs, for completion."""

    items: list[str]
