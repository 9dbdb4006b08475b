from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.quantities import NANO
from cumulo.domain.reservation import Reservation

reservations = st.builds(
    lambda starts, lasts, count, price, upfront: Reservation(
        id="r", name="r", project="p", account="ada", region="local", kind="T4", count=count, price_nano_h=price,
        upfront_nano=upfront, created_at=0.0, starts_at=starts, ends_at=starts + lasts,
    ),
    st.floats(0, 1e6), st.floats(-10, 1e6), st.integers(1, 64), st.integers(0, 10 * NANO), st.integers(0, 10**6 * NANO),
)  # fmt: skip


@given(reservations, st.lists(st.floats(0, 3e6), max_size=6))
def test_what_it_costs_in_times_that_follow_one_another_adds_up_to_all_of_it(one, cuts):
    moments = [-1.0, *sorted(cuts), 4e6]
    parts = [one.cost_nano(since, until) for since, until in pairwise(moments)]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == one.cost_nano(-1.0, 4e6)
    seconds = max(0.0, one.ends_at - one.starts_at)
    whole = round(seconds * one.count * one.price_nano_h / 3600) + (one.upfront_nano if seconds else 0)
    assert sum(parts) == whole
