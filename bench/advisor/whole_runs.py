"""Checks beside the targets: whole published training runs in GPU-hours, and fine-tuning's tokens a second.

A whole run takes longer than its steps: restarts and evaluations are in its GPU-hours, and how it was spread over GPUs
is mostly not told: nothing is fitted to it. Of fine-tuning there are too few rows with a rate to say much.
"""

from collections.abc import Iterator
from pathlib import Path

from bench.advisor import data
from bench.advisor.score import Row, Target
from bench.advisor.training_cases import Case, finetunes
from cumulo.advisor.training import TrainingPlan, step_time
from cumulo.catalog.coefficients import coefficients

_BATCH_TOKENS = 4e6
"""What models of that time took a step on, where a run does not tell."""
_GPUS = 1024


def targets(folder: Path) -> dict[str, Target]:
    found = {"llm_full_runs": list(_runs(folder)), "finetune_time": [_finetune(case) for case in finetunes(folder)]}
    return {name: Target(rows, check=True) for name, rows in found.items() if rows}


def _runs(folder: Path) -> Iterator[Row]:
    for row in data.readable(folder, "llm_full_runs"):
        gpus = data.whole(row, "gpus", _GPUS)
        hours = data.number(row, "gpu_hours") or gpus * 24 * data.number(row, "days")
        if not hours:
            continue
        where = data.cluster(row["gpu"], gpus)
        plan = _run_plan(row, gpus)
        step = step_time(plan, where, coefficients()).total
        estimate = step.scaled(data.number(row, "tokens") / plan.step_tokens * gpus / 3600)
        peak = (where.variant.fp16_tensor_tflops or 0) * 1e12
        rule = 6 * data.number(row, "params") * data.number(row, "tokens") / (0.4 * peak) / 3600
        source = row.get("source", "")[:24]
        baselines = {"6ND at 40 % MFU": rule}
        yield Row(
            estimate=estimate, actual=hours, gpu=row["gpu"], model=row["model"], source=source, baselines=baselines
        )


def _run_plan(row: data.Cells, gpus: int) -> TrainingPlan:
    """Small models sharded over all GPUs; from 100 billion parameters on as Megatron ran them."""
    shape, seq = data.shape(row), data.whole(row, "seq", 2048)
    large = shape.parameters > 1e11
    tp, pp = (8, max(gpus // 8 // 8, 1)) if large and gpus >= 64 else (1, 1)
    pp = min(pp, 12)
    dp = max(gpus // (tp * pp), 1)
    batch = max(round(_BATCH_TOKENS / seq), dp)
    return TrainingPlan(
        shape=shape,
        seq=seq,
        micro_batch=1 if large else max(min(batch // dp, 4), 1),
        global_batch=batch,
        recompute="full" if large else "selective",
        sharding="none" if large else "zero3",
        tp=tp,
        pp=pp,
        dp=dp,
        stack="megatron-2021" if large else "fsdp",
    )


def _finetune(case: Case) -> Row:
    estimate = step_time(case.plan, case.cluster, coefficients()).total
    return Row(estimate=estimate, actual=case.seconds, gpu=case.gpu, model=case.plan.shape.name, source=case.source)
