"""Fitting finds what made the rows, forgives outliers, and writes one section of the file."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from bench.advisor.fit import fit, minimise, rounded, spread

TIMES = [(work, 3.0 * work + 0.5) for work in (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)]


def residuals(rows):
    return lambda held: [math.log((held["rate"] * work + held["launch"]) / seconds) for work, seconds in rows]


def test_constants_that_made_the_rows_are_found():
    found = minimise(residuals(TIMES), {"rate": 1.0, "launch": 1.0}, prior=5)
    assert found == pytest.approx({"rate": 3.0, "launch": 0.5}, rel=0.02)


def test_one_wild_row_pulls_little():
    found = minimise(residuals([*TIMES, (1.0, 35.0)]), {"rate": 1.0, "launch": 1.0}, prior=5)
    assert found == pytest.approx({"rate": 3.0, "launch": 0.5}, rel=0.15)


def test_what_rows_say_nothing_about_stays_where_it_was():
    found = minimise(residuals(TIMES), {"rate": 1.0, "launch": 1.0, "other": 7.0}, prior=5)
    assert found["other"] == pytest.approx(7.0, rel=1e-3)


def test_a_spread_holds_the_share_that_is_asked():
    low, high = spread([-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.1, -0.1, 1.5])
    inside = [each for each in (-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 1.5) if low <= math.exp(each) <= high]
    assert low * high == pytest.approx(1)
    assert len(inside) in (5, 7)


def test_a_spread_has_bounds():
    assert spread([0.0, 0.0])[1] == pytest.approx(1.02)
    low, high = spread([2.0, -2.0], most=2.0)
    assert high / low == pytest.approx(2.0)


def test_one_section_is_written_and_the_others_stay(tmp_path):
    path = tmp_path / "advisor.json"
    path.write_text(json.dumps({"version": 1, "laws": {"kept": 1.5}, "sources": {"laws": "there"}}))
    module: Any = SimpleNamespace(fit=lambda folder: {"rate": 1.23456789, "by": {"a": 2.0}}, SOURCES="rows")
    fit("training", module, tmp_path, path)
    assert json.loads(path.read_text()) == {
        "version": 1,
        "laws": {"kept": 1.5},
        "training": {"rate": 1.2346, "by": {"a": 2.0}},
        "sources": {"laws": "there", "training": "rows"},
    }


def test_constants_keep_five_figures():
    assert rounded({"a": (1.23456789, 2), "b": 1e-9}) == {"a": [1.2346, 2], "b": 1e-9}
