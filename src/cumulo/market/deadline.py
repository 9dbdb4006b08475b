"""When a job with a deadline should wait, run on spot or run on-demand: the least expected cost, and never late.

Two parts. A dynamic programme (`programme`) says what each choice is expected to cost, from hazards learnt of the pool.
A safety net allows only choices after which the job still ends in time on on-demand alone, whatever spot does: so a
deadline that is feasible on on-demand is never missed. The problem and its net are those of "Can't Be Late" (Wu et al.,
NSDI 2024); its Uniform Progress rule is what this policy is measured against (docs/spot-policy.md).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

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


class State(NamedTuple):
    """Where jobs stand: numbers, or arrays that broadcast; times in seconds.

    `on` is a number in ORDER, of what a job runs on: one on spot that was preempted is on WAIT. `overhead_s` is what is
    left of a changeover under way; `available` whether spot can be had (or is held) now, `age_s` for how long it has
    been so.
    """

    elapsed_s: ArrayLike
    done_s: ArrayLike
    on: ArrayLike
    overhead_s: ArrayLike
    available: ArrayLike
    age_s: ArrayLike


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
    return DeadlinePolicy(job, programme.solve(terms, hazards))


@dataclass(frozen=True, slots=True)
class DeadlinePolicy:
    """What to do in any state of one job."""

    job: Job
    solved: programme.Programme

    def choose(self, state: State) -> NDArray[np.int64]:
        """The number in ORDER of the choice of each job: the cheapest that is safe."""
        costs = np.where(self.safe(state), self.costs(state), np.inf)
        chosen: NDArray[np.int64] = np.argmin(costs, axis=0)
        # Nothing is safe: it is late already, and on-demand loses the least.
        return np.where(np.isinf(costs.min(axis=0)), programme.ON_DEMAND, chosen)

    def costs(self, state: State) -> Floats:
        """Expected cost to the end of each choice of ORDER, shape (3, jobs)."""
        left = self.job.deadline_s - np.asarray(state.elapsed_s, dtype=np.float64)
        work = self.job.work_s - np.asarray(state.done_s, dtype=np.float64)
        return self.solved.costs(
            left_s=left,
            work_s=work,
            on=state.on,
            overhead_s=state.overhead_s,
            available=state.available,
            age_s=state.age_s,
        )

    def safe(self, state: State) -> NDArray[np.bool_]:
        """Which choices of ORDER leave the deadline certain, shape (3, jobs).

        A choice is safe if the job, having lost spot by the next decision, ends in time on on-demand from there on.
        """
        job = self.job
        left, done, running, overhead, there = np.broadcast_arrays(
            job.deadline_s - np.asarray(state.elapsed_s, dtype=np.float64),
            state.done_s,
            state.on,
            state.overhead_s,
            state.available,
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
