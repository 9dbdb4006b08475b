"""Zero-knowledge proving with RISC Zero's zkVM: seconds of one operation over so many cycles, on one GPU.

A proof takes a fixed time and a time by cycles that falls with the rate of the shaders, and more of it on boards with
a small cache. Executing a program and
wrapping a proof for a chain run on the host: no GPU makes them faster. Fitted to RISC Zero's published datasheets.
"""

from collections.abc import Mapping
from math import exp, pow
from typing import Final

from cumulo.advisor.estimate import Range
from cumulo.advisor.laws.boards import has_small_cache, shader_rate, spread_for
from cumulo.catalog.coefficients import Coefficients
from cumulo.catalog.variants import Variant

_REFERENCE: Final = 2e13
_CYCLES: Final = 1e6
_ON_HOST: Final = ("execute", "bigint2_execute", "zeth", "stark2snark", "groth16")


def on_host(operation: str) -> bool:
    """Whether the operation runs on the host's CPU."""
    return operation.startswith(_ON_HOST)


def operations(coefficients: Coefficients) -> list[str]:
    """Names that `proving_seconds` knows."""
    constants = coefficients.laws.table("zk")
    return sorted(name.removeprefix("work ") for name in constants if name.startswith("work "))


def proving_seconds(operation: str, cycles: float, variant: Variant, coefficients: Coefficients) -> Range | None:
    """None where the board's shaders or clock are unknown. Raises KeyError for an operation of no known results."""
    seconds = seconds_of(coefficients.laws.table("zk"), operation, cycles, variant)
    name = "zk_host" if on_host(operation) else "zk"
    return None if seconds is None else spread_for(coefficients.laws, name, variant).around(seconds)


def seconds_of(constants: Mapping[str, float], operation: str, cycles: float, variant: Variant) -> float | None:
    """What is expected, by the logarithmic constants given."""
    work = exp(constants[f"work {operation}"]) * cycles / _CYCLES
    if on_host(operation):
        return work
    rate = shader_rate(variant)
    if rate is None:
        return None
    slower = exp(constants["small_cache"] * has_small_cache(variant))
    return exp(constants["fixed"]) + slower * work / pow(rate / _REFERENCE, constants["speed"])
