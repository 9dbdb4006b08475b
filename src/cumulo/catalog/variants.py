"""What each board of a GPU is capable of, from a table in which every figure has its source.

All rates are dense: vendors often print the double, for 2:4 sparsity. Rates in TFLOPS (10**12 a second),
bandwidths in bytes a second. `flags` tells of traps and conflicts between sources.
"""

import csv
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One board, as specified; None where no source was found. Per GPU, also where a board has several."""

    name: str
    form_factor: str | None
    memory_type: str | None
    memory_bandwidth: int | None
    fabric_bandwidth: int | None
    """NVLink, Infinity Fabric or Xe Link, both directions together."""
    pcie: str | None
    fp64_tflops: float | None
    fp64_tensor_tflops: float | None
    fp32_tflops: float | None
    tf32_tensor_tflops: float | None
    fp16_tensor_tflops: float | None
    """FP16 and BF16 with FP32 accumulation."""
    fp16_accumulate_tflops: float | None
    """FP16 with FP16 accumulation, where it is faster (GeForce)."""
    fp8_tensor_tflops: float | None
    fp4_tensor_tflops: float | None
    int8_tensor_tops: float | None
    bf16: bool | None
    shaders: int | None
    compute_units: int | None
    """SMs or CUs."""
    tensor_cores: int | None
    rt_cores: int | None
    boost_mhz: int | None
    tdp_watts: float | None
    mig_max_instances: int | None
    ecc: str | None
    vgpu: str | None
    compute_target: str | None
    released: str | None
    flags: str | None
    source: str


_RENAMED = {
    "gpu": "name",
    "pcie_gen": "pcie",
    "fp16_bf16_tensor_tflops_dense": "fp16_tensor_tflops",
    "fp16_tensor_fp16acc_dense": "fp16_accumulate_tflops",
    "tf32_tensor_tflops_dense": "tf32_tensor_tflops",
    "fp8_tensor_tflops_dense": "fp8_tensor_tflops",
    "fp4_tensor_tflops_dense": "fp4_tensor_tflops",
    "int8_tensor_tops_dense": "int8_tensor_tops",
    "bandwidth_gb_s": "memory_bandwidth",
    "nvlink_or_fabric_gb_s_bidir": "fabric_bandwidth",
    "bf16_native": "bf16",
    "cuda_cores_or_shaders": "shaders",
    "sms_or_cus": "compute_units",
    "tdp_w": "tdp_watts",
    "vgpu_support": "vgpu",
    "compute_capability_or_target": "compute_target",
    "release": "released",
}
_NAMES = {field.name for field in fields(Variant)}


def load_variants(path: Path) -> dict[str, Variant]:
    """The boards of the table at `path` by name, in its order."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        names = [_RENAMED.get(column, column) for column in next(rows)]
        kept = [(index, name) for index, name in enumerate(names) if name in _NAMES]
        variants = [Variant(**{name: _convert(name, row[index]) for index, name in kept}) for row in rows]
    return {variant.name: variant for variant in variants}


_TYPES = {field.name: str(field.type) for field in fields(Variant)}


def _convert(name: str, text: str) -> Any:
    if not text:
        return None
    if name.endswith("_bandwidth"):
        return round(float(text) * 10**9)
    if name == "bf16":
        return text != "no"
    kind = _TYPES[name]
    return float(text) if kind.startswith("float") else int(float(text)) if kind.startswith("int") else text
