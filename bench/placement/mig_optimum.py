"""What no choice of places for MIG instances can beat: exact search on one GPU, and bounds for many.

Written apart from `cumulo.placement.mig_worth`: a yardstick must not be made of what it measures.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cumulo.placement.mig import MigStates

Floats = NDArray[np.float64]
Ask = tuple[int, float, float]  # profile, when, for how long
Lying = tuple[tuple[float, int, int], ...]  # instances: end, profile, start


def exact(states: MigStates, rates: Floats, *, refuse: bool) -> tuple[Floats, float]:
    """The best possible on one GPU with no foresight: (relative value of each state, slices earned a time unit).

    Asks of profile p come at `rates[p]` (Poisson), instances end at rate 1. Value iteration over all layouts
    (Puterman, Markov Decision Processes, 8.5). `refuse`: whether an ask may be turned away although it fits.
    """
    after = states.after.astype(np.intp)
    legal = after >= 0
    fits = legal.any(axis=2)
    source, profile, start = np.nonzero(states.before >= 0)
    smaller = states.before[source, profile, start].astype(np.intp)
    pace = rates.sum() + max(len(layout) for layout in states.layouts)
    value = np.zeros(len(after))
    while True:
        best = np.where(legal, value[after], -np.inf).max(axis=2)
        gain = np.where(fits, states.slices + best - value[:, None], 0.0)
        change = (np.maximum(gain, 0.0) if refuse else gain) @ rates
        change += np.bincount(source, value[smaller] - value[source], len(value))
        value += change / pace
        value -= value[0]
        if np.ptp(change) < 1e-6:
            return value, float(change.mean())


def most(states: MigStates, rates: Floats) -> float:
    """A bound on the slices that one of many GPUs can earn a time unit, whatever the policy, if it can't see ahead.

    By Little's law the accepted asks y_p of a profile lie on it y_p at a time, so they are a mean of layouts:
    max Σ w_p y_p with y ≤ rates, y within the hull of the layouts. Any prices π ≥ 0 bound it by
    Σ_p rates_p (w_p − π_p)⁺ + max over layouts of Σ_p π_p count_p; the best of a subgradient descent is returned.
    """
    profiles = len(states.slices)
    counts = np.array([np.bincount([p for p, _ in layout], minlength=profiles) for layout in states.layouts])
    counts = np.unique(counts, axis=0)
    prices = states.slices.astype(float)
    least = np.inf
    for step in range(4000):
        worth = counts @ prices
        best = int(worth.argmax())
        surplus = states.slices - prices
        least = min(least, float(rates @ np.maximum(surplus, 0.0) + worth[best]))
        slope = counts[best] - rates * (surplus > 0)
        prices = np.maximum(prices - slope * 0.5 / (1 + step) ** 0.7, 0.0)
    return least


def hindsight(states: MigStates, asks: Sequence[Ask]) -> int:
    """The most slices that one GPU could have accepted of these asks, had it known them all; searches every choice."""
    starts = [[np.flatnonzero(row).tolist() for row in each] for each in states.after >= 0]
    best: dict[Lying, int] = {(): 0}
    for profile, at, lasts in asks:
        reached: dict[Lying, int] = {}
        for lying, slices in best.items():
            still = tuple(each for each in lying if each[0] > at)
            reached[still] = max(slices, reached.get(still, 0))
        best = dict(reached)
        gain = int(states.slices[profile])
        for still, slices in reached.items():
            state = states.by_layout[tuple(sorted((p, start) for _, p, start in still))]
            for start in starts[state][profile]:
                more = tuple(sorted((*still, (at + lasts, profile, start))))
                best[more] = max(slices + gain, best.get(more, 0))
    return max(best.values())
