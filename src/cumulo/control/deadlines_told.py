"""What people are told of a deadline: at submission, in a plan, and while the run goes on."""

from dataclasses import replace
from datetime import UTC, datetime
from math import inf

from cumulo.control import deadlines_facts as facts
from cumulo.control.answers import Deadline
from cumulo.control.live import Charted, LiveRun
from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import RunStatus
from cumulo.domain.quantities import format_duration
from cumulo.domain.run import RunSpec
from cumulo.market.deadline import Choice


def check_deadline(spec: RunSpec, now: float) -> None:
    """Raises CumuloError invalid_run_file for a deadline that is past, or that on-demand at once could not meet."""
    if spec.deadline_at is None:
        return
    left_s = spec.deadline_at - now
    if left_s <= 0:
        raise _refused(f"it was {format_duration(-left_s)} ago", hint="give a later one")
    if spec.work_s is None:
        return
    parallel = (spec.array and spec.array.parallel) or spec.units()
    work_s = spec.work_s * -(-spec.units() // parallel)
    least_s = work_s + facts.least_start(None)
    if least_s > left_s:
        earliest = datetime.fromtimestamp(now + least_s, UTC).isoformat(timespec="seconds")
        time = format_duration(round(left_s))
        text = f"{format_duration(work_s)} of work can't be done in {time}, even on-demand from now on"
        hint = f"the earliest is in {format_duration(least_s)}: give --deadline {least_s:.0f}s or later"
        raise _refused(text, hint=hint, earliest=earliest)


def _refused(text: str, *, hint: str, **details: str) -> CumuloError:
    return CumuloError("invalid_run_file", f"deadline: {text}", hint=hint, details={"path": ["deadline"], **details})


def deadline_of(run: LiveRun) -> Deadline | None:
    """How a run stands to its deadline; of an array the index that is in the most danger. None without a deadline."""
    at = run.spec.deadline_at
    if at is None:
        return None
    if not run.charted:
        text = "is not decided before the runs that it comes after have ended" if run.waits_for else ""
        return Deadline(at=at, text=text, work_s=run.spec.work_s, work_left_s=run.spec.work_s)
    worst = min(run.charted.values(), key=lambda each: (each.course.feasible, each.course.slack_s))
    return told_of(worst, at, spent_nano=run.cost_nano if run.spec.array is None else None)


def over(at: float, status: str, ended_at: float | None) -> Deadline:
    """How a run that is over met its deadline."""
    early_s = at - (at if ended_at is None else ended_at)
    when = f"{format_duration(abs(early_s))} {'before' if early_s >= 0 else 'after'} it"
    return Deadline(at=at, text=f"{status} {when}", feasible=early_s >= 0 and status == RunStatus.SUCCEEDED)


def told_of(charted: Charted, at: float, *, spent_nano: int | None) -> Deadline:
    """What was decided, as an answer. `spent_nano`: what it has cost so far; None: costs are not told."""
    course, price = charted.course, charted.on_demand_nano_h
    known = charted.work_left_s is not None
    begins = course.choice is not Choice.ON_DEMAND and course.slack_s > -inf
    told = Deadline(
        at=at,
        choice=str(course.choice),
        text=course.why,
        feasible=course.feasible,
        work_s=charted.work_s,
        work_left_s=charted.work_left_s,
        on_demand_at=charted.at + max(0.0, course.slack_s) if begins else None,
        done_at=charted.at + course.earliest_s if known else None,
    )
    if spent_nano is None or not price or not known or course.cost is None:
        return told
    # On-demand alone from now on; what was spent is spent either way.
    alone_nano = spent_nano + round(course.earliest_s * price / 3600)
    return replace(told, expected_cost_nano=spent_nano + round(course.cost * price), on_demand_cost_nano=alone_nano)
