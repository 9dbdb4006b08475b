"""Training time: published tokens a second and measured iterations, beside the time of a step as advised."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.advisor import data
from bench.advisor.fit import minimise, spread
from bench.advisor.score import Row, Target, gpu_family
from cumulo.advisor.estimate import Range, Spread
from cumulo.advisor.memory import training_memory
from cumulo.advisor.topology import Cluster
from cumulo.advisor.training import TrainingPlan, step_time
from cumulo.advisor.training_plan import Recompute, Sharding, Stack
from cumulo.catalog.coefficients import Coefficients, coefficients

SOURCES = (
    "MosaicML LLM Foundry (PyTorch FSDP, 2023), Megatron-LM (2020, 2021; vTrain's measurements on A100), "
    "NeMo / Megatron-Bridge 25.09 to 26.02, torchtitan (2024, 2025); best matmul rates of ml-engineering"
)


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
    """Every row of the three files that tells how long a step took."""
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


# Where fitting starts: what hardware and papers say. It ends near there where the rows tell nothing.
START: dict[str, float] = {
    "matmul_share.Volta": 0.9,
    "matmul_share.Ampere": 0.9,
    "matmul_share.Hopper": 0.9,
    "matmul_share.Blackwell": 0.9,
    "attention_share.Ampere": 0.4,
    "attention_share.Hopper": 0.3,
    "attention_share.Blackwell": 0.25,
    "fp8_share": 0.9,
    "fp4_share": 0.6,
    "fill": 60.0,
    "fill_grouped": 300.0,
    "memory_share": 0.85,
    "elementwise.megatron-2021": 1.5,
    "elementwise.megatron": 1.5,
    "elementwise.fsdp": 2.0,
    "elementwise.eager": 4.0,
    "grouped_share": 0.7,
    "grouped_narrow_gain": 1.2,
    "attention_gain.megatron": 1.3,
    "launch_seconds.megatron-2021": 2e-3,
    "launch_seconds.other": 1e-3,
    "launch_expert_seconds": 2e-3,
    "launch_exponent": 3.0,
    "overlap_exponent": 2.0,
    "step_seconds": 5e-3,
    "fabric_share": 0.79,
    "nic_share": 0.6,
    "tensor_exposed.megatron-2021": 1.0,
    "tensor_exposed.other": 0.6,
    "expert_exposed": 0.6,
    "gradient_bytes": 2.0,
    "gradient_hidden.megatron-2021": 0.1,
    "gradient_hidden.other": 0.7,
    "optimizer_bytes": 36.0,
}


def nested(flat: Mapping[str, float]) -> dict[str, Any]:
    """`a.b` becomes the entry b of table a; a table's `other` is the geometric mean of what it has."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        table, _, key = name.partition(".")
        if key:
            found.setdefault(table, {})[key] = value
        else:
            found[name] = value
    found.setdefault("attention_gain", {})["other"] = 1.0
    for table in found.values():
        if isinstance(table, dict) and "other" not in table:
            table["other"] = math.exp(sum(map(math.log, table.values())) / len(table))
    return found


def matmul_tables(folder: Path) -> dict[str, dict[str, float]]:
    """What share of its peak each board reached in the best shape of product, and the median of each architecture."""
    found: dict[str, dict[str, list[float]]] = {"matmul_bf16": {}, "matmul_fp8": {}}
    for row in data.rows(folder, "matmul_achieved_mamf"):
        variant, kind = data.board(row["gpu"])
        share, table = data.number(row, "efficiency"), found[f"matmul_{row['dtype']}"]
        for key in (variant.name, kind.architecture or "", "other"):
            table.setdefault(key, []).append(share)
    return {name: {key: sorted(each)[len(each) // 2] for key, each in table.items()} for name, table in found.items()}


def with_constants(held: Coefficients, tables: Mapping[str, Any], flat: Mapping[str, float]) -> Coefficients:
    return held.replaced("training", {"spread": dict.fromkeys(SPREADS, (1.0, 1.0)), **tables, **nested(flat)})


def residual(case: Case, held: Coefficients) -> float:
    """The logarithm of predicted over measured."""
    return math.log(step_time(case.plan, case.cluster, held).total.expected / case.seconds)


def fitted(
    known: Sequence[Case], tables: Mapping[str, Any], held: Coefficients, begin: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Constants that these cases tell. Of a source with hundreds of like rows a part is enough, lest it outvote all."""
    counted: dict[str, int] = {source: -(-len(group) // _MOST) for source, group in by_source(known).items()}
    used = [case for number, case in enumerate(known) if number % counted[case.source] == 0]

    def residuals(flat: Mapping[str, float]) -> list[float]:
        tried = with_constants(held, tables, flat)
        return [residual(case, tried) for case in used]

    return minimise(residuals, START, begin=begin, prior=0.6, steps=12)


_MOST = 110
SPREADS = ("training_dense", "training_moe", "training_dense_unseen", "training_moe_unseen")


def by_source(known: Iterable[Case]) -> dict[str, list[Case]]:
    groups: dict[str, list[Case]] = {}
    for case in known:
        groups.setdefault(case.source, []).append(case)
    return groups


def target_of(case: Case) -> str:
    return "training_moe" if case.plan.shape.experts else "training_dense"


FAMILIES: dict[str, Callable[[Case], str]] = {
    "GPU": lambda case: gpu_family(case.gpu) if not case.gpu.startswith("H100") else "H100",
    "model": lambda case: str(sum(map(ord, case.plan.shape.name)) % 5),
    "source": lambda case: case.source,
}
"""What is left out at a time: each GPU family, each of five groups of models, each source."""


def left_out(known: Sequence[Case], family: Callable[[Case], str], folder: Path) -> list[tuple[Case, float]]:
    """Each case with the residual that it has by constants fitted without its family."""
    tables, held = matmul_tables(folder), coefficients()
    found, near = [], fitted(known, tables, held)
    for name in sorted({family(case) for case in known}):
        others = [case for case in known if family(case) != name]
        rest = with_constants(held, tables, fitted(others, tables, held, near))
        found += [(case, residual(case, rest)) for case in known if family(case) == name]
    return found


def fit(folder: Path) -> dict[str, Any]:
    """The section `training`: constants fitted on all cases, spreads by cases that were left out."""
    known, tables = cases(folder), matmul_tables(folder)
    held = coefficients()
    found = dict(with_constants(held, tables, fitted(known, tables, held)).training.values)
    spreads: dict[str, tuple[float, float]] = {}
    pooled: dict[str, list[float]] = {}
    for family, suffix in (("model", ""), ("GPU", "_unseen")):
        for case, each in left_out(known, FAMILIES[family], folder):
            pooled.setdefault(target_of(case) + suffix, []).append(each)
    for name, residuals in pooled.items():
        spreads[name] = spread(residuals, inside=INSIDE.get(name, 0.8), most=MOST_RATIO.get(name, math.inf))
    return {**found, "spread": spreads}


INSIDE = {"training_dense": 0.87}
"""A little over 0.8, since sources that no row here comes from differ more than models that were left out."""
MOST_RATIO = {"training_dense": 1.5, "training_moe": 2.0}
"""A range that leaves more open than this helps nobody to choose. Published pairs of one and the same plan of a mixture
of experts differ by a factor of two, which no range so narrow can hold."""


def targets(folder: Path) -> dict[str, Target]:
    held, known = coefficients(), cases(folder)
    dropped = sum(data.suspects(folder, name) for name in ("llm_training_throughput", "megatron_iteration_times"))
    found: dict[str, list[Row]] = {}
    for case in known:
        estimate = step_time(case.plan, case.cluster, held).total
        found.setdefault(target_of(case), []).append(_row(case, estimate))
    return {name: Target(rows, dropped if name == "training_dense" else 0) for name, rows in found.items()}


def cross(folder: Path) -> dict[str, Target]:
    """Each row by constants fitted without its GPU, its group of models, or its source; ranges as shipped."""
    held, known = coefficients(), cases(folder)
    found: dict[str, list[Row]] = {}
    for name, family in FAMILIES.items():
        for case, each in left_out(known, family, folder):
            shipped = step_time(case.plan, case.cluster, held).total
            factors = Spread(shipped.low / shipped.expected, shipped.high / shipped.expected)
            estimate = factors.around(case.seconds * math.exp(each))
            found.setdefault(f"{target_of(case)}, {name} left out", []).append(_row(case, estimate))
    return {name: Target(rows) for name, rows in found.items()}


def _row(case: Case, estimate: Range) -> Row:
    plan = case.plan
    least = replace(plan, recompute="full") if case.tuned else plan
    return Row(
        estimate=estimate,
        actual=case.seconds,
        gpu=case.gpu,
        model=plan.shape.name,
        source=case.source,
        baselines=_rules(plan, case.cluster),
        refused=not training_memory(least, case.cluster, coefficients()).fits(),
    )


def _rules(plan: TrainingPlan, where: Cluster) -> dict[str, float]:
    """What people reckon with: seconds by parameters alone, and by all operations at a flat efficiency."""
    rate = (where.variant.fp16_tensor_tflops or 0.0) * 1e12 * where.gpus
    if not rate:
        return {}
    again = 4 / 3 if plan.recompute == "full" else 1.0
    return {
        "6ND at 40 % MFU": 6 * plan.shape.active_parameters * plan.step_tokens / (0.4 * rate),
        "all FLOPs at 50 %": again * model_flops(plan) / (0.5 * rate),
    }
