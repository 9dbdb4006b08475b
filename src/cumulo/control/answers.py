"""What the control plane answers when asked to plan, to explain and to list. Data for the API, in domain's words."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Somewhere a run could go: prices are nano-USD per hour for all its nodes; None where there is no price."""

    region: str
    node: str
    devices: str
    price_nano_h: int
    rental_nano_h: int | None
    free: int  # how many such asks fit there now


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """How a run stands to its deadline. Times are epoch seconds; None where that can't be told.

    `choice` is what it does now (`wait`, `spot`, `on-demand`; "" while that is not decided) and `text` why. On-demand
    begins at `on_demand_at` at the latest, and it is done at `done_at` at the earliest. Costs are of the whole run.
    """

    at: float
    choice: str = ""
    text: str = ""
    feasible: bool = True
    work_s: float | None = None
    work_left_s: float | None = None
    on_demand_at: float | None = None
    done_at: float | None = None
    expected_cost_nano: int | None = None
    on_demand_cost_nano: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would happen if the run were submitted now."""

    name: str
    kind: str
    ask: str
    units: int
    nodes: int
    satisfiable: bool
    starts_now: bool
    queue_position: int
    choices: tuple[Choice, ...] = ()
    problems: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    purchase: str = "on-demand"
    max_price_nano_h: int | None = None
    runtime: str | None = None
    max_duration_s: float | None = None
    expected_start: float | None = None
    expected_from: float | None = None
    expected_to: float | None = None
    expected_text: str = ""
    deadline: Deadline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many nodes fail a constraint, in words too."""

    constraint: str
    nodes: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    node: str
    fits: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A run that is before this one, waiting or holding what it needs."""

    run_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The smallest change with which a run would start now: `change` maps keys of the run file to new values."""

    text: str
    change: dict[str, str | int | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a run is where it is."""

    run_id: str
    status: str
    summary: str
    binding: str | None = None
    counts: tuple[Count, ...] = ()
    nodes: tuple[NodeAnswer, ...] = ()
    ahead: tuple[Ahead, ...] = ()
    expected_start: float | None = None
    expected_from: float | None = None
    expected_to: float | None = None
    expected_text: str = ""
    suggestion: Change | None = None
    deadline: Deadline | None = None
    last_attempt: str = ""  # what became of it, in a sentence
    ended: str | None = None
    last_log_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A run that waits, in the order in which placement tries them."""

    place: int
    run_id: str
    name: str
    account: str
    kind: str
    ask: str
    priority: int
    accepted_at: float
    waiting_for: str
    expected_start: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something that can be launched: so many of a GPU kind, or of one kind of its slices, in a region at a price.

    One takes `milli` of a GPU and has `memory_bytes`; `free` could be had now, `total` if nothing were held,
    `max_per_node` of those on one node. For fractions of a size that is not said, `milli` is a whole GPU, `free` counts
    the GPUs with some room and `free_milli` is all that room. `shown_nano_h` is a spot price smoothed, `term_s` how
    long a reserved one is reserved for.
    """

    region: str
    gpu: str
    memory_bytes: int
    emulated: bool
    mode: str
    profile: str
    isolation: str
    purchase: str
    milli: int
    price_nano_h: int
    rental_nano_h: int | None
    total: int
    free: int
    free_milli: int
    max_per_node: int
    shown_nano_h: int | None = None
    term_s: float | None = None
