"""Published results of serving, read as plans on clusters."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.advisor.boards import named_board
from bench.advisor.data import number, readable, shape, suspects, true, whole
from cumulo.advisor.serving_plan import ENGINE, ServingPlan, ServingPrecision
from cumulo.advisor.topology import Cluster, typical_cluster

FILE = "llm_serving_throughput"
_PRECISIONS: Mapping[str, ServingPrecision] = {
    "fp4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4", "fp8": "fp8", "int8": "int8", "w8a8": "int8", "int4": "int4",
    "w4a16": "int4", "awq": "int4", "gptq": "int4", "bf16": "bf16", "fp16": "fp16", "f16": "fp16",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One published result of serving. `concurrency` is None where as many as fit ran at once."""

    plan: ServingPlan
    cluster: Cluster
    isl: int
    osl: int
    concurrency: float | None
    actual: float
    gpu: str
    model: str
    source: str


def read(folder: Path) -> tuple[list[Served], list[Served], int, int]:
    """Offline results, results of one sequence, and how many of each are dropped."""
    many: list[Served] = []
    one: list[Served] = []
    dropped = {"": suspects(folder, FILE), "decode": 0}
    for row in readable(folder, FILE):
        phase = row.get("phase", "")
        if phase not in dropped:
            continue
        case = _served(row)
        if case is None:
            dropped[phase] += 1
        else:
            (one if phase else many).append(case)
    return many, one, dropped[""], dropped["decode"]


def _served(row: Mapping[str, str]) -> Served | None:
    """A row as a plan; None where it tells no rate, or names what the catalogue lacks."""
    board = named_board(row["gpu"])
    rate = number(row, "output_tokens_s")
    precision = _precision(row["precision"])
    if board is None or precision is None or not rate or true(row, "oom"):
        return None
    variant, kind = board
    gpus = whole(row, "gpus", 1)
    tp, pp = max(whole(row, "tp", 1), 1), max(whole(row, "pp", 1), 1)
    active, total = number(row, "active_params"), number(row, "params")
    told = {**row, "moe_active": str(active) if active < total else ""}
    held = number(row, "bits_per_weight")
    cluster = typical_cluster(variant, kind.architecture, memory_bytes=kind.memory_bytes, gpus=gpus)
    at_once = row.get("concurrency", "")
    return Served(
        plan=ServingPlan(
            shape=shape(told),
            precision=precision,
            tp=tp,
            pp=pp,
            weight_bits=held or None,
            engine=ENGINE if row["engine"].startswith("TensorRT-LLM 1") else row["engine"],
        ),
        cluster=cluster,
        isl=max(whole(row, "isl"), 1),
        osl=max(whole(row, "osl"), 1),
        concurrency=None if at_once.startswith("max") or not at_once else float(at_once),
        actual=rate / max(gpus // (tp * pp), 1),
        gpu=kind.name,
        model=row["model"],
        source=row.get("source", ""),
    )


def _precision(text: str) -> ServingPrecision | None:
    """GGUF's names (`Q4_K_M`, `Q8_0`) are of integers in as many bits."""
    name = text.strip().lower()
    if name.startswith("q"):
        return "int8" if name[1:2] == "8" else "int4"
    return _PRECISIONS.get(name)
