"""Least squares with priors finds what made the data, and leaves alone what the data says nothing about."""

import math

import numpy as np
import pytest

from bench.advisor.least_squares import Prior, minimise, minimise_positive

HERE = np.linspace(0, 3, 40)


def test_constants_that_made_the_data_are_found():
    truth = {"a": 1.5, "b": -0.7}

    def residuals(constants):
        return (constants["a"] + constants["b"] * HERE) - (truth["a"] + truth["b"] * HERE)

    found = minimise(residuals, {"a": Prior(0, 9), "b": Prior(0, 9)})
    assert found == pytest.approx(truth, abs=0.01)


def test_a_constant_that_nothing_tells_of_stays_where_it_is_drawn_to():
    found = minimise(lambda constants: constants["a"] - np.ones(5), {"a": Prior(0, 9), "idle": Prior(0.4, 0.1)})
    assert found["idle"] == pytest.approx(0.4)


def test_a_tight_prior_holds_against_one_result_and_gives_way_to_many():
    one = minimise(lambda constants: np.full(1, constants["a"] - 0.1), {"a": Prior(0, 0.1)})["a"]
    many = minimise(lambda constants: np.full(500, constants["a"] - 0.1), {"a": Prior(0, 0.1)})["a"]
    assert one < 0.05 < many


def test_one_result_far_off_moves_little():
    off = np.array([0.0] * 20 + [5.0])
    assert abs(minimise(lambda constants: constants["a"] - off, {"a": Prior(0, 9)})["a"]) < 0.05


TIMES = [(work, 3.0 * work + 0.5) for work in (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)]
PRIORS = {"rate": Prior(1.0, 5), "launch": Prior(1.0, 5)}


def residuals(rows):
    return lambda held: [math.log((held["rate"] * work + held["launch"]) / seconds) for work, seconds in rows]


def test_positive_constants_that_made_the_rows_are_found():
    found = minimise_positive(residuals(TIMES), PRIORS)
    assert found == pytest.approx({"rate": 3.0, "launch": 0.5}, rel=0.02)


def test_one_wild_row_pulls_little():
    found = minimise_positive(residuals([*TIMES, (1.0, 35.0)]), PRIORS)
    assert found == pytest.approx({"rate": 3.0, "launch": 0.5}, rel=0.15)


def test_what_rows_say_nothing_about_stays_where_it_was():
    found = minimise_positive(residuals(TIMES), {**PRIORS, "other": Prior(7.0, 5)})
    assert found["other"] == pytest.approx(7.0, rel=1e-3)
