"""The interior point: near the corner the optimum's prices, further from it smooth ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.placement.fleet.interior import NoSolution, central_prices


def test_near_the_corner_the_prices_are_those_of_the_optimum():
    # Maximise 3a + 5b with a <= 4, 2b <= 12, 3a + 2b <= 18: the optimum is a = 2, b = 6, its prices 0, 3/2 and 1.
    use = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 2.0]])
    prices = central_prices(use, np.array([4.0, 12.0, 18.0]), np.array([3.0, 5.0]), 1e-9)
    np.testing.assert_allclose(prices, [0.0, 1.5, 1.0], atol=1e-6)


def test_where_any_price_would_do_the_path_leads_between_them():
    # Demand and room are both 1: either may have the whole price. The central path shares it.
    prices = central_prices(np.array([[1.0], [1.0]]), np.array([1.0, 1.0]), np.array([1.0]), 1e-6)
    np.testing.assert_allclose(prices, [0.5, 0.5], atol=1e-3)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_prices_bound_what_can_be_gained(rows, columns, seed):
    random = np.random.default_rng(seed)
    use = random.uniform(0.0, 1.0, (rows, columns)) + 0.05
    limits, gain = random.uniform(0.5, 2.0, rows), random.uniform(0.1, 2.0, columns)
    prices = central_prices(use, limits, gain, 1e-7)
    # Weak duality: no column brings more than what it uses is worth, and no plan more than the limits are.
    assert (prices >= 0).all()
    assert (use.T @ prices >= gain - 1e-6).all()
    one = np.array([gain[column] * (limits / use[:, column]).min() for column in range(columns)])
    assert prices @ limits >= one.max() - 1e-6


def test_no_solution_is_said():
    with pytest.raises(NoSolution, match=r"steps|step from"):
        central_prices(np.array([[1.0]]), np.array([1e-300]), np.array([1e300]), 1e-9)
