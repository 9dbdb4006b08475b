"""Times, sizes and money in the words people use, and text from others made safe to print."""

from collections.abc import Iterable
from datetime import UTC, datetime

from cumulo.client.answers.runs import Deadline, Instance, Progress, Run
from cumulo.domain.names import printable
from cumulo.domain.quantities import format_duration

DASH = "-"
LONG = 100_000


def now() -> datetime:
    return datetime.now(UTC)


def clean(text: object) -> str:
    """Text that came from a person or a run, without anything that could act on a terminal."""
    return printable(str(text), LONG)


def node(name: str) -> str:
    """A node's id as people say it: its region goes without saying where there is one alone."""
    return clean(name).removeprefix("local/")


def ago(at: datetime | None, *, since: datetime) -> str:
    """`5s`, `3h 20m`: how long before `since`."""
    return format_duration(max(0.0, round((since - at).total_seconds()))) if at else DASH


def seconds_between(begin: datetime | None, end: datetime | None) -> float | None:
    return max(0.0, (end - begin).total_seconds()) if begin and end else None


def age_or_duration(run: Run, *, since: datetime) -> str:
    """How long it has run or ran; how long it has waited if it never started."""
    begin = run.started_at or run.accepted_at
    return ago(begin, since=run.ended_at or since)


def clock(at: datetime | None) -> str:
    """A time of day here, with the date when it isn't today's."""
    if at is None:
        return DASH
    here = at.astimezone()
    today = here.date() == now().astimezone().date()
    return here.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def when(at: datetime | None, *, since: datetime) -> str:
    """`14:05:00 (3m 20s ago)`, `14:05:00 (in 20m 00s)`."""
    if at is None:
        return DASH
    gap = (at - since).total_seconds()
    told = f"in {format_duration(round(gap))}" if gap > 0 else f"{format_duration(round(-gap))} ago"
    return f"{clock(at)} ({told})"


def expected(at: datetime, earliest: datetime | None, latest: datetime | None, *, since: datetime) -> str:
    """`between 14:10 and 15:30, most likely about 14:35 (in 20m 00s)`; the time alone where no range is known."""
    if earliest is None or earliest == latest:
        return when(at, since=since)
    told = f"most likely about {when(at, since=since)}"
    if latest is None:
        return f"not before {clock(earliest)}, {told}"
    return f"between {clock(earliest)} and {clock(latest)}, {told}"


def deadline(given: Deadline, *, since: datetime) -> str:
    """`18:00:00 (in 6h 12m): runs on spot: 1h 50m of slack left; on-demand from 13:40:00 at the latest`."""
    parts = [f"{when(given.at, since=since)}" + (f": {clean(given.text)}" if given.text else "")]
    if given.on_demand_at is not None and given.feasible:
        parts.append(f"on-demand from {clock(given.on_demand_at)} at the latest")
    if given.done_at is not None and not given.feasible:
        parts.append(f"earliest {clock(given.done_at)}")
    if given.expected_cost_usd is not None:
        only = usd(given.on_demand_cost_usd)
        parts.append(f"expected cost {usd(given.expected_cost_usd)} (on-demand only {only})")
    return "; ".join(parts)


def work(given: Deadline) -> str:
    """`3h 10m of 12h 00m left`; "" where nobody knows."""
    if given.work_s is None or given.work_left_s is None:
        return ""
    return f"{format_duration(given.work_left_s)} of {format_duration(given.work_s)} left"


def usd(text: str | float | None) -> str:
    """`$1.27`; four places below one cent, so that small runs do not look free."""
    if text is None:
        return DASH
    amount = float(text)
    return f"${amount:.4f}" if 0 < amount < 0.01 else f"${amount:,.2f}"


def size(count: float | None) -> str:
    """`1.5 GB`, `34 kB`: decimal units, for files and disks."""
    if count is None:
        return DASH
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{int(count)} B"


def gib(count: float | None) -> str:
    """Memory in GiB, as GPU makers write it: `80GB`, `0.5GB`."""
    return DASH if count is None else f"{count:.1f}".removesuffix(".0") + "GB"


def percent(fraction: float | None) -> str:
    return DASH if fraction is None else f"{100 * fraction:.0f}%"


def number(value: float) -> str:
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def progress(run: Run) -> str:
    """`12/50 epochs 24%`; for an array, how many of its indices have ended how."""
    if run.units > 1:
        parts = [f"{run.units_succeeded}/{run.units} done"]
        parts += [f"{run.units_active} running"] if run.units_active else []
        parts += [f"{run.units_failed} failed"] if run.units_failed else []
        return ", ".join(parts)
    return DASH if run.progress is None else progress_text(run.progress)


def progress_text(given: Progress) -> str:
    unit = f" {clean(given.unit)}" if given.unit else ""
    if given.total <= 0:
        return f"{number(given.done)}{unit}"
    fraction = given.done / given.total if given.fraction is None else given.fraction
    return f"{number(given.done)}/{number(given.total)}{unit} {percent(fraction)}"


def progress_more(given: Progress) -> str:
    """Rate, time left and metrics: `1.2/s, 3m 20s left, loss 0.31`; and how far it had come before it went back."""
    parts = []
    if given.furthest > given.done:
        parts.append(f"had come to {number(given.furthest)} before")
    if given.per_s:
        slow = given.per_s < 0.1
        parts.append(f"{number(1 / given.per_s)} s each" if slow else f"{given.per_s:.3g}/s")
    if given.remaining_s is not None:
        parts.append(f"{format_duration(round(given.remaining_s))} left")
    for name, value in list(given.metrics.items())[:4]:
        shown = f"{value:.4g}" if isinstance(value, float | int) else clean(value)
        parts.append(f"{clean(name)} {shown}")
    return ", ".join(parts)


def devices_of(instances: Iterable[Instance]) -> str:
    """`2x A100-80GB (emulated)`, `0.25 of H100-80GB (mps)`, `2 nodes x 1x T4`; "" without any device."""
    counts: dict[str, int] = {}
    for instance in instances:
        if instance.gpus:
            text = clean(instance.gpus) + (" (emulated)" if instance.emulated else "")
            counts[text] = counts.get(text, 0) + 1
    return ", ".join(text if count == 1 else f"{count} nodes x {text}" for text, count in counts.items())


def end_of(run: Run) -> str:
    """How a run ended, in a few words: `failed: exit code 3`."""
    if run.message.startswith("cancelled"):
        return clean(run.message)
    if run.message and run.status != "succeeded":
        return f"{run.status}: {clean(run.message)}"
    if run.status == "failed" and run.exit_code is not None:
        return f"failed: exit code {run.exit_code}"
    if run.status == "failed" and run.reason and run.reason != "failed":
        return f"failed: {clean(run.reason).replace('_', ' ')}"
    return run.status
