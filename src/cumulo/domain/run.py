"""What a person launches, once read and checked: a frozen `RunSpec`. The YAML people write is `cumulo.wire`'s."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.sharing import Isolation, SharingMode


class RunKind(StrEnum):
    TASK = "task"  # ends by itself
    DEV = "dev"  # a server to work on: stays until stopped, may start again
    SERVICE = "service"  # stays and scales


class PurchaseOption(StrEnum):
    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"


DEFAULT_GRACE_S: Final = 30.0
MAX_ARRAY: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """Indices `first..last` by `step`; at most `parallel` of them at once (None: as many as fit)."""

    first: int
    last: int
    step: int = 1
    parallel: int | None = None

    def __len__(self) -> int:
        return (self.last - self.first) // self.step + 1

    def index(self, place: int) -> int:
        """The array index at `place` (0-based) of the array. Raises IndexError past the end."""
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self.first + place * self.step

    @property
    def canonical(self) -> str:
        step = f":{self.step}" if self.step != 1 else ""
        return f"{self.first}-{self.last}{step}" + (f"%{self.parallel}" if self.parallel else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a unit gets another attempt. `on_events` from: interruption, error, lost."""

    on_events: frozenset[str] = frozenset({"interruption", "lost"})
    max_attempts: int = 3
    backoff_s: float = 5.0

    def delay(self, attempts: int) -> float:
        """Seconds to wait before the next attempt, doubling from `backoff_s`, at most an hour."""
        return min(3600.0, self.backoff_s * 2.0 ** min(32, max(0, attempts - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMount:
    """Uploaded files that appear at `target` (relative to the workdir, or absolute inside a sandbox)."""

    target: str
    manifest: str  # digest of the manifest blob


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """A run as accepted. Everything here is kept for as long as the run is."""

    name: str
    kind: RunKind = RunKind.TASK
    ask: Ask = field(default_factory=Ask)
    command: str = ""
    setup: str = ""
    requirements: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    workdir: str | None = None  # digest of the manifest blob
    file_mounts: tuple[FileMount, ...] = ()
    mounts: tuple[str, ...] = ()
    runtime: str | None = None  # process or sandbox; None: the best this node has
    array: Array | None = None
    priority: int = 0
    after: tuple[str, ...] = ()  # ids of runs that must succeed first
    max_duration_s: float | None = None
    grace_s: float = DEFAULT_GRACE_S
    retry: Retry | None = None
    purchase: PurchaseOption = PurchaseOption.ON_DEMAND
    max_price_nano_h: int | None = None  # the bid of a spot run for a whole GPU; None: whatever on-demand costs
    reservation: str | None = None  # id of the reservation that a reserved run draws on
    deadline_at: float | None = None  # epoch seconds by which it is to be done, at the least cost
    work_s: float | None = None  # what it needs to run, all attempts together; None: learnt from its progress
    migratable: bool = False  # may be stopped and placed elsewhere to make room for another
    progress_regex: str | None = None
    project: str = "default"

    def units(self) -> int:
        return len(self.array) if self.array else 1


def to_wire(spec: RunSpec) -> dict[str, Any]:
    """Plain values that JSON can carry; `from_wire` gives the same spec back."""
    values = asdict(spec)
    if spec.retry:
        values["retry"]["on_events"] = sorted(spec.retry.on_events)
    return values


def from_wire(data: dict[str, Any]) -> RunSpec:
    """Reads what `to_wire` wrote. Keys added in later versions get their defaults."""
    values = dict(data)
    ask = dict(values["ask"])
    gpu = ask["gpu"]
    ask["gpu"] = _gpu_from_wire(gpu) if gpu else None
    ask["isolation"] = Isolation(ask.get("isolation", Isolation.ANY))
    values["ask"] = Ask(**ask)
    values["kind"] = RunKind(values["kind"])
    values["purchase"] = PurchaseOption(values["purchase"])
    values["array"] = Array(**values["array"]) if values["array"] else None
    if retry := values["retry"]:
        values["retry"] = Retry(**{**retry, "on_events": frozenset(retry["on_events"])})
    values["file_mounts"] = tuple(FileMount(**mount) for mount in values["file_mounts"])
    for name in ("requirements", "mounts", "after"):
        values[name] = tuple(values[name])
    return RunSpec(**values)


def _gpu_from_wire(data: dict[str, Any]) -> GpuAsk:
    sharing = data.get("sharing")
    return GpuAsk(**{**data, "names": tuple(data["names"]), "sharing": SharingMode(sharing) if sharing else None})
