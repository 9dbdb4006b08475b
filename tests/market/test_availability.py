"""Where spot goes within a step."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.market.availability import chances, followed_ages, outlived
from cumulo.market.hazards import AGES_S, Hazards, Rates

HOUR = 3600.0


def constant(per_hour):
    return Rates(AGES_S, (per_hour / HOUR,) * len(AGES_S))


@settings(max_examples=30, deadline=None)
@given(
    lost=st.lists(st.floats(0.0, 30.0), min_size=10, max_size=10),
    back=st.lists(st.floats(0.0, 30.0), min_size=10, max_size=10),
    ticks=st.integers(1, 30),
)
def test_from_every_state_it_goes_somewhere(lost, back, ticks):
    ages = followed_ages(600.0)
    own = Hazards(*(Rates(AGES_S, tuple(rate / HOUR for rate in rates)) for rates in (lost, back)))
    found = chances(own, ages, 600.0, ticks)
    assert found.moves.min() >= -1e-6
    assert found.moves.sum(axis=1) == pytest.approx(np.ones(2 * len(ages)), abs=1e-4)
    assert found.kept.sum(axis=1) + found.lost.sum(axis=1) == pytest.approx(np.ones(len(ages)), abs=1e-4)


def test_with_constant_hazards_it_is_the_two_state_chain():
    """P(there after t | there) = b/(a+b) + a/(a+b) exp(-(a+b)t), of going with a and coming with b."""
    ages, a, b = followed_ages(1800.0), 2.0, 3.0
    found = chances(Hazards(constant(a), constant(b)), ages, 1800.0, 20)
    there = found.moves[len(ages) :, len(ages) :].sum(axis=1)
    assert there == pytest.approx(np.full(len(ages), b / (a + b) + a / (a + b) * math.exp(-(a + b) * 0.5)), abs=0.02)
    assert found.kept.sum(axis=1) == pytest.approx(np.full(len(ages), math.exp(-a * 0.5)), rel=1e-4)


def test_what_is_never_lost_grows_older():
    ages = followed_ages(600.0)
    found = chances(Hazards(constant(0.0), constant(0.0)), ages, 600.0, 1)
    assert found.kept @ ages == pytest.approx(np.minimum(ages + 600.0, ages[-1]), rel=1e-5)


def test_what_is_outlived_is_at_most_what_was_asked():
    assert outlived(constant(0.0), 0.0, 720.0) == pytest.approx(720.0)
    assert outlived(constant(2.0), 0.0, 1800.0) == pytest.approx(1800.0 * (1 - math.exp(-1.0)), rel=0.01)
