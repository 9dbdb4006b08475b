"""A training plan in the words and numbers that a person checks it by."""

from collections.abc import Iterator
from typing import Final

from cumulo.advisor.answer_text import figure
from cumulo.advisor.memory import CONTEXT_BYTES, Memory, host_bytes
from cumulo.advisor.plans import Part, Supply
from cumulo.advisor.search_board import has_fabric
from cumulo.advisor.training import StepTime, TrainingPlan
from cumulo.catalog.models import ModelShape
from cumulo.domain.quantities import GIB

_TOLD: Final = 0.005
"""Of a step: what takes less is not worth a line."""


def described(shape: ModelShape) -> str:
    """`Llama-3.1-8B (8.03 G parameters)`."""
    active = f", {figure(shape.active_parameters)} active" if shape.experts else ""
    return f"{shape.name} ({figure(shape.parameters)} parameters{active})"


def layout(plan: TrainingPlan) -> str:
    """`FSDP 8, micro-batch 4`, `TP 8 x PP 4 x DP 16, recompute`: groups, and what memory made necessary."""
    groups = [f"{name} {size}" for name, size in (("TP", plan.tp), ("PP", plan.pp), ("EP", plan.ep)) if size > 1]
    if plan.dp > 1:
        word = "FSDP" if plan.sharding == "zero3" else "DP" if groups else "DDP"
        groups.append(f"{word} {plan.dp}")
    text = " x ".join(groups) or "one GPU"
    text += f", micro-batch {plan.micro_batch}" + ("" if plan.recompute == "none" else ", recompute")
    return text + (", states on the host" if plan.optimizer == "adamw-host" else "")


def settings(plan: TrainingPlan) -> dict[str, str | int]:
    """What the program that trains must be told."""
    sizes = {"tensor_parallel": plan.tp, "pipeline_parallel": plan.pp, "expert_parallel": plan.ep}
    found: dict[str, str | int] = {name: size for name, size in sizes.items() if size > 1}
    found |= {"micro_batch": plan.micro_batch, "global_batch": plan.global_batch, "seq": plan.seq}
    found |= {"method": plan.method, "precision": plan.precision, "optimizer": plan.optimizer}
    return found | {"recompute": plan.recompute, "sharding": plan.sharding}


def memory_parts(memory: Memory) -> tuple[Part, ...]:
    """Bytes of one GPU."""
    names = ("weights", "gradients", "optimizer", "activations", "logits", "reserve")
    return (*(Part(name, getattr(memory, name)) for name in names), Part("context", CONTEXT_BYTES))


def time_parts(time: StepTime) -> tuple[Part, ...]:
    """Seconds of one step."""
    parts = (
        Part("matrix products", time.matmul),
        Part("attention", time.attention),
        Part("element by element", time.elementwise),
        Part("launches", time.launch),
        Part("tensor parallel", time.tensor_parallel),
        Part("expert parallel", time.expert_parallel),
        Part("pipeline bubble", time.pipeline),
        Part("data parallel", time.data_parallel),
        Part("optimizer", time.optimizer),
        Part("the host's updates", time.host),
    )
    return tuple(part for part in parts if part.amount > 0)


def notes(plan: TrainingPlan, time: StepTime, supply: Supply) -> Iterator[str]:
    """What a person should know of this plan on this board."""
    variant = supply.variant
    if plan.precision == "fp16" and not variant.bf16:
        yield f"{variant.name} has no BF16: FP16 with loss scaling"
    if plan.optimizer == "adamw-host":
        kept = host_bytes(plan) / GIB
        yield f"{kept:,.0f} GiB of the host's memory for each GPU; nothing published here tells how fast hosts update"
    if plan.gpus > 1 and not has_fabric(variant):
        parts = (time.tensor_parallel, time.expert_parallel, time.data_parallel)
        if (share := sum(parts) / time.total.expected) > _TOLD:
            yield f"no NVLink: GPUs talk over PCIe, which takes {share:.0%} of each step"
