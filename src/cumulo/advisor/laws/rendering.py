"""Rendering: what a benchmark's score says of other boards, and of a job's time.

Few scores are published with their conditions, so the law is the plainest there is: samples follow the FP32 rate. Its
range is wide because nothing narrows it.
"""

from collections.abc import Mapping
from math import exp

from cumulo.advisor.estimate import Range, Spread
from cumulo.catalog.coefficients import Coefficients
from cumulo.catalog.variants import Variant


def rendering_benchmarks(coefficients: Coefficients) -> list[str]:
    """Names that `rendering_score` knows."""
    return sorted(coefficients.laws.table("rendering"))


def rendering_score(benchmark: str, variant: Variant, coefficients: Coefficients) -> Range | None:
    """In the benchmark's unit: samples a minute (Blender Open Data), points (OctaneBench).

    None where the FP32 rate is unknown. Raises KeyError for a benchmark that no results are known of.
    """
    score = score_of(coefficients.laws.table("rendering"), benchmark, variant)
    return None if score is None else Spread(*coefficients.laws.spread("rendering")).around(score)


def job_seconds(
    measured_seconds: float, measured_on: Variant, variant: Variant, coefficients: Coefficients
) -> Range | None:
    """What a job takes on `variant` that took `measured_seconds` on another board: how people should ask."""
    if not measured_on.fp32_tflops or not variant.fp32_tflops:
        return None
    expected = measured_seconds * measured_on.fp32_tflops / variant.fp32_tflops
    return Spread(*coefficients.laws.spread("rendering")).around(expected)


def score_of(constants: Mapping[str, float], benchmark: str, variant: Variant) -> float | None:
    """What is expected, by the logarithmic constants given: score per TFLOPS of FP32."""
    return exp(constants[benchmark]) * variant.fp32_tflops if variant.fp32_tflops else None
