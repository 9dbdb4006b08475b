"""How much memory training needs on each GPU, by part, and whether it is there.

Formulae: arXiv:1910.02054 (states and their sharding), arXiv:2205.05198 (activations). Few constants are fitted: what
a layer keeps without recomputation, what 4-bit weights cost beside their bits, and the reserve.
"""

from dataclasses import dataclass
from typing import Final

from cumulo.advisor.estimate import Range, Spread
from cumulo.advisor.topology import Cluster
from cumulo.advisor.training_plan import TrainingPlan
from cumulo.catalog.coefficients import Coefficients, Section
from cumulo.catalog.models import ModelShape

# Bytes a parameter: weights, gradients, optimizer.
_STATES: Final = {
    "adamw": (2.0, 4.0, 12.0),
    "adamw-bf16": (2.0, 2.0, 4.0),
    "adamw-8bit": (2.0, 2.0, 2.0),
    "in-backward-8bit": (2.0, 0.0, 2.0),
    "sgd": (2.0, 2.0, 0.0),
}
WEIGHT_BYTES: Final = {
    "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625, "int4": 0.5625,
    "nf4": 0.5625, "nf4-dq": 0.516,
}  # fmt: skip
"""Of weights as they are held, scales of their blocks included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on the GPU that needs most; the parts sum to what is expected of the total. `there` is what it has."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    reserve: float
    """What the driver's context, workspaces and fragmentation take."""
    total: Range
    there: int

    def fits(self) -> bool:
        """Whether the expected need is there. `total.high` tells whether it is there almost surely."""
        return self.total.expected <= self.there


def training_memory(plan: TrainingPlan, cluster: Cluster, coefficients: Coefficients) -> Memory:
    """Of a plan on a cluster's GPUs, at the peak of a step."""
    constants = coefficients.memory
    weights, gradients, optimizer = _states(plan)
    activations = _activations(plan, constants)
    logits = _logits(plan, constants)
    reserve = constants.number("reserve_bytes")
    expected = weights + gradients + optimizer + activations + logits + reserve
    return Memory(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=activations,
        logits=logits,
        reserve=reserve,
        total=Spread(*constants.spread("memory")).around(expected),
        there=cluster.memory_bytes,
    )


def held_weights(shape: ModelShape, held_as: str) -> float:
    """Bytes of a model's weights. Embeddings and the output head stay in 16 bits where layers are in 4 or 8."""
    each = WEIGHT_BYTES[held_as]
    embeddings = shape.embedding_parameters
    return each * (shape.parameters - embeddings) + max(each, 2.0) * embeddings


def _states(plan: TrainingPlan) -> tuple[float, float, float]:
    """Weights, gradients and optimizer states on one GPU."""
    shape = plan.shape
    weight, gradient, state = _STATES[plan.optimizer]
    if plan.precision == "fp32":
        weight, gradient, state = 4.0, 4.0, 8.0
    group = plan.dp * plan.cp
    spread_over = plan.tp * plan.pp * (plan.ep if shape.experts else 1)
    held = shape.parameters / spread_over
    trained = plan.trainable_parameters / spread_over
    if plan.method != "full":
        base = held_weights(shape, "nf4" if plan.method == "qlora" else "bf16") / spread_over
        return base / (group if plan.sharding == "zero3" else 1), 4 * trained, 12 * trained
    stage = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}[plan.sharding]
    return (
        weight * held / (group if stage >= 3 else 1),
        gradient * trained / (group if stage >= 2 else 1),
        state * trained / (group if stage >= 1 else 1),
    )


def _activations(plan: TrainingPlan, constants: Section) -> float:
    """First stage: it holds as many micro-batches as the pipeline has stages, so the stages cancel out."""
    shape, t = plan.shape, plan.tp
    width = plan.tokens * shape.hidden
    split = t if plan.sequence_parallel else 1
    scores = 0.0
    if not plan.fused_attention and plan.recompute == "none":
        scores = 5 * shape.heads * plan.seq / shape.hidden / t
    layer = width * (10 / split + 24 / t + scores)
    interleaved = 1 + (plan.pp - 1) / (plan.pp * plan.virtual) if plan.virtual > 1 else 1.0
    layers = shape.layers * interleaved * min(plan.micro_batches, plan.pp) / plan.pp
    if plan.recompute == "full":
        return 2 * width * layers / split + layer
    return layer * layers


def _logits(plan: TrainingPlan, constants: Section) -> float:
    """Kept in 16 bits, and in 32 for the loss and its gradient; only the last stage has them."""
    return constants.number("logit_bytes") * plan.tokens * plan.shape.vocab / plan.tp / (1 if plan.pp == 1 else plan.pp)
