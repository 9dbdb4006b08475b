"""When a save is due: by what it costs and by how likely the loss is at this age."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo import job
from cumulo.market.checkpoint import interval, next_checkpoint
from cumulo.market.hazards import AGES_S, Rates

HOUR = 3600.0
FALLING = Rates(AGES_S, tuple(1e-3 / (1 + age / 600) for age in AGES_S))

costs = st.floats(0.01, 1000.0)
hazards = st.lists(st.floats(1e-9, 1e-1), min_size=len(AGES_S), max_size=len(AGES_S)).map(
    lambda rates: Rates(AGES_S, tuple(rates))
)


def test_youngs_interval_where_the_hazard_is_constant():
    steady = Rates((0.0,), (1 / HOUR,))
    assert next_checkpoint(cost_s=2.0, age_s=0.0, lost=steady) == pytest.approx(math.sqrt(2 * 2.0 * HOUR))


def test_what_has_lasted_is_saved_more_seldom():
    young = next_checkpoint(cost_s=30.0, age_s=0.0, lost=FALLING)
    old = next_checkpoint(cost_s=30.0, age_s=24 * HOUR, lost=FALLING)
    assert old > 5 * young


def test_a_run_spends_at_most_half_its_time_saving():
    assert interval(cost_s=100.0, age_s=0.0, lost=Rates((0.0,), (1.0,))) == 100.0


@pytest.mark.parametrize("cost", [0.0, -1.0, math.nan])
def test_a_save_that_costs_nothing_was_not_measured(cost):
    with pytest.raises(ValueError, match="measure it"):
        interval(cost_s=cost, age_s=0.0, lost=FALLING)


@given(cost=costs, age=st.floats(0.0, 1e6), lost=hazards)
def test_a_run_decides_by_the_same_rule(cost, age, lost):
    table = tuple(zip(lost.ages_s, lost.per_s, strict=True))
    assert job.interval(cost, age, table) == interval(cost_s=cost, age_s=age, lost=lost)


@given(cost=costs, age=st.floats(0.0, 1e5), lost=hazards, share=st.floats(0.0, 0.999))
def test_due_is_the_first_moment_at_which_the_interval_has_passed(cost, age, lost, share):
    due = next_checkpoint(cost_s=cost, age_s=age, lost=lost)
    just = due * (1 + 1e-9) + 1e-6
    assert just >= interval(cost_s=cost, age_s=age + just, lost=lost)
    before = due * share
    assert before < interval(cost_s=cost, age_s=age + before, lost=lost)


@given(low=costs, high=costs, age=st.floats(0.0, 1e5), lost=hazards)
def test_dearer_saves_are_rarer(low, high, age, lost):
    low, high = sorted((low, high))
    assert next_checkpoint(cost_s=low, age_s=age, lost=lost) <= next_checkpoint(cost_s=high, age_s=age, lost=lost)
