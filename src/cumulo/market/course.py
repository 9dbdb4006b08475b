"""What a job with a deadline does now in a cloud that runs: the cheapest choice that leaves the deadline certain.

The programme (`deadline`) says what each choice is expected to cost. It reckons with time alone; a real job also loses
what it did since it last saved, takes its grace to leave, and waits until room for on-demand is made. The net here
knows of all that, so it decides which choices are safe: those after which the job, having lost spot the moment before
the next decision, still ends in time on on-demand from there on, whatever spot does. On-demand is what is left.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from cumulo.domain.quantities import format_duration
from cumulo.market.deadline import ORDER, Choice, Job, State
from cumulo.market.hazards import Floats

# Rounding must not make what is just feasible late.
_TOLERANCE_S: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a job stands; times in seconds.

    `work_left_s` is what it still has to run if nothing interrupts it, of which `unsaved_s` more would be to do again
    after a preemption. `on` is what it runs on (WAIT: nothing), and makes no progress for another `overhead_left_s`.
    `available`: spot can be had, or is held, and has been so (or not so) for `age_s`. After a preemption it takes
    `leave_s` to leave; a start then takes `restart_s` at most until there is progress, room for on-demand included. It
    is decided again within `react_s`.

    A start takes `start_s` at the least: that much is certain, and tells whether the deadline can still be met.
    """

    left_s: float
    work_left_s: float
    unsaved_s: float
    on: Choice
    overhead_left_s: float
    available: bool
    age_s: float
    restart_s: float
    start_s: float
    leave_s: float
    react_s: float

    @property
    def slack_s(self) -> float:
        """For how long it may go on as it does before only on-demand is left, if it saves nothing meanwhile.

        On spot what is done and not saved may be to do again, so time runs there as it does while waiting.
        """
        need = self.react_s + self.restart_s + self.work_left_s
        return self.left_s - need - (0.0 if self.on is Choice.WAIT else self.leave_s + self.unsaved_s)

    @property
    def needs_s(self) -> float:
        """What it takes on on-demand at the least, if that begins now."""
        return self.work_left_s + (self.start_s if self.on is Choice.WAIT else self.overhead_left_s)

    @property
    def feasible(self) -> bool:
        """Whether on-demand from now on is in time."""
        return self.needs_s <= self.left_s + _TOLERANCE_S

    def safe(self, choice: Choice) -> bool:
        """Whether the deadline is certain after it."""
        if choice is Choice.ON_DEMAND:
            return self.feasible
        if choice is Choice.WAIT:
            return self.on is Choice.WAIT and self.slack_s >= -_TOLERANCE_S
        return self.available and self.slack_after(choice) >= -_TOLERANCE_S

    def slack_after(self, choice: Choice) -> float:
        """The slack once that is chosen: what begins on spot may have to leave it again."""
        return self.slack_s - (self.leave_s if choice is Choice.SPOT and self.on is Choice.WAIT else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What a job does until the next decision, and why in words.

    `slack_s` is for how long spot or waiting may go on; `earliest_s` how soon it can be done on on-demand. Not
    `feasible`: it can't be done in time any more. It `holds_off` where it leaves alone the spot that is there. `cost`
    is what is expected to the end, in the policy's unit; None where it was not reckoned.
    """

    choice: Choice
    why: str
    slack_s: float
    earliest_s: float
    feasible: bool
    holds_off: bool = False
    cost: float | None = None


class Policy(Protocol):
    """What a course is chosen by: a `deadline.DeadlinePolicy`."""

    @property
    def job(self) -> Job:
        """What it was solved for. It may be a larger job: only the time and the work that are left matter."""

    def costs(self, state: State) -> Floats:
        """Expected cost to the end of each choice of `deadline.ORDER`."""


def chart(standing: Standing, policy: Policy | None) -> Course:
    """The course for now. Without a policy, which takes a moment to solve, spot as long as it is safe.

    What runs is never stopped for nothing: waiting is for what does not run.
    """
    costs = _costs(standing, policy) if policy else None
    safe = [choice for choice in ORDER if standing.safe(choice)]
    if not standing.feasible:
        choice = Choice.ON_DEMAND
    elif costs is None:
        cheapest = Choice.SPOT if standing.available else Choice.WAIT
        choice = cheapest if cheapest in safe else Choice.ON_DEMAND
    else:
        choice = min(safe, key=lambda each: costs[each])
    return Course(
        choice=choice,
        why=_why(standing, choice, safe),
        slack_s=standing.slack_after(choice),
        earliest_s=standing.needs_s,
        feasible=standing.feasible,
        holds_off=choice is Choice.WAIT and standing.available,
        cost=costs[choice] if costs else None,
    )


def unknown_work(on: Choice) -> str:
    """Why a job of which nobody knows how long it takes runs on-demand."""
    doing = "runs" if on is Choice.ON_DEMAND else "starts"
    return f"{doing} on-demand until its progress tells how much work is left"


def _costs(standing: Standing, policy: Policy) -> dict[Choice, float]:
    """Expected cost to the end of each choice."""
    job = policy.job
    state = State(
        elapsed_s=job.deadline_s - standing.left_s,
        done_s=job.work_s - standing.work_left_s,
        on=ORDER.index(standing.on),
        overhead_s=standing.overhead_left_s,
        available=standing.available,
        age_s=standing.age_s,
    )
    found = policy.costs(state)
    return dict(zip(ORDER, map(float, np.asarray(found)), strict=True))


def _why(standing: Standing, choice: Choice, safe: list[Choice]) -> str:
    slack = f"{format_duration(max(0.0, standing.slack_after(choice)))} of slack left"
    runs = "runs" if standing.on is choice else "is to run"
    if not standing.feasible:
        return late(standing.work_left_s, standing.left_s, standing.needs_s)
    if choice is Choice.SPOT:
        return f"{runs} on spot: {slack}"
    if choice is Choice.WAIT and standing.available:
        return f"holds off, since spot is likely to be lost again soon: {slack}"
    if choice is Choice.WAIT:
        return f"waits for spot: {slack}"
    if len(safe) == 1:
        return f"{runs} on-demand: no slack is left for spot"
    if standing.available:
        return f"{runs} on-demand: spot is likely to be lost too soon to be worth it"
    return f"{runs} on-demand: waiting for spot is expected to cost more in the end"


def late(work_left_s: float, left_s: float, needs_s: float) -> str:
    """That the deadline can't be met, in words."""
    if work_left_s <= 0:
        return (
            f"can't be done in time: it takes longer than its work was said to, and is {format_duration(-left_s)} late"
        )
    time = f"{format_duration(left_s)} of time" if left_s > 0 else "no time"
    over = format_duration(max(needs_s - left_s, 0.0))
    work = f"{format_duration(work_left_s)} of work"
    return f"can't be done in time: {work} and {time} are left; it is {over} late at the earliest"
