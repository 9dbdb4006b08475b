"""A spread holds what it should, and fitting writes one section of the file."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from bench.advisor.fit import fit, rounded, spread


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
