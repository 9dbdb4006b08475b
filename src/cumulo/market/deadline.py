"""When a job with a deadline should wait, run on spot or run on-demand: the least expected cost, and never late.

Two parts. A dynamic programme (`programme`) says what each choice is expected to cost, from hazards learnt of the pool.
A safety net allows only choices after which the job still ends in time on on-demand alone, whatever spot does: so a
deadline that is feasible on on-demand is never missed. The problem and its net are those of "Can't Be Late" (Wu et al.,
NSDI 2024); its Uniform Progress rule is what this policy is measured against (docs/spot-policy.md).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cumulo.market import programme
from cumulo.market.hazards import Floats, Hazards


class Choice(StrEnum):
    """What a job does until the next decision."""

    WAIT = "wait"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


ORDER: Final = (Choice.WAIT, Choice.ON_DEMAND, Choice.SPOT)
"""Choices by the number that the arrays hold: programme.IDLE, ON_DEMAND, SPOT."""
_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job and what running it costs.

    `work_s` is in all, at the speed of the instance; `deadline_s` from the start. `changeover_s` is the time that a
    start takes without progress, after waiting or preemption; `upgrade_s` that of a change between spot and on-demand
    (None: as long). Prices are per hour, in any one unit. The policy is asked again within `tick_s`.
    """

    work_s: float
    deadline_s: float
    changeover_s: float
    spot: float
    on_demand: float
    tick_s: float
    upgrade_s: float | None = None

    @property
    def change_s(self) -> float:
        return self.changeover_s if self.upgrade_s is None else min(self.upgrade_s, self.changeover_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do until the next decision, the expected cost to the end, and the reason in a sentence.

    Not `feasible`: the deadline can't be met for certain any more, on-demand runs at once and may be late.
    """

    choice: Choice
    expected_cost: float
    why: str
    feasible: bool


def earliest_deadline(job: Job) -> float:
    """Seconds from the start to the earliest deadline that on-demand alone is sure to meet."""
    return job.work_s + job.changeover_s


def solve(job: Job, hazards: Hazards) -> "DeadlinePolicy":
    """The policy for `job` in a pool of these hazards. Solve again when the hazards or the prices are others."""
    terms = programme.Terms(
        horizon_s=job.deadline_s,
        slack_s=max(job.deadline_s - job.work_s, 0.0),
        changeover_s=job.changeover_s,
        upgrade_s=job.change_s,
        spot=job.spot,
        on_demand=job.on_demand,
        tick_s=job.tick_s,
    )
    return DeadlinePolicy(job, hazards, programme.solve(terms, hazards))


@dataclass(frozen=True, slots=True)
class DeadlinePolicy:
    """What to do in any state of one job."""

    job: Job
    hazards: Hazards
    solved: programme.Programme

    def decide(
        self, *, elapsed_s: float, done_s: float, on: Choice, overhead_left_s: float, available: bool, age_s: float
    ) -> Decision:
        """The choice for now.

        `overhead_left_s` is what is left of a changeover under way; `available` whether spot can be had (or is held)
        now, and `age_s` for how long it has been so. A job on spot that was preempted is on Choice.WAIT.
        """
        state = {
            "elapsed_s": elapsed_s,
            "done_s": done_s,
            "on": ORDER.index(on),
            "overhead_left_s": overhead_left_s,
            "available": available,
            "age_s": age_s,
        }
        costs = self.costs(**state)
        safe = self.safe(**state)
        number = int(self.choose(**state))
        left = self.job.deadline_s - elapsed_s
        feasible = bool(safe.any())
        return Decision(
            choice=ORDER[number],
            expected_cost=float(costs[number]),
            why=self._why(number, costs, safe, available, age_s, left - (self.job.work_s - done_s), feasible),
            feasible=feasible,
        )

    def choose(
        self,
        *,
        elapsed_s: ArrayLike,
        done_s: ArrayLike,
        on: ArrayLike,
        overhead_left_s: ArrayLike,
        available: ArrayLike,
        age_s: ArrayLike,
    ) -> NDArray[np.int64]:
        """The number in ORDER of the choice for each job of arrays that broadcast: `decide` for many at once."""
        state = {
            "elapsed_s": elapsed_s,
            "done_s": done_s,
            "on": on,
            "overhead_left_s": overhead_left_s,
            "available": available,
            "age_s": age_s,
        }
        costs = np.where(self.safe(**state), self.costs(**state), np.inf)
        chosen: NDArray[np.int64] = np.argmin(costs, axis=0)
        # Nothing is safe: it is late already, and on-demand loses the least.
        return np.where(np.isinf(costs.min(axis=0)), programme.ON_DEMAND, chosen)

    def costs(
        self,
        *,
        elapsed_s: ArrayLike,
        done_s: ArrayLike,
        on: ArrayLike,
        overhead_left_s: ArrayLike,
        available: ArrayLike,
        age_s: ArrayLike,
    ) -> Floats:
        """Expected cost to the end of each choice of ORDER, shape (3, jobs)."""
        left = self.job.deadline_s - np.asarray(elapsed_s, dtype=np.float64)
        work = self.job.work_s - np.asarray(done_s, dtype=np.float64)
        return self.solved.costs(
            left_s=left, work_s=work, on=on, overhead_s=overhead_left_s, available=available, age_s=age_s
        )

    def safe(
        self,
        *,
        elapsed_s: ArrayLike,
        done_s: ArrayLike,
        on: ArrayLike,
        overhead_left_s: ArrayLike,
        available: ArrayLike,
        age_s: ArrayLike,
    ) -> NDArray[np.bool_]:
        """Which choices of ORDER leave the deadline certain, shape (3, jobs).

        A choice is safe if the job, having lost spot by the next decision, ends in time on on-demand from there on.
        """
        job = self.job
        left, done, running, overhead, there = np.broadcast_arrays(
            job.deadline_s - np.asarray(elapsed_s, dtype=np.float64), done_s, on, overhead_left_s, available
        )
        work = job.work_s - done
        change = np.where(running == programme.IDLE, job.changeover_s, job.change_s)
        # Work that runs keeps its slack, so spot may go at any time; what counts is the delay that a choice may cost.
        # To start on spot there must be slack for the whole changeover, else it would be left before it does any work.
        spot_delay = np.where(running == programme.SPOT, np.minimum(overhead, job.tick_s), change)
        safe = np.empty((3, *left.shape), dtype=bool)
        safe[programme.IDLE] = work + job.changeover_s <= left - job.tick_s + _ROUNDING
        safe[programme.ON_DEMAND] = (
            work + np.where(running == programme.ON_DEMAND, overhead, change) <= left + _ROUNDING
        )
        safe[programme.SPOT] = work + spot_delay + job.changeover_s <= left + _ROUNDING
        safe[programme.SPOT] &= there
        return safe

    def _why(
        self,
        number: int,
        costs: Floats,
        safe: NDArray[np.bool_],
        available: bool,
        age_s: float,
        slack_s: float,
        feasible: bool,
    ) -> str:
        slack = f"{max(slack_s, 0.0) / 3600:.1f} h of slack"
        if not feasible:
            return "the deadline can't be met for certain any more: on-demand at once loses the least time"
        if number == programme.IDLE:
            if available:
                return f"spot has just come back and is likely to be lost soon: {slack} allow waiting"
            hours = self.hazards.back.mean_left(age_s) / 3600
            return f"no spot now, it is expected back in {hours:.1f} h, and {slack} allow waiting"
        if number == programme.SPOT:
            return f"spot is there at {self.job.spot / self.job.on_demand:.0%} of on-demand's price, with {slack}"
        if not (safe[programme.IDLE] or safe[programme.SPOT]):
            return f"only {slack}: nothing but on-demand is sure to meet the deadline"
        if available:
            return f"spot may be lost again too soon to be worth a changeover, with {slack}"
        return f"no spot now, and with {slack} waiting would cost more later"
