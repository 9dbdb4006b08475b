"""Training time: published tokens a second and measured iterations, beside the time of a step as advised."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.advisor import data
from bench.advisor.fit import spread
from bench.advisor.least_squares import Prior, minimise_positive
from bench.advisor.peers import llm_analysis_seconds
from bench.advisor.score import Row, Target, gpu_family
from bench.advisor.training_cases import Case, cases, finetunes
from cumulo.advisor.estimate import Range, Spread
from cumulo.advisor.memory import training_memory
from cumulo.advisor.topology import Cluster
from cumulo.advisor.training import TrainingPlan, spread_of, step_time
from cumulo.catalog.coefficients import Coefficients, coefficients

SOURCES = (
    "MosaicML LLM Foundry (PyTorch FSDP, 2023), Megatron-LM (2020, 2021; vTrain's measurements on A100), "
    "NeMo / Megatron-Bridge 25.09 to 26.02, torchtitan (2024, 2025), torchtune (2025), litgpt (2024); "
    "best matmul rates of ml-engineering"
)


# Where fitting starts: what hardware and papers say. It ends near there where the rows tell nothing.
START: dict[str, float] = {
    "matmul_share": 0.9,
    "matmul_fall": 0.1,
    "attention_share": 0.4,
    "attention_fall": 0.35,
    "attention_gain.megatron": 1.7,
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
    "routed_bytes": 12.0,
    "accumulate_bytes": 8.0,
    "operation_seconds": 83e-6,
    "launch_exponent": 4.0,
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
    "dequantise_bytes": 5.0,
}
OPERATIONS: dict[str, int] = {"megatron-2021": 24, "eager": 40, "other": 12}
"""Kernels of one layer forward: norms, rotations and gates one by one in eager code, fused today. What the host takes
for one (and for its two backward) is shared, so that one software's results tell of another's."""
ROUTING_OPERATIONS, EXPERT_OPERATIONS = 20, 3
"""Beside them: of a layer with experts choosing, sorting, sending, weighing; of an expert two products and a cast."""
_OWN: dict[str, tuple[Sequence[str], float]] = {
    "matmul_own": (("Volta", "Ada", "Ampere", "Hopper", "Blackwell"), 0.08),
    "attention_own": (("Ada", "Ampere", "Hopper", "Blackwell"), 0.12),
    "launch_own": ((*OPERATIONS, "routing", "expert"), 0.15),
}
"""What each has of its own beside the law that it shares with others, and how far that may lie from 1."""
_DEVIATION, _DEVIATIONS = 0.6, {"launch_exponent": 0.2}
"""Of logarithms. A host that runs ahead hides all that is shorter than the GPU's work: the exponent is a high one."""
PRIORS: dict[str, Prior] = {
    **{name: Prior(value, _DEVIATIONS.get(name, _DEVIATION)) for name, value in START.items()},
    **{f"{table}.{key}": Prior(1.0, each) for table, (keys, each) in _OWN.items() for key in keys},
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
    each, own = found.pop("operation_seconds"), found.pop("launch_own")
    found["launch_seconds"] = {stack: each * count * own[stack] for stack, count in OPERATIONS.items()}
    found["launch_routing_seconds"] = each * ROUTING_OPERATIONS * own["routing"]
    found["launch_expert_seconds"] = each * EXPERT_OPERATIONS * own["expert"]
    for name in ("matmul_own", "attention_own"):
        found[name]["other"] = 1.0
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
    loose = dict.fromkeys(SPREADS, (1.0, 1.0))
    return held.replaced("training", {"spread": loose, "cases": {}, **tables, **nested(flat)})


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

    return minimise_positive(residuals, PRIORS, begin=begin, steps=12)


_MOST = 110
SPREADS = ("training_dense", "training_moe", "training_dense_unseen", "training_moe_unseen", "training_tuned")


def by_source(known: Iterable[Case]) -> dict[str, list[Case]]:
    groups: dict[str, list[Case]] = {}
    for case in known:
        groups.setdefault(case.source, []).append(case)
    return groups


def target_of(case: Case) -> str:
    return spread_of(case.plan)


FAMILIES: dict[str, Callable[[Case], str]] = {
    "GPU": lambda case: gpu_family(case.gpu) if not case.gpu.startswith("H100") else "H100",
    "model": lambda case: str(sum(map(ord, case.plan.shape.name)) % 5),
    "source": lambda case: case.source,
}
"""What is left out at a time: each GPU family, each of five groups of models, each source."""


def left_out(
    known: Sequence[Case], family: Callable[[Case], str], folder: Path, *, beside: Sequence[Case] = ()
) -> list[tuple[Case, float]]:
    """Each case with the residual that it has by constants fitted without its family; `beside` is only fitted to."""
    tables, held, fitted_to = matmul_tables(folder), coefficients(), [*known, *beside]
    found, near = [], fitted(fitted_to, tables, held)
    for name in sorted({family(case) for case in known}):
        others = [case for case in fitted_to if family(case) != name]
        rest = with_constants(held, tables, fitted(others, tables, held, near))
        found += [(case, residual(case, rest)) for case in known if family(case) == name]
    return found


def fit(folder: Path) -> dict[str, Any]:
    """The section `training`: constants fitted on all cases, spreads by cases that were left out."""
    known, tables = [*cases(folder), *finetunes(folder)], matmul_tables(folder)
    held = coefficients()
    found = dict(with_constants(held, tables, fitted(known, tables, held)).training.values)
    spreads: dict[str, tuple[float, float]] = {}
    pooled: dict[str, list[float]] = {}
    for family, suffix in (("model", ""), ("GPU", "_unseen")):
        for case, each in left_out(known, FAMILIES[family], folder):
            name = target_of(case)
            pooled.setdefault(name if name == "training_tuned" else name + suffix, []).append(each)
    for name, residuals in pooled.items():
        kind = name.removesuffix("_unseen")
        spreads[name] = spread(residuals, inside=INSIDE.get(kind, 0.8), most=MOST_RATIO.get(name, math.inf))
    for name in [each for each in spreads if each.endswith("_unseen")]:  # what is unseen is no surer than what is seen
        spreads[name] = max(spreads[name], spreads[name.removesuffix("_unseen")], key=lambda factors: factors[1])
    return {**found, "spread": spreads, "cases": counted(known)}


def counted(known: Sequence[Case]) -> dict[str, int]:
    """How many results each architecture has: few are as good as none."""
    names = [case.cluster.architecture or "other" for case in known]
    return {name: names.count(name) for name in sorted(set(names))}


INSIDE = {"training_dense": 0.87}
"""A little over 0.8, since sources that no row here comes from differ more than models that were left out."""
MOST_RATIO = {"training_dense": 1.5, "training_dense_unseen": 1.5, "training_moe": 2.0, "training_tuned": 2.0}
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
    held, known, beside = coefficients(), cases(folder), finetunes(folder)
    found: dict[str, list[Row]] = {}
    for name, family in FAMILIES.items():
        for case, each in left_out(known, family, folder, beside=beside):
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
    """Seconds by parameters alone, as people reckon, and by llm-analysis."""
    rate = (where.variant.fp16_tensor_tflops or 0.0) * 1e12 * where.gpus
    if not rate:
        return {}
    found = {"6ND at 40 % MFU": 6 * plan.shape.active_parameters * plan.step_tokens / (0.4 * rate)}
    other = llm_analysis_seconds(plan, where)
    return found if other is None else {**found, "llm-analysis at 50 %": other}
