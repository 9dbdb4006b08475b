"""Memory: published peaks of fine-tuning, pretraining and generating, beside the need as advised."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.advisor import data
from bench.advisor.finetunes import finetune_plan, held_as
from bench.advisor.fit import spread
from bench.advisor.least_squares import Prior, minimise_positive
from bench.advisor.score import Row, Target
from bench.advisor.training_cases import throughput_plan
from cumulo.advisor.estimate import Range
from cumulo.advisor.memory import CONTEXT_BYTES, held_weights, inference_memory, training_memory
from cumulo.advisor.topology import Cluster
from cumulo.advisor.training_plan import TrainingPlan
from cumulo.catalog.coefficients import Coefficients, coefficients
from cumulo.catalog.models import ModelShape
from cumulo.domain.quantities import GIB

SOURCES = "litgpt (2024, PyTorch eager), torchtune (2025, compiled), torchtitan (2024); mixed precision: seven reports"


class Generation(NamedTuple):
    """One sequence at a time, on one GPU."""

    shape: ModelShape
    held_as: str
    context: int


class Case(NamedTuple):
    """One measured peak in bytes; `needed` is None where it ran out of memory."""

    question: TrainingPlan | Generation
    cluster: Cluster
    peak: float
    out_of_memory: bool
    model: str
    source: str
    gpu: str


def cases(folder: Path) -> list[Case]:
    """Every row that tells a peak, or that there was not memory enough."""
    found = data.built(data.readable(folder, "finetune_memory_time"), _finetune)
    found += data.built(data.readable(folder, "llm_training_throughput"), _pretrain)
    found += data.built(data.readable(folder, "pretrain_memory"), _pretrain)
    return [case for case in found if case.peak or case.out_of_memory]


def _finetune(row: data.Cells) -> Case:
    method, gpus = row["method"].lower(), data.whole(row, "gpus", 1)
    where, shape = data.cluster(row["gpu"], gpus), data.shape(row)
    question = (
        Generation(shape, held_as(method), data.whole(row, "seq", 512))
        if method.startswith("inference")
        else finetune_plan(row, method, shape, gpus)
    )
    return Case(
        question,
        where,
        data.number(row, "peak_mem_gb") * 1e9,
        data.true(row, "oom"),
        row.get("model", ""),
        row.get("source_table", ""),
        row["gpu"],
    )


def _pretrain(row: data.Cells) -> Case:
    told = row.get("act_ckpt") or row.get("mode", "")
    plan, where = throughput_plan({**row, "act_ckpt": told, "sharding": row.get("sharding") or row.get("mode", "")})
    peak = (data.number(row, "peak_mem_gib") or data.number(row, "peak_gib")) * GIB
    return Case(plan, where, peak, False, row.get("model", ""), row.get("source_table", ""), row["gpu"])


def needed(case: Case, held: Coefficients) -> Range:
    if isinstance(case.question, Generation):
        shape, held_as, context = case.question
        return inference_memory(shape, held_as, context=context, coefficients=held)
    return training_memory(case.question, case.cluster, held).total


START: dict[str, float] = {
    "kept_hidden": 10.0,
    "kept_gated": 8.0,
    "kept_plain": 4.0,
    "kept_share.full": 1.0,
    "kept_share.lora": 1.0,
    "kept_share.qlora": 1.3,
    "kept_share.adapter-v2": 1.6,
    "kept_selective": 0.6,
    "logit_bytes": 10.0,
    "reserve_bytes": 0.5e9,
}


def with_constants(held: Coefficients, flat: Mapping[str, float]) -> Coefficients:
    values: dict[str, Any] = {"spread": {"memory": (1.0, 1.0), "inference": (1.0, 1.0)}}
    for name, value in flat.items():
        table, _, key = name.partition(".")
        if key:
            values.setdefault(table, {})[key] = value
        else:
            values[name] = value
    return held.replaced("memory", values)


def fitted(known: Sequence[Case], held: Coefficients) -> Coefficients:
    def residuals(flat: Mapping[str, float]) -> list[float]:
        tried = with_constants(held, flat)
        return [residual(case, tried) for case in known]

    priors = {name: Prior(value, 0.5) for name, value in START.items()}
    return with_constants(held, minimise_positive(residuals, priors))


def residual(case: Case, held: Coefficients) -> float:
    return math.log(needed(case, held).expected / case.peak)


def measured(folder: Path) -> list[Case]:
    return [case for case in cases(folder) if case.peak]


def left_out(known: Sequence[Case], family: str) -> list[tuple[Case, float]]:
    """Each case with the residual that it has by constants fitted without its model, source or GPU."""
    found = []
    for name in sorted({getattr(case, family) for case in known}):
        rest = fitted([case for case in known if getattr(case, family) != name], coefficients())
        found += [(case, residual(case, rest)) for case in known if getattr(case, family) == name]
    return found


def fit(folder: Path) -> dict[str, Any]:
    """The section `memory`: constants fitted on all cases, spreads by models that were left out."""
    known = measured(folder)
    found = {**fitted(known, coefficients()).memory.values, "kept_fp32": kept_fp32(folder)}
    residuals: dict[str, list[float]] = {}
    for case, each in left_out(known, "model"):
        residuals.setdefault("inference" if isinstance(case.question, Generation) else "memory", []).append(each)
    return {**found, "spread": {name: spread(each, least=1.06, most=2.0) for name, each in residuals.items()}}


def kept_fp32(folder: Path) -> float:
    """How much more is kept without mixed precision: the median of those that it saved anything. Not twice as much."""
    rows = data.rows(folder, "amp_measurements")
    ratios = sorted(data.number(row, "mem_fp32") / data.number(row, "mem_amp") for row in rows)
    saved = [ratio for ratio in ratios if ratio > 1] or [1.4]
    return saved[len(saved) // 2]


def targets(folder: Path) -> dict[str, Target]:
    held = coefficients()
    rows = [_row(case, needed(case, held)) for case in measured(folder)]
    dropped = data.suspects(folder, "finetune_memory_time")
    return {"memory": Target(rows, dropped)} if rows else {}


def cross(folder: Path) -> dict[str, Target]:
    held, known = coefficients(), measured(folder)
    found = {}
    for family in ("gpu", "model", "source"):
        rows = []
        for case, each in left_out(known, family):
            shipped = needed(case, held)
            rows.append(_row(case, shipped.scaled(case.peak * math.exp(each) / shipped.expected)))
        found[f"memory, {family.upper() if family == 'gpu' else family} left out"] = Target(rows)
    return found


def _row(case: Case, estimate: Range) -> Row:
    question = case.question
    generated = isinstance(question, Generation)
    full = not isinstance(question, Generation) and question.method == "full"
    weights = held_weights(question.shape, "bf16")
    return Row(
        estimate=estimate,
        actual=case.peak,
        gpu=case.gpu,
        model=case.model,
        source=case.source,
        baselines={"weights x 1.2": 1.2 * weights * (1 if generated or not full else 4) / case.cluster.gpus},
        refused=estimate.low + CONTEXT_BYTES > case.cluster.memory_bytes,
    )
