"""What the API takes and answers, as OpenAPI tells it. The URLs stand in one table: `cumulo.server.routes`.

Bodies are checked against these models. Answers are written by `cumulo.server.render` as plain data, since building a
model for each row would cost more than the query; tests hold every answer against its model here.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cumulo.wire.run_file import RunFile

Decimal = Annotated[str, Field(pattern=r"^\d+\.\d{2,9}$", description="USD as a decimal number")]


class Model(BaseModel):
    """Everything that travels: unknown keys are an error on both sides."""

    model_config = ConfigDict(extra="forbid")


class Body(Model):
    """What comes in: a number is a number, and `true` is none."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Problem(Model):
    """A failure (RFC 9457). `code` is stable and is what programs should look at."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    details: dict[str, Any]


class Health(Model):
    """Who answers here, before any token is shown."""

    status: Literal["ok"]
    version: str
    cloud_id: str
    api: Literal["v1"]


class Me(Model):
    account: str
    project: str
    admin: bool
    unix_user: str | None


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
    runtime: str | None
    max_duration_s: float | None
    expected_start: datetime | None
    expected_text: str


class Progress(Model):
    """How far a run says it is. `fraction`, rate and time left are null where they can't be told."""

    done: float
    total: float
    unit: str
    fraction: float | None
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


class Run(RunRow):
    """One run. `spec` is told to its owner and to admins; `instances` are the newest hundred."""

    spec: SpecSummary | None
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
    """When a queued run is expected to start; `at` null: it can't be told, and `text` says why."""

    at: datetime | None
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


class Offer(Model):
    """Something that can be launched. Prices in USD per hour for one GPU; an emulated device has none."""

    region: str
    gpu: str
    memory_gb: float
    emulated: bool
    mode: str
    purchase: str
    price_usd_h: float | None
    rental_usd_h: float | None
    total: int
    free: int
    max_per_node: int


class Holder(Model):
    run: str
    name: str
    instance: str
    account: str
    mode: str


class Device(Model):
    """One accelerator. `foreign` says who else uses it, empty when nobody does."""

    index: int
    uuid: str
    model: str
    memory_gb: float
    emulated: bool
    health: str
    health_reason: str
    held_by: Holder | None
    foreign: str


class Node(Model):
    id: str
    region: str
    name: str
    state: str
    state_reason: str
    emulated: bool
    address: str
    cpus: float
    cpus_free: float
    memory_gb: float
    memory_free_gb: float
    devices: list[Device]
    labels: dict[str, str]


class DeviceReading(Model):
    """What a device is doing; null where its backend can't tell. `utilisation` is 0 to 1."""

    node: str
    index: int
    uuid: str
    model: str
    emulated: bool
    memory_used_bytes: int | None
    memory_bytes: int
    utilisation: float | None
    temperature_c: float | None
    power_w: float | None
    held_by: Holder | None


class InstanceReading(Model):
    """What an instance uses. `cpu` is CPU seconds since it started."""

    id: str
    run: str
    name: str
    cpu: float
    memory_bytes: int
    processes: int


class Telemetry(Model):
    at: datetime
    devices: list[DeviceReading]
    instances: list[InstanceReading]


class Event(Model):
    seq: int
    at: datetime
    kind: str
    run: str | None
    instance: str | None
    node: str | None
    account: str
    project: str
    message: str


class UsageRow(Model):
    key: str
    gpu_seconds: float
    cpu_seconds: float
    cost_usd: Decimal
    rental_usd: Decimal
    cost_nano: int
    rental_nano: int


class Usage(Model):
    items: list[UsageRow]
    total: UsageRow


class DigestList(Body):
    digests: Annotated[list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]], Field(max_length=50_000)]


class Missing(Model):
    missing: list[str]


class Stored(Model):
    stored: int


class NewToken(Body):
    """For another account: admins only."""

    label: Annotated[str, Field(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$")]
    account: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    expires_in_s: Annotated[float, Field(gt=0, le=10 * 365 * 86400)] | None = None


class Token(Model):
    """A token as it may be shown: never its secret."""

    id: str
    label: str
    account: str
    project: str
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


class CreatedToken(Model):
    """The only answer that ever holds a token's text."""

    id: str
    label: str
    account: str
    token: str
    expires_at: datetime | None


class StorageRow(Model):
    what: str
    bytes: int | None
    count: int
    path: str
    kept_days: float | None


class StorageRows(Model):
    items: list[StorageRow]


class Sweep(Body):
    dry_run: bool = False


class Check(Model):
    name: str
    status: Literal["ok", "warn", "fail", "info"]
    text: str
    hint: str


class Checks(Model):
    checks: list[Check]


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


class NodePage(Model):
    items: list[Node]
    next: str | None


class EventPage(Model):
    items: list[Event]
    next: str | None


class TokenPage(Model):
    items: list[Token]
    next: str | None


class Offers(Model):
    items: list[Offer]


class Names(Model):
    """Names of runs, for completion."""

    items: list[str]
