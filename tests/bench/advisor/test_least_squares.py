"""Least squares with priors finds what made the data, and leaves alone what the data says nothing about."""

import numpy as np
import pytest

from bench.advisor.shrink import Prior, shrunk

HERE = np.linspace(0, 3, 40)


def test_constants_that_made_the_data_are_found():
    truth = {"a": 1.5, "b": -0.7}

    def residuals(constants):
        return (constants["a"] + constants["b"] * HERE) - (truth["a"] + truth["b"] * HERE)

    found = shrunk(residuals, {"a": Prior(0, 9), "b": Prior(0, 9)})
    assert found == pytest.approx(truth, abs=0.01)


def test_a_constant_that_nothing_tells_of_stays_where_it_is_drawn_to():
    found = shrunk(lambda constants: constants["a"] - np.ones(5), {"a": Prior(0, 9), "idle": Prior(0.4, 0.1)})
    assert found["idle"] == pytest.approx(0.4)


def test_a_tight_prior_holds_against_one_result_and_gives_way_to_many():
    one = shrunk(lambda constants: np.full(1, constants["a"] - 0.1), {"a": Prior(0, 0.1)})["a"]
    many = shrunk(lambda constants: np.full(500, constants["a"] - 0.1), {"a": Prior(0, 0.1)})["a"]
    assert one < 0.05 < many


def test_one_result_far_off_moves_little():
    off = np.array([0.0] * 20 + [5.0])
    assert abs(shrunk(lambda constants: constants["a"] - off, {"a": Prior(0, 9)})["a"]) < 0.05
