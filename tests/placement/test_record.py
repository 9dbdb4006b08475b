"""How earlier ranges fared, and what that makes of the next."""

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.placement.record import Range, Record

RAW = Range(low=1000.0, likely=4000.0, high=20000.0)


def test_without_outcomes_the_plays_are_believed():
    told = Record().correct(RAW, 0.0)
    assert (told.low, told.likely, told.high) == pytest.approx((1000.0, 4000.0, 20000.0))


def test_starts_that_come_later_than_told_move_it_all_later():
    record = Record()
    for _ in range(30):
        record.learn(RAW, 0.0, 30000.0)
    told = record.correct(RAW, 0.0)
    assert told.likely > 15000.0
    assert told.high > 25000.0


def test_starts_in_the_middle_make_it_narrower():
    record = Record()
    for _ in range(100):
        record.learn(RAW, 0.0, 4000.0)
    told = record.correct(RAW, 0.0)
    assert 2000.0 < told.low <= told.likely <= told.high < 10000.0


def test_what_cannot_be_told_stays_untold():
    told = Record().correct(Range(low=10.0, likely=20.0, high=inf), 0.0)
    assert told.high == inf
    assert told.likely == pytest.approx(20.0)


@pytest.mark.parametrize("factor", [0.2, 1.0, 4.0])
def test_in_the_long_run_eight_of_ten_hold_whatever_the_plays_leave_out(factor):
    random, record, held = Random(7), Record(), 0
    for number in range(2000):
        raw = Range(low=1000.0, likely=3000.0, high=9000.0)
        start = 3000.0 * factor * random.lognormvariate(0.0, 1.5)
        told = record.correct(raw, 0.0)
        held += number >= 500 and told.low <= start <= told.high
        record.learn(raw, 0.0, start)
    assert 0.77 < held / 1500 < 0.83


times = st.floats(0.0, 1e8)


@given(st.lists(st.tuples(times, times, times, times), max_size=20), times, times, times)
def test_a_range_is_one_and_never_before_now(outcomes, a, b, c):
    record = Record()
    for low, likely, high, start in outcomes:
        low, likely, high = sorted((low, likely, high))
        record.learn(Range(low=low, likely=likely, high=high), 0.0, start)
    low, likely, high = sorted((a, b, c))
    told = record.correct(Range(low=low, likely=likely, high=high), 0.0)
    assert 0.0 <= told.low <= told.likely <= told.high
