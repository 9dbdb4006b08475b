"""Checks beside the targets: whole published training runs in GPU-hours, and fine-tuning's tokens a second.

A whole run takes longer than its steps: restarts and evaluations are in its GPU-hours. How it was spread over GPUs is
mostly not told, so it is spread as would be advised. Nothing is fitted to it. Too few rows of fine-tuning tell a rate
to say much.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.advisor import data
from bench.advisor.fit import BadData
from bench.advisor.score import Row, Target
from bench.advisor.training_cases import Case, finetunes
from cumulo.advisor.estimate import Range
from cumulo.advisor.questions import Train
from cumulo.advisor.search_training import TrainingEstimator
from cumulo.advisor.topology import Cluster
from cumulo.advisor.training import step_time
from cumulo.catalog.coefficients import coefficients

_BATCH_TOKENS = 2**22
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
        steps = data.number(row, "tokens") / _BATCH_TOKENS
        estimate = _step(row, where).scaled(steps * gpus / 3600)
        peak = (where.variant.fp16_tensor_tflops or 0) * 1e12
        rule = 6 * data.number(row, "params") * data.number(row, "tokens") / (0.4 * peak) / 3600
        source = row.get("source", "")[:24]
        baselines = {"6ND at 40 % MFU": rule}
        yield Row(
            estimate=estimate, actual=hours, gpu=row["gpu"], model=row["model"], source=source, baselines=baselines
        )


def _step(row: data.Cells, where: Cluster) -> Range:
    """Of the layout that the advisor finds fastest; models without gates are of the time before attention was fused."""
    shape, seq = data.shape(row), data.whole(row, "seq", 2048)
    question = Train(shape=shape, seq=seq, global_batch=_BATCH_TOKENS // seq)
    estimator = TrainingEstimator(question, coefficients())
    tried = (estimator.best(where, "bf16", sure=sure)[0] for sure in (True, False))
    best = next((each for each in tried if each), None)
    if best is None:
        raise BadData(f"{row['model']}: no layout for {where.gpus} GPUs")
    if shape.gated or best.plan.stack != "megatron":
        return best.time.total
    return step_time(replace(best.plan, stack="megatron-2021"), where, coefficients()).total


def _finetune(case: Case) -> Row:
    estimate = step_time(case.plan, case.cluster, coefficients()).total
    return Row(estimate=estimate, actual=case.seconds, gpu=case.gpu, model=case.plan.shape.name, source=case.source)
