"""The tick rules of the published simulator, for many jobs on one trace at once.

A tick: see whether spot is there; a job on spot where it is not has lost it; choose; a choice that differs from what
the job is on costs a changeover, charged at the new instance's price and without progress; progress and cost of the
tick. (Wu et al., "Can't Be Late", NSDI 2024, and its released simulator.)
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bench.spot.traces import HOUR
from cumulo.market.programme import IDLE, SPOT

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """J jobs in one pool: the tick each starts in, and its deadline and changeover in seconds."""

    start: Ints
    deadline_s: Floats
    changeover_s: Floats
    work_s: float
    on_demand: float

    def __len__(self) -> int:
        return len(self.start)


@dataclass(slots=True)
class State:
    """Where each job is as a tick begins, after spot was looked at. Arrays of J."""

    elapsed_s: Floats
    done_s: Floats
    on: Ints
    overhead_s: Floats
    available: Bools
    age_s: Floats
    running: Bools


class Rule(Protocol):
    """What a policy is to the replay: choices (IDLE, ON_DEMAND, SPOT) for every job."""

    def choose(self, state: State) -> Ints: ...


class Outcome(NamedTuple):
    """Cost relative to running the same job on on-demand, without any changeover; and whether the job was late."""

    cost: Floats
    late: Bools


def replay(available: Bools, gap_s: float, jobs: Jobs, rule: Rule) -> Outcome:
    """Every job to its end. A job that is over its deadline goes on, and is late."""
    ages = spell_ages(available, gap_s)
    count, last = len(jobs), len(available) - 1
    state = State(
        np.zeros(count),
        np.zeros(count),
        np.zeros(count, dtype=np.int64),
        np.zeros(count),
        np.zeros(count, dtype=bool),
        np.zeros(count),
        np.ones(count, dtype=bool),
    )
    cost, tick = np.zeros(count), 0
    price = np.array([0.0, jobs.on_demand, 1.0])
    while state.running.any():
        now = jobs.start + tick
        # Past its end a trace tells nothing, and nothing is what spot then offers.
        state.available = available[np.minimum(now, last)] & (now <= last)
        state.age_s = ages[np.minimum(now, last)]
        lost = (state.on == SPOT) & ~state.available
        state.on, state.overhead_s = np.where(lost, IDLE, state.on), np.where(lost, 0.0, state.overhead_s)
        choice = rule.choose(state)
        assert not (choice[state.running] == SPOT)[~state.available[state.running]].any(), "spot where there is none"
        state.overhead_s = np.where(choice != state.on, jobs.changeover_s * (choice != IDLE), state.overhead_s)
        state.on = choice
        runs = state.running & (choice != IDLE)
        progress = np.where(runs, np.maximum(0.0, gap_s - state.overhead_s), 0.0)
        state.overhead_s = np.where(runs, state.overhead_s - (gap_s - progress), state.overhead_s)
        state.done_s = state.done_s + progress
        cost = cost + runs * price[choice] * (gap_s / HOUR)
        tick += 1
        state.elapsed_s = np.where(state.running, tick * gap_s, state.elapsed_s)
        state.running = state.running & (state.done_s < jobs.work_s - 1e-6)
    return Outcome(cost / (jobs.work_s / HOUR * jobs.on_demand), state.elapsed_s > jobs.deadline_s + 1e-6)


def spell_ages(available: Bools, gap_s: float) -> Floats:
    """For how long spot has been as it is in each tick, counted from the tick in which that was first seen."""
    ticks = np.arange(len(available))
    first = np.concatenate(([True], available[1:] != available[:-1])) if len(available) else np.zeros(0, dtype=bool)
    since: Floats = (ticks - np.maximum.accumulate(np.where(first, ticks, 0))).astype(np.float64) * gap_s
    return since
