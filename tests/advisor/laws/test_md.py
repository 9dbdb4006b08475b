"""Molecular dynamics by its law."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.advisor.laws.md import CODES, nanoseconds_per_day
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import find
from cumulo.catalog.variants import Variant


def board(name: str) -> Variant:
    (kind,) = find(name)
    assert kind.typical
    return kind.typical


def rate(code: str, atoms: float, gpu: str, *, tuned: bool = False) -> float:
    found = nanoseconds_per_day(code, atoms, board(gpu), coefficients(), tuned=tuned)
    assert found
    return found.expected


@given(st.sampled_from(CODES), st.floats(1e4, 1e7))
def test_more_atoms_take_longer(code: str, atoms: float):
    assert rate(code, 1.5 * atoms, "A100-80GB") < rate(code, atoms, "A100-80GB")


def test_a_published_result_is_met():
    """HECBioSim: GROMACS makes 14.2 ns/day of 3 million atoms on a GH200."""
    assert rate("gromacs", 3e6, "GH200-96GB") == pytest.approx(14.2, rel=0.2)


def test_small_systems_gain_less_from_a_large_gpu():
    small = rate("gromacs", 2e4, "GH200-96GB") / rate("gromacs", 2e4, "V100-32GB")
    large = rate("gromacs", 3e6, "GH200-96GB") / rate("gromacs", 3e6, "V100-32GB")
    assert 1 < small < large


def test_a_benchmark_set_up_for_speed_is_faster():
    assert rate("gromacs", 1e6, "A100-80GB", tuned=True) > rate("gromacs", 1e6, "A100-80GB")


def test_one_die_of_a_two_die_board_counts():
    mi250, mi210 = rate("gromacs", 3e6, "MI250X"), rate("gromacs", 3e6, "MI210")
    assert mi250 == pytest.approx(mi210, rel=0.15)


def test_unknown_rates_give_no_estimate_and_unknown_codes_no_answer():
    blank = replace(board("A100-80GB"), fp32_tflops=None)
    assert nanoseconds_per_day("namd", 1e5, blank, coefficients()) is None
    with pytest.raises(KeyError):
        nanoseconds_per_day("charmm", 1e5, board("A100-80GB"), coefficients())
