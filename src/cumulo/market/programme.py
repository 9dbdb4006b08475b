"""The dynamic programme behind a deadline: the expected cost to go from every state a job can be in.

A state is (time left, slack, what it runs on, whether spot is there and for how long). Slack is the time left less the
work still to be done: waiting uses it up second by second, a changeover by its length, work leaves it as it is. A job
that waits or is on spot must keep the slack of one changeover, for it may have to start on on-demand at any moment; so
its slack is counted from there, and no plan of the programme can be late.

Spot's spells are semi-Markov: their hazard depends on their age, which is followed on a log grid (`availability`). Time
is cut into equal steps and slack into equal units; a state between grid points is interpolated.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cumulo.market.availability import Chances, chances, followed_ages, outlived
from cumulo.market.hazards import Floats, Hazards, Rates

STEPS: Final = 560
"""Steps of time to the deadline, at most: ten minutes over four days."""
UNITS: Final = 200
"""Units of slack, at most."""
KEPT: Final = 4
"""Of so many steps one is kept: costs are all but linear in the time left, and the table fits a few megabytes."""
IDLE, ON_DEMAND, SPOT = 0, 1, 2
_HOUR: Final = 3600.0
_NEVER: Final = np.float32(1e9)
Singles = NDArray[np.float32]


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
    """Expected cost to go after a step, by (kept step, what it runs on, state of spot, units of slack).

    States of spot are first the ages for which it has been away, then those for which it has been there.
    """

    terms: Terms
    lost: Rates
    step_s: float
    unit_s: float
    ages_s: Floats
    after: Singles

    def costs(
        self,
        *,
        left_s: ArrayLike,
        work_s: ArrayLike,
        on: ArrayLike,
        overhead_s: ArrayLike,
        available: ArrayLike,
        age_s: ArrayLike,
    ) -> Floats:
        """Expected cost to go of waiting, on-demand and spot, shape (3, jobs); inf for spot where there is none."""
        left, work, running, overhead, there, age = np.broadcast_arrays(
            left_s, work_s, on, overhead_s, available, age_s
        )
        terms, slack = self.terms, left - work
        change = np.where(running == IDLE, terms.changeover_s, terms.upgrade_s)
        demand = np.where(running == ON_DEMAND, overhead, change)
        spot = np.where(running == SPOT, overhead, change)
        step = np.minimum(self.step_s, np.maximum(left, 1.0))
        rest = np.stack(
            [
                slack - step - terms.changeover_s,
                slack - demand,
                slack - outlived(self.lost, age, spot) - terms.changeover_s,
            ]
        )
        found: Floats = self._after(left, rest, there, age)
        found[ON_DEMAND] += terms.on_demand / _HOUR * np.minimum(step, work + demand)
        found[SPOT] += terms.spot / _HOUR * np.minimum(step, work + spot)
        found[SPOT] = np.where(there, found[SPOT], np.inf)
        return found

    def _after(self, left: Floats, slack: Floats, there: NDArray[np.bool_], age: Floats) -> Floats:
        """`after` between its grid points, for each choice with its own slack: shape (3, jobs)."""
        layers, choices, states, units = self.after.shape
        layer, layer_part = _place(left / (self.step_s * KEPT), layers)
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
    ticks = max(1, math.ceil(terms.horizon_s / STEPS / terms.tick_s - 1e-9))
    step = terms.tick_s * ticks
    layers = max(1, math.ceil(terms.horizon_s / step / KEPT - 1e-9)) + 1
    per_step = max(1, round(step * UNITS / max(terms.slack_s, step)))
    unit = step / per_step
    slack = unit * np.arange(max(3, math.ceil(max(terms.slack_s, 0.0) / unit) + 2), dtype=np.float64)
    ages = followed_ages(step)
    odds = chances(hazards, ages, step, ticks)
    move = _Moves(terms, slack, per_step, hazards.lost, ages)
    half = len(ages)
    after = np.zeros((layers, 3, 2 * half, len(slack)), dtype=np.float32)
    values = _Values(*(np.zeros((count, len(slack)), dtype=np.float32) for count in (2 * half, 2 * half, half)))
    for number in range(1, (layers - 1) * KEPT + 1):
        next_values = values.expected(odds)
        if number % KEPT == 0:
            kept = after[number // KEPT]
            kept[IDLE], kept[ON_DEMAND], kept[SPOT, half:] = next_values.idle, next_values.demand, next_values.spot
        values = move.best(next_values, number * step, step)
    return Programme(terms, hazards.lost, step, unit, ages, after)


@dataclass(frozen=True, slots=True)
class _Values:
    """Cost to go by what the job runs on, each (states of spot, units of slack); on spot only where there is spot."""

    idle: Singles
    demand: Singles
    spot: Singles

    def expected(self, odds: Chances) -> "_Values":
        """A step earlier, before it is known where spot goes. A job on spot that loses it is idle."""
        return _Values(odds.moves @ self.idle, odds.moves @ self.demand, odds.kept @ self.spot + odds.lost @ self.idle)


class _Moves:
    """The choices of a step: what each costs and how far it moves a job along slack."""

    def __init__(self, terms: Terms, slack: Floats, per_step: int, lost: Rates, ages: Floats) -> None:
        self._terms, self._slack, self._per_step = terms, slack, per_step
        self._half, unit = len(ages), slack[1]
        change, upgrade = terms.changeover_s, terms.upgrade_s
        # A changeover that spot does not outlive uses up only the time until spot is lost.
        self._start = _Shift(slack, outlived(lost, ages, np.full(len(ages), change)), change)
        self._to_spot = _Shift(slack, change + outlived(lost, ages, np.full(len(ages), upgrade)), change + upgrade)
        self._to_demand = _Shift(slack, np.array([upgrade - change]), 0.0)
        self._stop = _Shift(slack, np.array([change + per_step * unit]), change + per_step * unit)

    def best(self, after: _Values, left: float, step: float) -> _Values:
        """The cheapest choice in every state with `left` seconds to the deadline."""
        terms, half = self._terms, self._half
        with_changeover = self._slack + terms.changeover_s
        wait = np.full_like(after.idle, _NEVER)
        wait[:, self._per_step :] = after.idle[:, : -self._per_step]
        # On-demand costs what is left of the work, should that be less than a step.
        demand_cost = self._cost(terms.on_demand, left - self._slack, step)
        demand = after.demand + demand_cost
        idle = np.minimum(wait, demand)
        start = np.float32(terms.spot * step / _HOUR)
        idle[half:] = np.minimum(idle[half:], self._start(after.spot) + start)
        spot = np.minimum(wait[half:], after.spot + self._cost(terms.spot, left - with_changeover, step))
        spot = np.minimum(spot, self._to_demand(after.demand[half:]) + demand_cost)
        demand = np.minimum(demand, self._stop(after.idle))
        demand[half:] = np.minimum(demand[half:], self._to_spot(after.spot) + start)
        for values, done in ((idle, with_changeover >= left), (spot, with_changeover >= left)):
            values[:, done] = 0.0
        demand[:, self._slack >= left] = 0.0
        return _Values(idle, demand, spot)

    @staticmethod
    def _cost(price: float, work: Floats, step: float) -> Singles:
        return (price / _HOUR * np.clip(work, 0.0, step)).astype(np.float32)


class _Shift:
    """Values at less slack: by `seconds`, one for all states or one for each. It takes `needs` of slack at least."""

    def __init__(self, slack: Floats, seconds: Floats, needs: float) -> None:
        lower, self._part = _place((slack - seconds[:, None]) / slack[1], len(slack))
        self._part = self._part.astype(np.float32)
        self._barred = np.where(slack >= needs - 1e-6, np.float32(0.0), _NEVER)
        self._lower = lower if len(lower) == 1 else lower + len(slack) * np.arange(len(lower))[:, None]

    def __call__(self, values: Singles) -> Singles:
        if len(self._lower) == 1:
            low, high = values[:, self._lower[0]], values[:, self._lower[0] + 1]
        else:
            flat = values.reshape(-1)
            low, high = flat[self._lower], flat[self._lower + 1]
        moved: Singles = low + self._part * (high - low) + self._barred
        return moved


def _place(position: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
    """The grid point below and the part of the way to the next, inside the grid."""
    clipped = np.clip(position, 0.0, count - 1.0)
    lower = np.minimum(clipped.astype(np.int64), count - 2)
    return lower, clipped - lower
