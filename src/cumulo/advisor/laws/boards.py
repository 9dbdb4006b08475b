"""What the laws ask of a board: its rates beside those of a reference, so that exponents are all that is fitted."""

from math import log
from typing import Final, NamedTuple

from cumulo.advisor.estimate import Spread
from cumulo.catalog.coefficients import Section
from cumulo.catalog.kinds import find
from cumulo.catalog.variants import Variant

_TFLOPS: Final = 1979.0
_TFLOPS_32: Final = 66.9
_BYTES_S: Final = 3.35e12
_WATTS: Final = 700.0
# Compute capabilities whose boards have an L2 cache of a few MB: before Ada, but for the A100.
_SMALL_CACHE: Final = frozenset({"3.7", "6.0", "6.1", "7.0", "7.5", "8.6"})
# Compute units of one die of AMD's two-die boards: a program sees two devices.
_TWO_DIES: Final = ("gfx90a", 110)


class Logs(NamedTuple):
    """Logarithms of a board's rates over an H100 SXM's."""

    compute: float
    """The fastest dense rate of matrix products that the law counts."""
    memory: float
    power: float
    """Of boards held to less power than theirs would take; 0 where it is unknown, or enough."""


def dies(variant: Variant) -> int:
    """Devices that a program sees on one board."""
    target, units = _TWO_DIES
    return 2 if variant.compute_target == target and (variant.compute_units or 0) > units else 1


def spread_for(laws: Section, law: str, variant: Variant) -> Spread:
    """A law's range on a board: narrower where results of its family were among those that it was fitted to."""
    seen = laws.values["seen"].get(law, {})
    kinds = find(variant.name)
    known = bool(kinds) and kinds[0].family in seen
    return Spread(*laws.spread(law if known else f"{law}_unseen"))


def has_small_cache(variant: Variant) -> bool:
    return variant.compute_target in _SMALL_CACHE


def has_own_host(variant: Variant) -> bool:
    """Whether the GPU shares its package with a CPU that feeds it alone."""
    return (variant.form_factor or "").startswith("superchip")


def runs_rocm(variant: Variant) -> bool:
    return (variant.compute_target or "").startswith("gfx")


def matrix_logs(variant: Variant, *, integers: bool) -> Logs | None:
    """By 8-bit matrix rates (of integers too where they serve), else 16-bit; None where a rate is unknown."""
    eight = variant.fp8_tensor_tflops or (variant.int8_tensor_tops if integers else None)
    rate = eight or variant.fp16_tensor_tflops
    return _logs(variant, rate, _TFLOPS, 1)


def vector_logs(variant: Variant) -> Logs | None:
    """By FP32 rate, for one device of the board; None where a rate is unknown."""
    return _logs(variant, variant.fp32_tflops, _TFLOPS_32, dies(variant))


def shader_rate(variant: Variant) -> float | None:
    """32-bit operations a second that need no multiplication: shaders x clock."""
    if not variant.shaders or not variant.boost_mhz:
        return None
    return variant.shaders * variant.boost_mhz * 1e6


def _logs(variant: Variant, rate: float | None, reference: float, devices: int) -> Logs | None:
    if not rate or not variant.memory_bandwidth:
        return None
    return Logs(
        compute=log(rate / devices / reference),
        memory=log(variant.memory_bandwidth / devices / _BYTES_S),
        power=log(min(variant.tdp_watts / _WATTS, 1)) if variant.tdp_watts else 0.0,
    )
