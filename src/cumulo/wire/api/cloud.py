"""The rest of the cloud: nodes and devices, events, use, blobs, tokens, storage, checks."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from cumulo.wire.api.model import Body, Decimal, Model, NamingBody


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


class Offer(Model):
    """Something that can be launched: whole GPUs, MIG instances of a `profile`, or fractions of a GPU.

    One takes `milli` thousandths of a GPU; prices are in USD per hour for one, and an emulated device has none. `free`
    can be had now. `shown_usd_h` is a spot price smoothed, `term_s` how long a reserved one is reserved for. For
    fractions whose size was not asked for, one is a whole GPU, and `free_milli` says how much is free in all.
    `isolation` is hard, capped or none.
    """

    region: str
    gpu: str
    memory_gb: float
    emulated: bool
    mode: str
    profile: str | None
    isolation: str
    milli: int
    purchase: str
    price_usd_h: float | None
    rental_usd_h: float | None
    total: int
    free: int
    free_milli: int
    max_per_node: int
    shown_usd_h: float | None
    term_s: float | None


class Holder(Model):
    """Who holds a slice of a device. `milli` is its share of the device in thousandths.

    Of a MIG instance `profile` says which, and `start` and `size` where it lies on the device's grid.
    """

    run: str
    name: str
    instance: str
    account: str
    mode: str
    milli: int
    memory_bytes: int
    profile: str | None
    start: int | None
    size: int | None


class Device(Model):
    """One accelerator and who holds slices of it. `foreign` says who uses it outside, empty when nobody does.

    `modes` are the sharing modes it can be in, `mode` the one it is in, null while nobody holds anything of it.
    `mig_grid` is the number of memory slices of one that is cut into MIG instances.
    """

    index: int
    uuid: str
    model: str
    memory_gb: float
    emulated: bool
    health: str
    health_reason: str
    modes: list[str]
    mode: str | None
    milli_free: int
    mig_grid: int | None
    holders: list[Holder]
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
    holders: list[Holder]
    foreign: str


class InstanceReading(Model):
    """What an instance uses. `cpu` is how many CPUs it keeps busy, `gpus` what it holds of GPUs, in words."""

    id: str
    run: str
    name: str
    cpu: float
    memory_bytes: int
    processes: int
    gpus: str


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
    name: str | None
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


def _without_default(schema: dict[str, Any]) -> None:
    # A key left out changes nothing, and null does: a client must not send what it was not given.
    schema.pop("default", None)


Days = Annotated[Annotated[float, Field(gt=0, le=36500)] | None, Field(json_schema_extra=_without_default)]


class KeptDays(NamingBody):
    """Days that things are kept; null: for good."""

    events: Days = Field(None, description="from when they happened")
    logs: Days = Field(None, description="from the end of their run")
    blobs: Days = Field(None, description="from the end of the last run that needs them, or their upload")
    idempotency: Days = Field(None, description="keys of submits, from their use")
    environments: Days = Field(None, description="from their last use")
    outputs: Days = Field(None, description="and checkpoints, workdirs and records, from the end of their run")


class StorageChange(Body):
    """What is not named stays as it is."""

    kept_days: KeptDays


class Sweep(Body):
    dry_run: bool = False


class Check(Model):
    name: str
    status: Literal["ok", "warn", "fail", "info"]
    text: str
    hint: str


class Checks(Model):
    checks: list[Check]


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
