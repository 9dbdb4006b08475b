"""What a board can be used for at all, and what so many of them make: before anything is worked out."""

from dataclasses import replace
from typing import Any

from cumulo.advisor.plans import Refusal, Supply
from cumulo.advisor.topology import Cluster, typical_cluster
from cumulo.catalog.variants import Variant

_RATES = (
    "fp64_tflops", "fp64_tensor_tflops", "fp32_tflops", "tf32_tensor_tflops", "fp16_tensor_tflops",
    "fp16_accumulate_tflops", "fp8_tensor_tflops", "fp4_tensor_tflops", "int8_tensor_tops",
)  # fmt: skip


def cluster_of(supply: Supply, gpus: int) -> Cluster:
    """So many GPUs of a supply, in its nodes."""
    variant = variant_of(supply)
    if bridged(variant):
        variant = replace(variant, fabric_bandwidth=None)
    return typical_cluster(
        variant,
        supply.kind.architecture,
        memory_bytes=supply.memory_bytes,
        gpus=gpus,
        gpus_per_node=min(supply.per_node, gpus),
    )


def bridged(variant: Variant) -> bool:
    """Whether NVLink is a bridge between two cards, which those who rent them out rarely fit: PCIe is reckoned with."""
    return bool(variant.fabric_bandwidth) and (variant.form_factor or "").startswith("PCIe")


def has_fabric(variant: Variant) -> bool:
    """Whether GPUs of a node talk over more than PCIe."""
    return bool(variant.fabric_bandwidth) and not bridged(variant)


def variant_of(supply: Supply) -> Variant:
    """The board, or what a slice has of it: of its rates the share, of its bandwidth the share of the memory."""
    variant = supply.variant
    if supply.share >= 1:
        return variant
    rates: dict[str, Any] = {
        name: rate * supply.share for name in _RATES if (rate := getattr(variant, name)) is not None
    }
    for name in ("shaders", "compute_units"):
        if (number := getattr(variant, name)) is not None:
            rates[name] = max(1, int(number * supply.share))
    if variant.tdp_watts is not None:
        rates["tdp_watts"] = variant.tdp_watts * supply.share
    bandwidth = variant.memory_bandwidth
    memory_share = supply.memory_bytes / supply.kind.memory_bytes
    return replace(variant, **rates, memory_bandwidth=None if bandwidth is None else int(bandwidth * memory_share))


def refused_precision(supply: Supply, precision: str) -> Refusal | None:
    """Why a board can't compute so; a rate that no source states is unknown, not zero."""
    variant = supply.variant
    if precision == "bf16" and variant.bf16 is False:
        return Refusal("precision", f"{supply.name} has no BF16")
    column = {"fp8": "fp8_tensor_tflops", "fp4": "fp4_tensor_tflops", "int8": "int8_tensor_tops"}.get(precision)
    column = column or {"fp32": "fp32_tflops", "tf32": "tf32_tensor_tflops", "fp64": "fp64_tflops"}.get(precision)
    column = column or "fp16_tensor_tflops"
    if getattr(variant, column) is None:
        return Refusal("precision", f"{supply.name}: its {precision.upper()} rate is unknown or it has none")
    if variant.memory_bandwidth is None:
        return Refusal("unknown", f"{supply.name}: its memory bandwidth is unknown")
    return None
