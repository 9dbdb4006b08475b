"""The tick rules by hand, and the published policies on traces that fit on a line."""

import numpy as np
import pytest

from bench.spot.published import Greedy, TimeSliced, UniformProgress
from bench.spot.ticks import Jobs, replay, spell_ages

GAP = 600.0


def one(deadline_ticks, *, work_ticks=6, changeover_s=0.0):
    return Jobs(
        start=np.array([0]),
        deadline_s=np.array([deadline_ticks * GAP]),
        changeover_s=np.array([changeover_s]),
        work_s=work_ticks * GAP,
        on_demand=3.0,
    )


def cost_in_ticks(found, work_ticks=6):
    return found.cost[0] * work_ticks * 3.0


def trace(text):
    return np.array([sign == "x" for sign in text])


def test_spot_all_along_costs_a_third():
    found = replay(trace("xxxxxxxxxx"), GAP, one(8), Greedy(one(8), GAP))
    assert cost_in_ticks(found) == pytest.approx(6.0)
    assert not found.late[0]


def test_a_changeover_is_paid_and_makes_no_progress():
    jobs = one(10, changeover_s=900.0)
    found = replay(trace("xxxxxxxxxxxx"), GAP, jobs, Greedy(jobs, GAP))
    assert cost_in_ticks(found) == pytest.approx(8.0), "6 ticks of work and 1.5 of changeover, in whole ticks"


def test_greedy_waits_until_only_on_demand_is_sure():
    found = replay(trace(".........."), GAP, one(8), Greedy(one(8), GAP))
    assert cost_in_ticks(found) == pytest.approx(18.0)
    assert not found.late[0]


def test_uniform_progress_goes_on_demand_as_soon_as_it_is_behind():
    jobs = one(13)
    assert cost_in_ticks(replay(trace(".....xxxxxxxxx"), GAP, jobs, Greedy(jobs, GAP))) == pytest.approx(6.0)
    assert cost_in_ticks(replay(trace(".....xxxxxxxxx"), GAP, jobs, UniformProgress(jobs, GAP))) > 6.0


def test_time_sliced_has_its_part_done_in_each_slice():
    jobs = one(12)
    found = replay(trace("......xxxxxxx"), GAP, jobs, TimeSliced(jobs, GAP, slices=2))
    assert cost_in_ticks(found) == pytest.approx(3 * 3 + 3)


def test_the_age_of_a_spell_counts_from_where_it_was_first_seen():
    assert spell_ages(trace("xx.xxx"), 10.0).tolist() == [0, 10, 0, 0, 10, 20]


def test_a_policy_that_runs_on_spot_where_there_is_none_is_found_out():
    class Wrong:
        def choose(self, state):
            return np.full(1, 2)

    with pytest.raises(AssertionError, match="none"):
        replay(trace("..."), GAP, one(8), Wrong())
