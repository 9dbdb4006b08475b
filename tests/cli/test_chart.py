from hypothesis import given
from hypothesis import strategies as st

from cumulo.cli.chart import Step, columns, drawn


def test_a_column_is_the_mean_over_its_time():
    steps = [Step(0.0, 1.0), Step(15.0, 3.0)]
    assert columns(steps, since=0.0, until=40.0, width=4) == [1.0, 2.0, 3.0, 3.0]


def test_nothing_is_drawn_before_anything_is_known():
    assert columns([Step(10.0, 1.0)], since=0.0, until=20.0, width=2) == [None, 1.0]
    assert columns([], since=0.0, until=20.0, width=2) == [None, None]


def test_it_is_drawn_from_nothing_to_the_top():
    assert drawn([None, 0.0, 1.0, 2.0], top=2.0, height=2) == "2.00 ┤   █\n1.00 ┤  ██\n0.00 └────"


@given(st.lists(st.floats(0, 2), min_size=1, max_size=20), st.integers(1, 8))
def test_every_line_is_as_wide_as_it_has_columns_at_most(values, height):
    lines = drawn(values, top=2.0, height=height).split("\n")
    assert len(lines) == height + 1
    assert all(len(line) <= len(values) + 6 for line in lines)
