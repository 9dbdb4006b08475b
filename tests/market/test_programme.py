"""The programme's costs: bounds, monotony, and two cases that can be worked out by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.market.hazards import AGES_S, Hazards, Rates
from cumulo.market.programme import IDLE, ON_DEMAND, SPOT, Terms, solve

HOUR = 3600.0


def hazards(lost, back):
    return Hazards(*(Rates(AGES_S, (per_hour / HOUR,) * len(AGES_S)) for per_hour in (lost, back)))


def terms(**given_):
    base = {
        "horizon_s": 20 * HOUR,
        "slack_s": 8 * HOUR,
        "changeover_s": 360.0,
        "upgrade_s": 360.0,
        "spot": 1.0,
        "on_demand": 3.0,
        "tick_s": 300.0,
    }
    return Terms(**(base | given_))


def at_start(solved, **given_):
    base = {"left_s": 20 * HOUR, "work_s": 12 * HOUR, "on": IDLE, "overhead_s": 0.0, "available": True, "age_s": 0.0}
    return solved.costs(**(base | given_))


def test_spot_that_stays_costs_the_work_and_a_changeover():
    found = at_start(solve(terms(), hazards(0.0, 1.0)))
    assert found[SPOT] == pytest.approx(12.1, abs=0.1)
    assert found[ON_DEMAND] > found[SPOT]


def test_spot_that_never_comes_costs_on_demand():
    found = at_start(solve(terms(), hazards(1.0, 0.0)), available=False)
    assert found[ON_DEMAND] == pytest.approx(36.3, abs=0.2)
    assert found[IDLE] == pytest.approx(36.3, abs=0.4)
    assert found[SPOT] == float("inf")


def test_on_demand_that_runs_has_no_changeover_to_pay():
    solved = solve(terms(), hazards(1.0, 0.0))
    idle, running = (at_start(solved, available=False, on=on)[ON_DEMAND] for on in (IDLE, ON_DEMAND))
    assert idle - running == pytest.approx(0.3, abs=0.05)


@settings(max_examples=25, deadline=None)
@given(lost=st.floats(0.0, 10.0), back=st.floats(0.0, 10.0), change=st.floats(0.0, 3000.0), age=st.floats(0.0, 1e5))
def test_less_time_never_costs_less_and_nothing_beats_spot_alone(lost, back, change, age):
    solved = solve(terms(changeover_s=change, upgrade_s=change), hazards(lost, back))
    found = [
        at_start(solved, left_s=left * HOUR, available=there, age_s=age).min()
        for left in (20, 17, 14)
        for there in (True, False)
    ]
    assert min(found) >= 12.0 - 0.01
    assert max(found) <= 3 * (12.0 + change / HOUR) + 0.3
    assert found[0] <= found[2] + 0.05
    assert found[2] <= found[4] + 0.05
