"""How long runs take, learnt: what is known at first, what a family's runs add, and what is left of one that runs."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.placement.durations import LONGEST_S, MOST_GROUPS, Durations
from cumulo.placement.traits import Traits

HOUR = 3600.0
TRAIN = Traits(project="lab", account="ada", family="train", gpus=8)
LEVELS = (0.1, 0.5, 0.9)


def quantiles(durations, traits, age=0.0):
    left = durations.left(traits, age)
    return [left.at(level) for level in LEVELS]


def knowing(*runs):
    durations = Durations()
    for traits, seconds in runs:
        durations.learn(traits, seconds)
    return durations


def test_before_anything_ended_hours_are_as_likely_as_minutes():
    low, middle, high = quantiles(Durations(), TRAIN)
    assert low < 10 * 60 < middle < 2 * HOUR < high


def test_many_runs_of_a_family_tell_how_long_the_next_takes():
    durations = knowing(*[(TRAIN, 2 * HOUR)] * 50)
    low, middle, high = quantiles(durations, TRAIN)
    assert 1.6 * HOUR < low <= middle <= high < 2.6 * HOUR


def test_a_stranger_is_judged_by_the_cloud_and_a_colleague_by_the_project():
    other = Traits(project="shop", account="bob", family="web", gpus=1)
    durations = knowing(*[(TRAIN, 10 * HOUR)] * 20, *[(other, 60.0)] * 20)
    colleague = Traits(project="lab", account="eve", family="new", gpus=1)
    stranger = Traits(project="new", account="zoe", family="new", gpus=1)
    assert quantiles(durations, colleague)[1] > 5 * HOUR
    assert quantiles(durations, other)[1] < 120.0
    assert 60.0 < quantiles(durations, stranger)[1] < 10 * HOUR


def test_what_is_left_is_of_the_runs_that_came_so_far():
    durations = knowing(*[(TRAIN, 60.0)] * 30, *[(TRAIN, 10 * HOUR)] * 30)
    assert quantiles(durations, TRAIN)[0] < 120.0
    low, _, high = quantiles(durations, TRAIN, age=HOUR)
    assert 6 * HOUR < low <= high < 12 * HOUR


def test_past_all_that_is_known_the_longer_it_has_run_the_longer_it_goes_on():
    durations = knowing(*[(TRAIN, 60.0)] * 30)
    assert quantiles(durations, TRAIN, age=HOUR)[1] < quantiles(durations, TRAIN, age=100 * HOUR)[1]


def test_a_limit_is_an_upper_limit_and_no_estimate():
    limited = Traits(project="lab", limit_s=8 * HOUR)
    low, middle, high = quantiles(Durations(), limited)
    assert 0.5 * HOUR < low < middle < 6 * HOUR < high <= 8 * HOUR
    assert quantiles(Durations(), limited, age=7.5 * HOUR)[2] <= 0.5 * HOUR
    assert quantiles(Durations(), limited, age=9 * HOUR) == [0.0, 0.0, 0.0]


def test_the_part_of_their_limits_that_people_take_is_learnt_across_limits():
    durations = knowing(*[(Traits(project="lab", limit_s=hours * HOUR), hours * 900.0) for hours in (1, 2, 4, 8) * 20])
    low, middle, high = quantiles(durations, Traits(project="lab", limit_s=32 * HOUR))
    assert 6 * HOUR < low < middle < high < 12 * HOUR, "a quarter, as of all others"


def test_what_was_cancelled_and_what_still_runs_makes_nothing_look_short():
    ended = knowing(*[(TRAIN, 600.0)] * 10)
    short = quantiles(ended, TRAIN)[2]
    for _ in range(10):
        ended.learn(TRAIN, 5 * HOUR, ended=False)
    assert quantiles(ended, TRAIN)[2] > short
    assert ended.runs == 10
    running = knowing(*[(TRAIN, 600.0)] * 10)
    running.see_running([(TRAIN, 5 * HOUR)] * 10)
    assert quantiles(running, TRAIN)[2] > short
    running.see_running([])
    assert quantiles(running, TRAIN)[2] == pytest.approx(short)


def test_what_changed_lately_counts_more():
    durations = knowing(*[(TRAIN, 60.0)] * 300, *[(TRAIN, 10 * HOUR)] * 300)
    again = knowing(*[(TRAIN, 10 * HOUR)] * 300, *[(TRAIN, 60.0)] * 300)
    assert quantiles(durations, TRAIN)[1] > HOUR > quantiles(again, TRAIN)[1]


def test_memory_is_bounded_and_the_longest_unseen_go_first():
    durations = Durations()
    for number in range(MOST_GROUPS):
        durations.learn(Traits(project=f"p{number}"), 60.0)
    assert len(durations._groups) == MOST_GROUPS
    assert ("",) in durations._groups, "all runs belong to it"


@given(
    st.lists(st.tuples(st.floats(0.5, 1e7), st.sampled_from((None, HOUR, 24 * HOUR))), max_size=30),
    st.floats(0.0, 1e7),
    st.sampled_from((None, HOUR, 24 * HOUR)),
)
def test_a_distribution_is_one(runs, age, limit):
    durations = knowing(*[(Traits(limit_s=each), seconds) for seconds, each in runs])
    left = durations.left(Traits(limit_s=limit), age)
    found = [left.at(level / 50) for level in range(50)]
    assert found == sorted(found)
    assert 0.0 <= found[0] <= found[-1] <= max(0.0, (limit or LONGEST_S) - age)


@given(st.integers(0, 2**32))
def test_what_is_told_holds_as_often_as_it_says(seed):
    """Log-normal runs, of which 200 are known: a fifth of the next 200 outside, give or take what chance does."""
    random = Random(seed)
    durations = knowing(*[(TRAIN, random.lognormvariate(8.0, 1.0)) for _ in range(200)])
    low, _, high = quantiles(durations, TRAIN)
    inside = sum(low <= random.lognormvariate(8.0, 1.0) <= high for _ in range(400)) / 400
    assert 0.65 < inside < 0.93
