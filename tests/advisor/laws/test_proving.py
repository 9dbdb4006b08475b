"""Proving by its law."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.advisor.laws.proving import on_host, operations, proving_seconds
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import find
from cumulo.catalog.variants import Variant

CONSTANTS = coefficients()


def board(name: str) -> Variant:
    (kind,) = find(name)
    assert kind.typical
    return kind.typical


def seconds(operation: str, cycles: float, gpu: str) -> float:
    found = proving_seconds(operation, cycles, board(gpu), CONSTANTS)
    assert found
    return found.expected


@given(st.floats(1e4, 1e7))
def test_twice_the_cycles_take_less_than_twice_as_long(cycles: float):
    once, twice = seconds("rv32im", cycles, "L4"), seconds("rv32im", 2 * cycles, "L4")
    assert once < twice < 2 * once


def test_published_times_are_met():
    assert seconds("rv32im", 1_048_576, "L4") == pytest.approx(1.88, rel=0.25)
    assert seconds("rv32im", 1_048_576, "RTX4090") < seconds("rv32im", 1_048_576, "RTX3090") < 4


def test_what_runs_on_the_host_takes_as_long_beside_any_gpu():
    for operation in filter(on_host, operations(CONSTANTS)):
        assert seconds(operation, 1e6, "L4") == seconds(operation, 1e6, "RTX4090")


def test_unknown_rates_and_operations():
    blank = replace(board("L4"), boost_mhz=None)
    assert proving_seconds("rv32im", 1e6, blank, CONSTANTS) is None
    with pytest.raises(KeyError):
        seconds("plonk", 1e6, "L4")
