"""MLPerf's benchmarks by their law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.advisor.laws.benchmarks import (
    inference_benchmarks,
    inference_rate,
    seconds_to_train,
    training_benchmarks,
)
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import find
from cumulo.catalog.variants import Variant

CONSTANTS = coefficients()


def board(name: str) -> Variant:
    (kind,) = find(name)
    assert kind.typical
    return kind.typical


def minutes(benchmark: str, gpus: int, gpu: str = "H100-80GB") -> float:
    found = seconds_to_train(benchmark, gpus, board(gpu), CONSTANTS)
    assert found
    return found.expected / 60


@given(st.sampled_from(training_benchmarks(CONSTANTS)), st.integers(8, 2000))
def test_more_gpus_train_sooner_but_never_in_proportion(benchmark: str, gpus: int):
    few, more = minutes(benchmark, gpus), minutes(benchmark, 2 * gpus)
    assert few / 2 < more < few


def test_published_times_are_met():
    assert minutes("bert", 8) == pytest.approx(5.4, rel=0.15)
    assert minutes("llama2_70b_lora", 8) == pytest.approx(28.2, rel=0.15)
    assert minutes("ssd", 2528) == pytest.approx(0.78, rel=0.25)


def test_a_newer_gpu_is_sooner():
    for benchmark in training_benchmarks(CONSTANTS):
        times = [minutes(benchmark, 8, gpu) for gpu in ("B200-180GB", "H200-141GB", "H100-80GB", "A100-80GB", "L40S")]
        assert times[:4] == sorted(times[:4])


def test_inference_is_counted_by_gpu():
    one = inference_rate("llama2-70b-99", "Offline", 1, board("H100-80GB"), CONSTANTS)
    eight = inference_rate("llama2-70b-99", "Offline", 8, board("H100-80GB"), CONSTANTS)
    assert one
    assert eight
    assert eight.expected == pytest.approx(8 * one.expected)
    assert eight.expected == pytest.approx(24_000, rel=0.15)
    assert "llama2-70b-99 Offline" in inference_benchmarks(CONSTANTS)


def test_a_board_that_results_know_has_a_narrower_range():
    known = seconds_to_train("bert", 8, board("H100-80GB"), CONSTANTS)
    unseen = seconds_to_train("bert", 8, board("MI355X"), CONSTANTS)
    assert known
    assert unseen
    assert known.ratio < unseen.ratio


def test_what_no_result_tells_has_no_answer():
    with pytest.raises(KeyError):
        seconds_to_train("flux", 8, board("H100-80GB"), CONSTANTS)
    assert seconds_to_train("bert", 8, board("P40"), CONSTANTS) is None
