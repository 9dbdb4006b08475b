"""Published results of training as plans, clusters and seconds."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.advisor import data
from bench.advisor.finetunes import finetune_plan
from cumulo.advisor.memory import training_memory
from cumulo.advisor.topology import Cluster
from cumulo.advisor.training_plan import Recompute, Sharding, Stack, TrainingPlan
from cumulo.catalog.coefficients import coefficients


class Case(NamedTuple):
    """One measured step: the plan, where it ran, seconds."""

    plan: TrainingPlan
    cluster: Cluster
    seconds: float
    gpu: str
    source: str
    tuned: bool = False
    """Whether the table says only that recomputation was tuned."""


def cases(folder: Path) -> list[Case]:
    """Every row of pretraining that tells how long a step took."""
    return [
        *data.built(data.readable(folder, "llm_training_throughput"), _throughput),
        *data.built(data.readable(folder, "megatron_iteration_times"), _iteration),
        *data.built(data.readable(folder, "pretrain_memory"), _pretraining),
    ]


def throughput_plan(row: data.Cells) -> tuple[TrainingPlan, Cluster]:
    """The plan that a row of published throughput tells."""
    gpus = data.whole(row, "gpus", 1)
    where = data.cluster(row["gpu"], gpus, row.get("notes", ""))
    tp, pp, cp = (max(data.whole(row, name, 1), 1) for name in ("tp", "pp", "cp"))
    dp = max(gpus // (tp * pp * cp), 1)
    stack = _stack(row)
    shape = data.shape(row)
    plan = TrainingPlan(
        shape=shape,
        method="lora" if any(word in row.get("stage", "").lower() for word in ("lora", "peft")) else "full",
        precision=_precision(row),
        seq=data.whole(row, "seq", 2048),
        micro_batch=data.whole(row, "micro_batch"),
        global_batch=data.whole(row, "global_batch") or dp * data.whole(row, "micro_batch", 1),
        recompute=_recompute(row.get("act_ckpt", "")),
        sharding=_sharding(row.get("sharding", "")),
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        ep=max(data.whole(row, "ep", 1), 1),
        virtual=_virtual(shape.layers, pp) if stack == "megatron" else 1,
        sequence_parallel=tp > 1 and stack != "megatron-2021",
        stack=stack,
    )
    return (plan if plan.micro_batch else _with_best_micro_batch(plan, where)), where


def _throughput(row: data.Cells) -> Case | None:
    plan, where = throughput_plan(row)
    if rate := data.number(row, "tokens_per_s_gpu"):
        seconds = plan.step_tokens / rate / where.gpus
    elif rate := data.number(row, "model_tflops_gpu"):
        count = _megatron_flops if plan.stack == "megatron-2021" else model_flops
        seconds = count(plan) / (rate * 1e12 * where.gpus)
    else:
        return None
    return Case(plan, where, seconds, row["gpu"], row.get("source_table") or row.get("source", ""), _tuned(row))


def _tuned(row: data.Cells) -> bool:
    return row.get("act_ckpt") == "tuned"


def _iteration(row: data.Cells) -> Case | None:
    if not data.number(row, "iter_ms"):
        return None
    gpus = data.whole(row, "gpus", 1)
    split, tp, pp = data.true(row, "seq_parallel"), data.whole(row, "tp", 1), data.whole(row, "pp", 1)
    shape = data.shape({**row, "model": f"{row['layers']}x{row['hidden']}"})
    plan = TrainingPlan(
        shape=shape,
        precision=_precision(row),
        seq=data.whole(row, "seq"),
        micro_batch=data.whole(row, "micro_batch", 1),
        global_batch=data.whole(row, "global_batch", 1),
        recompute=_recompute(row.get("recompute", "")),
        tp=tp,
        pp=pp,
        dp=data.whole(row, "dp") or max(gpus // (tp * pp), 1),
        virtual=data.whole(row, "interleave", 1),
        sequence_parallel=split,
        stack="megatron-2021",
    )
    source = row.get("source_table") or row.get("source", "")
    return Case(plan, data.cluster(row["gpu"], gpus), data.number(row, "iter_ms") / 1000, row["gpu"], source)


def _pretraining(row: data.Cells) -> Case | None:
    seconds = data.number(row, "iter_time_s")
    if not seconds:
        return None
    plan, where = throughput_plan({**row, "act_ckpt": row.get("mode", ""), "sharding": row.get("mode", "")})
    return Case(plan, where, seconds, row["gpu"], row.get("source_table", ""))


def _megatron_flops(plan: TrainingPlan) -> float:
    """Of a step without recomputation, as the Megatron papers count: three quarters of eq. 3 of arXiv:2104.04473."""
    shape, seq = plan.shape, plan.seq
    layers = 72 * plan.global_batch * seq * shape.layers * shape.hidden**2
    return layers * (1 + seq / (6 * shape.hidden) + shape.vocab / (12 * shape.hidden * shape.layers))


def model_flops(plan: TrainingPlan) -> float:
    """Of a step without recomputation: 6 an active parameter and token, and the causal half of attention."""
    shape = plan.shape
    attention = 6 * shape.layers * shape.heads * shape.head_dim * plan.seq
    return plan.step_tokens * (6 * shape.active_parameters + attention)


def _precision(row: data.Cells) -> Any:
    told = (row.get("precision") or "bf16").lower()
    return next((name for name in ("fp8", "fp4", "fp16", "tf32", "fp32") if name in told), "bf16")


def _recompute(told: str) -> Recompute:
    told = told.lower()
    if "selective" in told:
        return "selective"
    return "full" if told in ("true", "full", "yes", "1") else "none"


def _sharding(told: str) -> Sharding:
    told = told.lower()
    if any(word in told for word in ("full_shard", "fsdp", "hsdp", "zero3", "zero-3")):
        return "zero3"
    if any(word in told for word in ("zero2", "zero-2", "shard_grad_op")):
        return "zero2"
    return "zero1" if any(word in told for word in ("dist-opt", "zero1", "zero-1", "distributed")) else "none"


def _stack(row: data.Cells) -> Stack:
    """By what a row tells of its software: sharded PyTorch, or Megatron before or after attention was fused."""
    table = (row.get("source_table") or "").lower()
    if "nemo" in table or row.get("sharding") == "dist-opt":
        return "megatron"
    if _sharding(row.get("sharding", "")) == "zero3":
        return "eager" if "eager" in row.get("notes", "") else "fsdp"
    return "megatron-2021"


def _virtual(layers: int, pp: int) -> int:
    """Today's Megatron interleaves down to a few layers a chunk; how many, the tables do not tell."""
    return max(round(layers / pp / 2), 1) if pp > 1 else 1


def _with_best_micro_batch(plan: TrainingPlan, where: Cluster) -> TrainingPlan:
    """Where a table keeps it to itself: what would be fastest of what fits."""
    held = coefficients()
    tried = [replace(plan, micro_batch=size) for size in (1, 2, 4, 8, 16) if plan.global_batch >= size * plan.dp]
    fitting = [each for each in tried if training_memory(each, where, held).fits()] if held.memory.values else []
    usable = fitting or tried[:1] or [replace(plan, micro_batch=1)]
    return usable[-1] if plan.pp == 1 else usable[0]


def finetunes(folder: Path) -> list[Case]:
    """Rows of fine-tuning that tell a rate: on packed sequences, or of one sample after the other."""
    return data.built(data.readable(folder, "finetune_memory_time"), _finetune)


_SAMPLE_TOKENS = 110
"""Alpaca's mean sample. Its rows of one sample an iteration tell how long launching takes, whatever the length."""


def _finetune(row: data.Cells) -> Case | None:
    rate, minutes = data.number(row, "tokens_per_s"), data.number(row, "min_per_1k_iter")
    method, gpus = row["method"].lower(), data.whole(row, "gpus", 1)
    if method.startswith("inference") or not (rate or (minutes and data.whole(row, "micro_batch", 1) == 1)):
        return None
    plan = finetune_plan(row, method, data.shape(row), gpus)
    if not rate:
        plan = replace(plan, seq=_SAMPLE_TOKENS)
    seconds = plan.step_tokens / (rate * gpus) if rate else minutes * 60 / 1000
    return Case(plan, data.cluster(row["gpu"], gpus), seconds, row["gpu"], row.get("source_table", ""))
