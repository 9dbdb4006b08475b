"""Ranges and spreads: order, units, and what is inside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.advisor.estimate import Range, Spread

positive = st.floats(1e-6, 1e9)
spreads = st.builds(Spread, st.floats(0.1, 1), st.floats(1, 10))


@given(spreads, positive, positive)
def test_a_range_keeps_its_order_whatever_is_done_to_it(spread, expected, by):
    for each in (spread.around(expected), spread.around(expected).scaled(by), spread.around(expected).inverted(by)):
        assert each.low <= each.expected <= each.high


def test_a_time_becomes_a_rate():
    assert Range(1.0, 2.0, 4.0).inverted(8.0) == Range(2.0, 4.0, 8.0)


def test_a_known_part_widens_nothing():
    shifted = Range(1.0, 2.0, 4.0).shifted(10.0)
    assert shifted == Range(11.0, 12.0, 14.0)
    assert shifted.ratio == pytest.approx(14 / 11)


def test_a_spread_is_widened_in_logarithms():
    assert Spread(0.5, 2.0).widened(2) == Spread(0.25, 4.0)


def test_bounds_are_inside():
    assert Range(1.0, 2.0, 4.0).holds(4.0)
    assert not Range(1.0, 2.0, 4.0).holds(4.1)
    assert Range.exactly(3.0).holds(3.0)
