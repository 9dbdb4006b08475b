"""Rendering by its law."""

import pytest

from cumulo.advisor.laws.rendering import job_seconds, rendering_benchmarks, rendering_score
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import find
from cumulo.catalog.variants import Variant

CONSTANTS = coefficients()


def board(name: str) -> Variant:
    (kind,) = find(name)
    assert kind.typical
    return kind.typical


def test_a_published_score_is_met_and_others_scale_by_the_fp32_rate():
    known = rendering_score("Blender Open Data", board("RTX3060"), CONSTANTS)
    other = rendering_score("Blender Open Data", board("RTX4090"), CONSTANTS)
    assert known
    assert other
    assert known.expected == pytest.approx(2229, rel=0.05)
    assert other.expected / known.expected == pytest.approx(82.6 / 12.7, rel=0.01)
    assert "OctaneBench 2020.1" in rendering_benchmarks(CONSTANTS)


def test_a_job_measured_on_one_board_takes_less_on_a_faster_one():
    found = job_seconds(3600, board("RTX3090"), board("RTX4090"), CONSTANTS)
    assert found
    assert found.low < found.expected < found.high
    assert found.expected == pytest.approx(3600 * 35.6 / 82.6)


def test_no_score_of_an_unknown_benchmark():
    with pytest.raises(KeyError):
        rendering_score("V-Ray", board("RTX4090"), CONSTANTS)
