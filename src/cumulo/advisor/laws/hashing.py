"""Hash rates: how many hashes a second one GPU tries.

Memory-hard hashes are bound by the bytes each must read, the others by 32-bit operations. So one constant an algorithm
is enough: the share of the bandwidth reached, or the operations one hash takes.
"""

from collections.abc import Mapping
from math import exp
from typing import Final

from cumulo.advisor.estimate import Range
from cumulo.advisor.laws.boards import shader_rate, spread_for
from cumulo.catalog.coefficients import Coefficients
from cumulo.catalog.variants import Variant

# Bytes read by one hash: 64 accesses of 128 bytes (Ethash's specification) or 256 (ProgPoW's, of which KawPoW is one).
TRAFFIC: Final = {"ethash": 64 * 128, "kawpow": 64 * 256}


def hash_algorithms(coefficients: Coefficients) -> list[str]:
    """Names that `hashes_per_second` knows."""
    return sorted(coefficients.laws.table("hash"))


def hashes_per_second(algorithm: str, variant: Variant, coefficients: Coefficients) -> Range | None:
    """Of one GPU. None where the board's bandwidth, or shaders and clock, are unknown.

    Raises KeyError for an algorithm that no results are known of.
    """
    rate = hash_rate(coefficients.laws.table("hash"), algorithm, variant)
    return None if rate is None else spread_for(coefficients.laws, "hash", variant).around(rate)


def hash_rate(constants: Mapping[str, float], algorithm: str, variant: Variant) -> float | None:
    """What is expected, by the logarithmic constants given."""
    if traffic := TRAFFIC.get(algorithm):
        bandwidth = variant.memory_bandwidth
        return bandwidth / traffic * exp(constants[algorithm]) if bandwidth else None
    rate = shader_rate(variant)
    return rate / exp(constants[algorithm]) if rate else None
