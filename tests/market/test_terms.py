import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.catalog.terms import list_terms
from cumulo.market.terms import YEAR_S, Terms

MONTH_S = 30 * 86400.0
KIND, RATE = "A100-80GB", 1_200_000_000


def test_the_floor_is_what_clouds_ask_for_spot_unless_the_admin_says_otherwise():
    assert Terms().floor_nano_h(KIND, RATE) == RATE * list_terms(KIND).spot_milli // 1000
    assert Terms(spot_floor_of_all=250).floor_nano_h(KIND, RATE) == RATE // 4
    assert Terms(spot_floor={KIND: 500}, spot_floor_of_all=250).floor_nano_h(KIND, RATE) == RATE // 2


def test_a_year_costs_what_clouds_ask_for_it_and_less_than_a_year_what_on_demand_does():
    assert Terms().reserved_nano_h(KIND, RATE, term_s=YEAR_S, upfront=False) == RATE * 634 // 1000
    assert Terms().reserved_nano_h(KIND, RATE, term_s=MONTH_S, upfront=False) == RATE
    assert Terms().reserved_nano_h(KIND, RATE, term_s=MONTH_S, upfront=True) == RATE


def test_the_longest_term_that_is_reached_counts():
    terms = Terms(reserved={MONTH_S: 850, YEAR_S: 600}, upfront={YEAR_S: 550})
    monthly = terms.reserved_nano_h(KIND, 1000, term_s=2 * MONTH_S, upfront=True)
    yearly = terms.reserved_nano_h(KIND, 1000, term_s=2 * YEAR_S, upfront=True)
    assert (monthly, yearly) == (850, 550)
    assert terms.reserved_nano_h(KIND, 1000, term_s=86400.0, upfront=False) == 1000


@given(st.integers(0, 10**12), st.sampled_from([KIND, "L4", "X900"]), st.floats(1, 1e9), st.booleans())
def test_no_option_costs_more_than_on_demand(rate, kind, term_s, upfront):
    assert 0 <= Terms().floor_nano_h(kind, rate) <= rate
    assert 0 <= Terms().reserved_nano_h(kind, rate, term_s=term_s, upfront=upfront) <= rate


def test_a_ratio_above_one_is_refused():
    with pytest.raises(ValueError, match=r"1\.2 of the on-demand price for A100-80GB: it must be from 0 to 1"):
        Terms(spot_floor={KIND: 1200})
