"""Where a run could go, why it is where it is, and what waits."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cumulo.client.answers.runs import Deadline


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
    purchase: str = "on-demand"
    max_price_usd_h: float | None = None
    runtime: str | None = None
    max_duration_s: float | None = None
    expected_start: datetime | None = None
    expected_earliest: datetime | None = None
    expected_latest: datetime | None = None
    deadline: Deadline | None = None


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
    """When a run should start: likely at `at`, eight times in ten between the others; or why that can't be told."""

    at: datetime | None = None
    earliest: datetime | None = None
    latest: datetime | None = None
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
    deadline: Deadline | None = None
    last_attempt: str = ""
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
