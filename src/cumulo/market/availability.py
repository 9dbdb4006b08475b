"""Where spot goes within a step: the chances of each state of it after a step, given the state before.

States are (away or there, age). A step may hold several ticks, and spot may go and come within it, so a step's chances
are worked out tick by tick from each age on, exactly for what happens inside the step (a renewal equation).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cumulo.market.hazards import Floats, Hazards, Rates

OLDEST_S: Final = 48 * 3600.0
"""The last age that is followed; it stands for all that are older."""
_SINGLE: Final = 6
_WIDER: Final = 1.5
_MOST_PARTS: Final = 20
"""Parts of a step that are told apart, at most."""
_POINTS: Final = 9


@dataclass(frozen=True, slots=True)
class Chances:
    """`moves` (2A, 2A): from each state to each, the A ages of spot away first. From ages of spot there, `kept` (A, A)
    is what never lost it, `lost` (A, 2A) the rest."""

    moves: NDArray[np.float32]
    kept: NDArray[np.float32]
    lost: NDArray[np.float32]


def followed_ages(step_s: float) -> Floats:
    """Ages that are followed: each step at first, then ever wider."""
    steps = [float(number) for number in range(_SINGLE)]
    while steps[-1] * step_s < OLDEST_S:
        steps.append(max(steps[-1] + 1, round(steps[-1] * _WIDER)))
    return np.array(steps) * step_s


def outlived(lost: Rates, age_s: ArrayLike, seconds: ArrayLike) -> Floats:
    """How much of the next `seconds` spot of that age is expected to be there for (trapezoids)."""
    age, length = np.broadcast_arrays(np.asarray(age_s, dtype=np.float64), seconds)
    grid = np.linspace(0.0, 1.0, _POINTS) * length[..., None]
    alive = np.exp(-lost.between(age[..., None], age[..., None] + grid))
    expected: Floats = np.trapezoid(alive, grid, axis=-1)
    return expected


def chances(hazards: Hazards, ages: Floats, step_s: float, ticks: int) -> Chances:
    """The chances of a step of `ticks` looks, for states of these ages."""
    half, parts = len(ages), min(ticks, _MOST_PARTS)
    tick = step_s / parts
    times: Floats = np.arange(parts + 1, dtype=np.float64) * tick
    rates = (hazards.back, hazards.lost)
    fresh = _fresh(rates, ages, times)
    moves = np.zeros((2 * half, 2 * half))
    kept = np.zeros((half, half))
    for there in (0, 1):
        alive = np.exp(-rates[there].between(ages[:, None], ages[:, None] + times))
        ends = alive[:, :-1] - alive[:, 1:]
        stays = alive[:, -1:] * _spread(ages, ages + step_s)
        rows = slice(there * half, (there + 1) * half)
        moves[rows, rows] = stays
        moves[rows] += ends @ fresh[1 - there][parts - 1 :: -1]
        kept = stays
    lost = moves[half:].copy()
    lost[:, half:] -= kept
    return Chances(moves.astype(np.float32), kept.astype(np.float32), lost.astype(np.float32))


def _fresh(rates: tuple[Rates, Rates], ages: Floats, times: Floats) -> list[Floats]:
    """Where a spell that begins now has got to after each of `times`, for away and there: (times, states)."""
    half = len(ages)
    alive = [np.exp(-own.between(np.zeros(len(times)), times)) for own in rates]
    found = [np.zeros((len(times), 2 * half)) for _ in rates]
    places = _spread(ages, times)
    for number in range(len(times)):
        for there in (0, 1):
            found[there][number, there * half : (there + 1) * half] = alive[there][number] * places[number]
            for end in range(1, number + 1):
                ended = alive[there][end - 1] - alive[there][end]
                found[there][number] += ended * found[1 - there][number - end]
    return found


def _spread(ages: Floats, age_s: Floats) -> Floats:
    """Each age as parts of the two followed ages around it: (len(age_s), ages)."""
    clipped = np.clip(age_s, ages[0], ages[-1])
    lower = np.minimum(np.searchsorted(ages, clipped, side="right") - 1, len(ages) - 2)
    part = (clipped - ages[lower]) / (ages[lower + 1] - ages[lower])
    parts, rows = np.zeros((len(age_s), len(ages))), np.arange(len(age_s))
    parts[rows, lower], parts[rows, lower + 1] = 1 - part, part
    return parts
