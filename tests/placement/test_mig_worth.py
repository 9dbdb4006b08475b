"""The worth of layouts against Markov decision processes solved here by other means."""

from collections.abc import Callable

import numpy as np
import pytest

from cumulo.catalog.mig import mig_layout
from cumulo.placement.mig import MigStates, layout_table
from cumulo.placement.mig_worth import worth

KINDS = ("A30", "A100-80GB", "RTXPRO6000")


def states_of(kind: str) -> MigStates:
    layout = mig_layout(kind)
    assert layout is not None
    return layout_table(layout).states


def earned(states: MigStates, rates: np.ndarray, starts: Callable[[int, int], int]) -> float:
    """Slices that a policy on one GPU accepts a time unit, from the stationary distribution of its Markov chain."""
    share = np.zeros(len(states.layouts))
    share[0] = 1.0
    fits = np.argwhere((states.after >= 0).any(axis=2))
    to = np.array([states.after[state, profile, starts(state, profile)] for state, profile in fits])
    gone = np.argwhere(states.before >= 0)
    smaller = states.before[tuple(gone.T)]
    pace = rates.sum() + 8
    for _ in range(400):
        flow = rates[fits[:, 1]] * share[fits[:, 0]]
        change = np.bincount(to, flow, len(share)) - np.bincount(fits[:, 0], flow, len(share))
        ended = share[gone[:, 0]]
        change += np.bincount(smaller, ended, len(share)) - np.bincount(gone[:, 0], ended, len(share))
        share += change / pace
    return float((rates * states.slices)[fits[:, 1]] @ share[fits[:, 0]])


def optimum(states: MigStates, rates: np.ndarray) -> float:
    """The most that any policy earns that accepts what fits: value iteration."""
    after = states.after.astype(int)
    best_of = np.where(after >= 0, 0.0, -np.inf)
    gone = np.argwhere(states.before >= 0)
    smaller = states.before[tuple(gone.T)]
    value, pace = np.zeros(len(after)), rates.sum() + 8
    for _ in range(600):
        gain = states.slices + (best_of + value[after]).max(axis=2) - value[:, None]
        change = np.where(np.isfinite(gain), gain, 0.0) @ rates
        change += np.bincount(gone[:, 0], value[smaller] - value[gone[:, 0]], len(value))
        value += change / pace
    return float(change.mean())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skew", [-1.5, 0.0])
@pytest.mark.parametrize(("market", "short"), [(1, 0.001), (8, 0.01)])
def test_one_gpu_earns_what_the_optimum_earns(kind: str, skew: float, market: int, short: float) -> None:
    layout = mig_layout(kind)
    assert layout is not None
    states = states_of(kind)
    weights = states.slices**skew
    table = layout_table(layout, mix=dict(zip((p.name for p in layout.profiles), weights, strict=True)), market=market)
    rates = weights * 1.1 * layout.compute_slices / (weights @ states.slices)
    got = earned(states, rates, lambda state, profile: int(table.best_start[state, profile]))
    assert got >= (1 - short) * optimum(states, rates)


def test_first_fit_earns_less() -> None:
    """What the comparison above is able to see."""
    states = states_of("A100-80GB")
    rates = np.full(7, 7 / states.slices.sum())
    first = earned(states, rates, lambda state, profile: int((states.after[state, profile] >= 0).argmax()))
    assert first < 0.95 * optimum(states, rates)


def test_the_same_question_has_the_same_answer() -> None:
    states = states_of("A30")
    one, other = (worth(states.after, states.slices, mix=np.full(5, 0.2), capacity=4, market=8) for _ in range(2))
    assert (one == other).all()
    assert one[0] == 0


def test_where_every_ask_is_for_a_whole_gpu_an_occupied_one_is_worth_its_idle_time() -> None:
    """One profile that fills the GPU, load 1: busy half the time. h(empty) − h(busy) solves g = 4 − loss = loss."""
    after = np.array([[[1]], [[-1]]], dtype=np.int16)
    values = worth(after, np.array([4]), mix=np.array([1.0]), capacity=4, market=1)
    assert values.tolist() == pytest.approx([0.0, -2.0], abs=1e-3)


def test_in_a_market_a_place_is_worth_less_than_alone_where_others_are_free_too() -> None:
    """At a tenth of the load hardly any ask needs this very GPU."""
    after = np.array([[[1]], [[-1]]], dtype=np.int16)
    alone, among = (
        worth(after, np.array([4]), mix=np.array([1.0]), capacity=4, market=market, load=0.1)[1] for market in (1, 8)
    )
    assert alone == pytest.approx(-4 * 0.1 / 1.1, abs=1e-3)
    assert -0.01 < among <= 0
