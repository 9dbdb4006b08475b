"""Published policies, as they were released: Greedy, Time Sliced and Uniform Progress, with their safety net.

Wu et al., "Can't Be Late", NSDI 2024. Times are counted in whole ticks, as in the released simulator.
"""

from dataclasses import dataclass

import numpy as np

from bench.spot.ticks import Floats, Ints, Jobs, State
from cumulo.market.programme import IDLE, ON_DEMAND, SPOT

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Greedy:
    """Spot where it is, else wait; on-demand once nothing else is sure to meet the deadline."""

    jobs: Jobs
    gap_s: float

    def choose(self, state: State) -> Ints:
        wanted = np.where(state.available, SPOT, IDLE)
        return _net(wanted, state, self.jobs.work_s, self.jobs.deadline_s, self.jobs.changeover_s, self.gap_s)


@dataclass(frozen=True, slots=True)
class TimeSliced:
    """Greedy within each of `slices` equal parts of the time, each with its part of the work due."""

    jobs: Jobs
    gap_s: float
    slices: int = 4

    def choose(self, state: State) -> Ints:
        length = self.jobs.deadline_s / self.slices
        part = np.minimum(self.slices - 1, np.floor(state.elapsed_s / length + _ROUNDING))
        due, end = (part + 1) * self.jobs.work_s / self.slices, (part + 1) * length
        wanted = np.where(state.available, SPOT, IDLE)
        kept = _net(wanted, state, due, end, self.jobs.changeover_s, self.gap_s)
        return np.where(state.done_s < due, kept, wanted)


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """On-demand when behind an even pace and spot is away; back to spot only when ahead of it by two changeovers."""

    jobs: Jobs
    gap_s: float

    def choose(self, state: State) -> Ints:
        jobs, pace = self.jobs, self.jobs.work_s / self.jobs.deadline_s
        behind = state.done_s < state.elapsed_s * pace
        ahead = state.done_s > (state.elapsed_s + 2 * jobs.changeover_s) * pace
        away = np.where((state.on == ON_DEMAND) | behind, ON_DEMAND, IDLE)
        there = np.where((state.on == ON_DEMAND) & ~ahead, ON_DEMAND, SPOT)
        wanted = np.where(state.available, there, away)
        return _net(wanted, state, jobs.work_s, jobs.deadline_s, jobs.changeover_s, self.gap_s)


def _net(
    wanted: Ints, state: State, work_s: Floats | float, deadline_s: Floats, changeover_s: Floats, gap_s: float
) -> Ints:
    """The published safety net: on-demand while it is still sure to be in time."""
    rest = work_s - state.done_s
    left = np.floor((deadline_s - state.elapsed_s) / gap_s + _ROUNDING)
    one = np.ceil((rest + changeover_s) / gap_s - _ROUNDING)
    two = np.ceil((rest + 2 * changeover_s) / gap_s - _ROUNDING)
    chosen = np.where((two >= left) & (state.on != SPOT), ON_DEMAND, wanted)
    held = np.where((state.on == SPOT) & (state.overhead_s <= 0), SPOT, ON_DEMAND)
    return np.where(one >= left, held, chosen)
