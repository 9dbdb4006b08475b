"""The dynamic programme behind a deadline: the expected cost to go from every state a job can be in.

A state is (time left, slack, what it runs on, whether spot is there and for how long). Slack is the time left less the
work and the changeover still to be done: waiting uses it up second by second, a changeover by its length, work leaves
it as it is. Spot's spells are semi-Markov: their hazard depends on their age, which is followed on a log grid.

Time is cut into equal steps and slack into equal units; a state between grid points is interpolated.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cumulo.market.hazards import Floats, Hazards

STEPS: Final = 160
"""Steps of time to the deadline, at most: enough for a horizon of days, and a solve of some 50 ms."""
UNITS: Final = 80
"""Units of slack, at most."""
OLDEST: Final = 14
"""Ages followed in each direction; the last stands for all that are older."""
IDLE, ON_DEMAND, SPOT = 0, 1, 2
_PER_HOUR: Final = 3600.0
_LATE: Final = 50.0
"""Cost of a second that is missing, as a multiple of on-demand's: the programme must not plan to be late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a programme is solved for: times in seconds, prices in one unit per hour."""

    horizon_s: float
    slack_s: float
    changeover_s: float
    upgrade_s: float
    spot: float
    on_demand: float
    tick_s: float


@dataclass(frozen=True, slots=True)
class Programme:
    """Expected cost to go after a step, by (steps left, what it runs on, state of spot, units of slack).

    States of spot are first the ages for which it has been away, then those for which it has been there.
    """

    terms: Terms
    step_s: float
    unit_s: float
    ages_s: Floats
    after: NDArray[np.float32]

    def costs(
        self,
        *,
        left_s: ArrayLike,
        slack_s: ArrayLike,
        on: ArrayLike,
        available: ArrayLike,
        age_s: ArrayLike,
    ) -> Floats:
        """Expected cost to go of waiting, on-demand and spot, shape (3, jobs); inf for spot where there is none.

        `slack_s` is what is left once the work, and the changeover that is under way, are taken from the time left.
        """
        left, slack, running, there, age = np.broadcast_arrays(left_s, slack_s, on, available, age_s)
        terms = self.terms
        step = np.minimum(self.step_s, np.maximum(left, 1.0))
        change = np.where(running == IDLE, terms.changeover_s, terms.upgrade_s)
        spent = np.stack([step, np.where(running == ON_DEMAND, 0.0, change), np.where(running == SPOT, 0.0, change)])
        prices = np.array([0.0, terms.on_demand, terms.spot]).reshape(3, *(1,) * left.ndim)
        rest = slack - spent
        late = np.maximum(-rest, 0.0) * (terms.on_demand * _LATE / _PER_HOUR)
        found: Floats = prices * (step / _PER_HOUR) + self._after(left, rest, there, age) + late
        found[SPOT] = np.where(there, found[SPOT], np.inf)
        return found

    def _after(self, left: Floats, slack: Floats, there: NDArray[np.bool_], age: Floats) -> Floats:
        """`after` between its grid points, for each choice with its own slack: shape (3, jobs)."""
        layers, choices, states, units = self.after.shape
        layer, layer_part = _place(left / self.step_s, layers)
        unit, unit_part = _place(slack / self.unit_s, units)
        half = states // 2
        older = np.searchsorted(self.ages_s, age, side="right") - 1
        next_age = np.minimum(older + 1, half - 1)
        width = np.where(next_age > older, self.ages_s[next_age] - self.ages_s[older], 1.0)
        age_part = np.clip((age - self.ages_s[older]) / width, 0.0, 1.0)
        choice = np.arange(choices).reshape(choices, *(1,) * left.ndim)
        corner = ((layer * choices + choice) * states + older + half * there) * units + unit
        flat, later, elder = self.after.reshape(-1), choices * states * units, (next_age - older) * units
        total = np.zeros(slack.shape)
        for time, time_part in ((corner, 1 - layer_part), (corner + later, layer_part)):
            for place, part in ((time, (1 - age_part) * time_part), (time + elder, age_part * time_part)):
                low = flat[place]
                total += part * (low + unit_part * (flat[place + 1] - low))
        return total


def solve(terms: Terms, hazards: Hazards) -> Programme:
    """The programme for one job, by backward induction over the time left."""
    step = max(terms.tick_s, terms.horizon_s / STEPS)
    layers = max(2, math.ceil(terms.horizon_s / step) + 1)
    per_step = max(1, round(step * UNITS / max(terms.slack_s, step)))
    unit = step / per_step
    units = max(3, math.ceil(terms.slack_s / unit) + 2)
    ages = _ages(step)
    moves, kept = _moves(hazards, ages, step)
    shapes = _Shifts(unit, units, per_step, terms, hazards, ages)
    half = len(ages)
    after = np.zeros((layers, 3, 2 * half, units), dtype=np.float32)
    idle, demand, spot = (np.zeros((count, units)) for count in (2 * half, 2 * half, half))
    hours = step / _PER_HOUR
    slack = np.arange(units) * unit
    for layer in range(1, layers):
        done = slack >= layer * step
        w_idle, w_demand = moves @ idle, moves @ demand
        w_spot = kept @ spot + (moves[half:, :half] @ idle[:half])
        after[layer, IDLE], after[layer, ON_DEMAND], after[layer, SPOT, half:] = w_idle, w_demand, w_spot
        wait = shapes.wait(w_idle)
        start = terms.on_demand * hours + shapes.changeover(w_demand)
        stay = terms.on_demand * hours + w_demand
        spot_start = terms.spot * hours + shapes.spot_start(w_spot)
        spot_stay = terms.spot * hours + w_spot
        idle = np.minimum(wait, start)
        idle[half:] = np.minimum(idle[half:], spot_start)
        demand = np.minimum(wait, stay)
        demand[half:] = np.minimum(demand[half:], terms.spot * hours + shapes.upgrade(w_spot))
        upgraded = terms.on_demand * hours + shapes.upgrade(w_demand[half:])
        spot = np.minimum(np.minimum(wait[half:], spot_stay), upgraded)
        for values in (idle, demand, spot):
            values[:, done] = 0.0
    return Programme(terms, step, unit, ages, after)


class _Shifts:
    """Moves values along slack by what a choice uses up, with a penalty for what is not there."""

    def __init__(self, unit: float, units: int, per_step: int, terms: Terms, hazards: Hazards, ages: Floats) -> None:
        self._unit, self._units, self._per_step = unit, units, per_step
        self._late = terms.on_demand * _LATE / _PER_HOUR
        self._change = self._shift(np.array([terms.changeover_s]))
        self._upgrade = self._shift(np.array([terms.upgrade_s]))
        # A changeover that spot does not outlive uses up only the time until spot is lost.
        grid = np.linspace(0.0, terms.changeover_s, 9)
        alive = np.exp(-hazards.lost.between(ages[:, None], ages[:, None] + grid))
        self._spot = self._shift(np.trapezoid(alive, grid, axis=1) if terms.changeover_s else np.zeros(len(ages)))

    def wait(self, values: Floats) -> Floats:
        moved = np.empty_like(values)
        moved[:, self._per_step :] = values[:, : -self._per_step]
        short = (self._per_step - np.arange(self._per_step)) * self._unit
        moved[:, : self._per_step] = values[:, :1] + short[: self._units] * self._late
        return moved

    def changeover(self, values: Floats) -> Floats:
        return self._moved(values, self._change)

    def upgrade(self, values: Floats) -> Floats:
        return self._moved(values, self._upgrade)

    def spot_start(self, values: Floats) -> Floats:
        return self._moved(values, self._spot)

    def _shift(self, seconds: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
        """(lower unit, part of the way to the next, penalty) for each row and unit."""
        place = np.arange(self._units) - seconds[:, None] / self._unit
        lower = np.clip(np.floor(place), 0, self._units - 2).astype(np.int64)
        part = np.clip(place - lower, 0.0, 1.0)
        return lower, part, np.maximum(-place, 0.0) * self._unit * self._late

    def _moved(self, values: Floats, shift: tuple[NDArray[np.int64], Floats, Floats]) -> Floats:
        lower, part, penalty = shift
        if len(lower) == 1:
            low, high = values[:, lower[0]], values[:, lower[0] + 1]
        else:
            low, high = np.take_along_axis(values, lower, axis=1), np.take_along_axis(values, lower + 1, axis=1)
        moved: Floats = low + part * (high - low) + penalty
        return moved


def _ages(step_s: float) -> Floats:
    """Ages that are followed: each step at first, then ever wider."""
    steps = [0.0, 1.0, 2.0, 3.0]
    while len(steps) < OLDEST:
        steps.append(max(steps[-1] + 1, round(steps[-1] * 1.6)))
    return np.array(steps) * step_s


def _moves(hazards: Hazards, ages: Floats, step: float) -> tuple[Floats, Floats]:
    """The chance of going from each state of spot to each other in one step; and, while up, of staying up."""
    half = len(ages)
    moves = np.zeros((2 * half, 2 * half))
    widths = np.append(np.diff(ages), np.inf)
    grow = step / widths
    for base, rates in ((0, hazards.back), (half, hazards.lost)):
        ends = 1 - np.exp(-rates.between(ages, ages + step))
        rows = np.arange(half)
        moves[base + rows, half - base] = ends
        moves[base + rows, base + rows] = (1 - ends) * (1 - grow)
        moves[base + rows[:-1], base + rows[1:]] += ((1 - ends) * grow)[:-1]
    return moves, moves[half:, half:].copy()


def _place(position: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
    """The grid point below and the part of the way to the next, inside the grid."""
    clipped = np.clip(position, 0.0, count - 1.0)
    lower = np.minimum(clipped.astype(np.int64), count - 2)
    return lower, clipped - lower
