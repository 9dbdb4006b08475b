"""What saving wastes: counted by hand on short lives, and on real ones against the best fixed interval."""

import argparse
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.spot import checkpoint
from bench.spot.checkpoint import COSTS_S, Life, Waste, fixed, waste
from bench.spot.traces import BadTrace
from cumulo.market.hazards import AGES_S, Rates

TRACES = Path(__file__).parents[4] / "shared" / "traces" / "spot"
NINE_ZONES = TRACES / "spot-traces/availability/1-node/aws-02-15-2023"
ONE_PER_HOUR = Rates(AGES_S, (1 / 3600,) * len(AGES_S))


def every(seconds):
    return lambda age: seconds


def options(*words):
    parser = argparse.ArgumentParser()
    checkpoint.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


def test_a_lost_life_redoes_what_was_not_saved():
    found = waste(Life(350.0, True, ONE_PER_HOUR), every(100.0), cost_s=10.0, restart_s=7.0)
    assert found == (30.0, 20.0, 7.0, 350.0)
    assert found.share == pytest.approx(57 / 350)


def test_a_save_that_was_not_done_in_time_is_worth_nothing():
    found = waste(Life(105.0, True, ONE_PER_HOUR), every(100.0), cost_s=10.0)
    assert (found.saving, found.redone) == (0.0, 105.0)


def test_a_life_that_goes_on_redoes_nothing():
    assert waste(Life(350.0, False, ONE_PER_HOUR), every(100.0), cost_s=10.0)[:3] == (30.0, 0.0, 0.0)


@given(
    lengths=st.lists(st.tuples(st.floats(0.0, 1e5), st.booleans()), min_size=1, max_size=20),
    seconds=st.floats(30.0, 1e5),
)
def test_fixed_intervals_for_all_lives_at_once_are_those_of_each(lengths, seconds):
    lives = [Life(length, lost, ONE_PER_HOUR) for length, lost in lengths]
    each = Waste()
    for life in lives:
        each = each.plus(waste(life, every(seconds), cost_s=10.0, restart_s=5.0))
    found = fixed(lives, seconds, cost_s=10.0, restart_s=5.0)
    assert found.bought == pytest.approx(each.bought)
    # A save that ends in the very moment of the loss may count either way, by the last bit of its time.
    assert sum(found[:3]) == pytest.approx(
        sum(each[:3]), abs=1e-6 + (seconds + 10.0) * len(lives) * (found[0] != each[0])
    )


def test_traces_without_spot_have_nothing_to_waste(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": [0, 0, 0]}))
    with pytest.raises(BadTrace, match="no time in which spot was up"):
        checkpoint.run(options("--learn", tmp_path, "--test", tmp_path))


@pytest.mark.skipif(not TRACES.is_dir(), reason="../shared is absent")
@pytest.mark.parametrize(
    "words",
    [
        ("--learn", TRACES / "spot-traces/availability/1-node/aws-10-26-2022", "--test", TRACES / "aws-extra-2022"),
        ("--learn", NINE_ZONES, "--test", NINE_ZONES, "--split-day", 15),
    ],
    ids=["2022", "2023"],
)
def test_saving_by_age_wastes_less_than_any_fixed_interval(words):
    rows = checkpoint.run(options(*words))
    own = {row["save_s"]: row["to_best_fixed"] for row in rows if row["policy"] == "cumulo, by age"}
    assert set(own) == set(COSTS_S)
    assert max(own.values()) < 0.95
    assert "cumulo, by age" in checkpoint.table(rows)
