"""MLPerf's named benchmarks: time to train, and rate of inference, on so many GPUs of a kind.

Time to train is what can be spread over GPUs, plus what can't: k (n/8)^-a / speed + fixed. A board's speed is its
8-bit matrix rate, bandwidth and power, each to an exponent that a benchmark has mostly in common with the others.
"""

from collections.abc import Mapping
from math import exp, log
from typing import Final

from cumulo.advisor.estimate import Range
from cumulo.advisor.laws.boards import Logs, has_own_host, matrix_logs, runs_rocm, spread_for
from cumulo.catalog.coefficients import Coefficients
from cumulo.catalog.variants import Variant

_NODE: Final = 8
_LEAST: Final = 0.02
"""Exponent of the bandwidth: no benchmark is slower for a faster memory."""


def training_benchmarks(coefficients: Coefficients) -> list[str]:
    """Names that `seconds_to_train` knows."""
    return _known(coefficients.laws.table("mlperf_training"))


def inference_benchmarks(coefficients: Coefficients) -> list[str]:
    """`benchmark scenario` names that `inference_rate` knows."""
    return _known(coefficients.laws.table("mlperf_inference"))


def seconds_to_train(
    benchmark: str, gpus: int, variant: Variant, coefficients: Coefficients, *, framework: str = ""
) -> Range | None:
    """Until the benchmark's quality is reached. None where a rate of the board is unknown.

    Raises KeyError for a benchmark that no results are known of.
    """
    laws = coefficients.laws
    expected = training_minutes(laws.table("mlperf_training"), benchmark, gpus, variant, framework=framework)
    return None if expected is None else spread_for(laws, "mlperf_training", variant).around(60 * expected)


def inference_rate(
    benchmark: str, scenario: str, gpus: int, variant: Variant, coefficients: Coefficients
) -> Range | None:
    """Samples, queries or tokens a second, as the benchmark counts. `scenario` is `Offline` or `Server`.

    None where a rate of the board is unknown. Raises KeyError for a benchmark that no results are known of.
    """
    laws = coefficients.laws
    expected = rate_of_inference(laws.table("mlperf_inference"), benchmark, scenario, gpus, variant)
    return None if expected is None else spread_for(laws, "mlperf_inference", variant).around(expected)


def training_minutes(
    constants: Mapping[str, float], benchmark: str, gpus: int, variant: Variant, *, framework: str
) -> float | None:
    """What is expected, by the logarithmic constants given."""
    logs = matrix_logs(variant, integers=False)
    if logs is None:
        return None
    spread = (constants["scaling"] + constants[f"scaling {benchmark}"]) * log(gpus / _NODE)
    slower = constants["tinygrad"] * ("tinygrad" in framework.lower())
    least = exp(constants[f"fixed {benchmark}"])
    return (
        exp(constants[f"work {benchmark}"] + slower - spread - board_speed(constants, benchmark, variant, logs)) + least
    )


def rate_of_inference(
    constants: Mapping[str, float], benchmark: str, scenario: str, gpus: int, variant: Variant
) -> float | None:
    """What is expected, by the logarithmic constants given. A stricter accuracy (`-99.9`) is a benchmark of its own."""
    logs = matrix_logs(variant, integers=True)
    if logs is None:
        return None
    speed = board_speed(constants, benchmark.removesuffix(".9"), variant, logs)
    return gpus * exp(constants[f"work {benchmark} {scenario}"] + speed)


def board_speed(constants: Mapping[str, float], benchmark: str, variant: Variant, logs: Logs) -> float:
    """The logarithm of a board's speed over an H100 SXM's."""
    compute = constants["compute"] + constants[f"compute {benchmark}"]
    memory = max(constants["memory"] + constants[f"memory {benchmark}"], _LEAST)
    reached = logs.compute + constants.get(f"achieved {variant.name}", 0.0)
    rates = compute * reached + memory * logs.memory + constants["power"] * logs.power
    return rates + constants["own_host"] * has_own_host(variant) - constants["rocm"] * runs_rocm(variant)


def _known(constants: Mapping[str, float]) -> list[str]:
    return sorted(name.removeprefix("work ") for name in constants if name.startswith("work "))
