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

STATES: Final = {
    "adamw": (2.0, 4.0, 12.0),
    "adamw-bf16": (2.0, 2.0, 4.0),
    "adamw-8bit": (2.0, 2.0, 2.0),
    "paged-8bit": (2.0, 0.0, 0.0),
    "adamw-host": (2.0, 2.0, 0.0),
    "sgd": (2.0, 2.0, 0.0),
}
"""Bytes a parameter: weights, gradients, optimizer."""
WEIGHT_BYTES: Final = {
    "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625, "int4": 0.5625,
    "nf4": 0.5625, "nf4-dq": 0.516,
}  # fmt: skip
"""Of weights as they are held, scales of their blocks included."""


CONTEXT_BYTES: Final = 600e6
"""What the driver keeps on a GPU beside all that a program allocates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on the GPU that needs most; the parts sum to what is expected of the total. `there` is what it has."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    reserve: float
    """Workspaces and buffers."""
    total: Range
    there: int

    def fits(self) -> bool:
        """Whether it can run: False only where even the lower bound is too much."""
        return self.total.low + CONTEXT_BYTES <= self.there

    def fits_likely(self) -> bool:
        """Whether what is expected is there: more likely than not it runs."""
        return self.total.expected + CONTEXT_BYTES <= self.there

    def fits_surely(self) -> bool:
        """Whether it should run nine times of ten. What is recommended to somebody should."""
        return self.total.high + CONTEXT_BYTES <= self.there


def training_memory(plan: TrainingPlan, cluster: Cluster, coefficients: Coefficients) -> Memory:
    """Of a plan on a cluster's GPUs, at the peak of a step, as PyTorch counts what is allocated."""
    constants = coefficients.memory
    weights, gradients, optimizer = _states(plan)
    layer = _kept_layer(plan, constants)
    activations = _activations(plan, layer)
    logits = constants.number("logit_bytes") * plan.tokens * plan.shape.vocab / plan.tp / plan.pp
    if plan.chunked_loss:
        logits *= 0.25
    reserve = constants.number("reserve_bytes") + _buffers(plan)
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


def host_bytes(plan: TrainingPlan) -> float:
    """What a GPU takes of its host's memory: weight, momentum, variance and gradient in 32 bits, if they are there."""
    return 16.0 * plan.trainable_parameters / plan.gpus if plan.optimizer == "adamw-host" else 0.0


def inference_memory(shape: ModelShape, held_as: str, *, context: int, coefficients: Coefficients) -> Range:
    """Bytes on one GPU that generates one sequence of up to `context` tokens, with a 16-bit cache."""
    needed = held_weights(shape, held_as) + 2 * shape.kv_values(context) + dequantised(shape, held_as)
    return Spread(*coefficients.memory.spread("inference")).around(needed)


def held_weights(shape: ModelShape, held_as: str) -> float:
    """Bytes of a model's weights. Embeddings and the output head stay in 16 bits where layers are in 4 or 8."""
    each = WEIGHT_BYTES[held_as]
    embeddings = shape.embedding_parameters
    return each * (shape.parameters - embeddings) + max(each, 2.0) * embeddings


def dequantised(shape: ModelShape, held_as: str, *, head: bool = True) -> float:
    """The buffer in which 4-bit weights become 16-bit ones again: as large as the largest matrix, mostly the head."""
    return 2.0 * (shape.vocab if head else shape.ffn) * shape.hidden if WEIGHT_BYTES[held_as] < 1 else 0.0


def _states(plan: TrainingPlan) -> tuple[float, float, float]:
    """Weights, gradients and optimizer states on one GPU."""
    shape = plan.shape
    group, stage = plan.dp * plan.cp, ("none", "zero1", "zero2", "zero3").index(plan.sharding)
    spread_over = float(plan.tp * plan.pp)
    if shape.experts:  # experts are spread over the group already; what shards them is what is left of it
        share = expert_parameters(shape) / shape.parameters
        spread_over = plan.tp * plan.pp / (1 - share + share / plan.ep) if stage < 3 else spread_over
    trained = plan.trainable_parameters / spread_over
    if plan.method != "full":
        base = held_weights(shape, held_as(plan)) / spread_over
        return base / (group if stage == 3 else 1), 4 * trained, 12 * trained
    weight, gradient, state = (4.0, 4.0, 8.0) if plan.precision in ("fp32", "tf32") else STATES[plan.optimizer]
    states = state * plan.trainable_parameters / plan.tp / plan.pp / group if stage else state * trained
    return (
        weight * trained / (group if stage == 3 else 1),
        gradient * trained / (group if stage >= 2 else 1),
        states,
    )


def held_as(plan: TrainingPlan) -> str:
    """How frozen weights are held."""
    return plan.held_as or ("nf4" if plan.method == "qlora" else "bf16")


def expert_parameters(shape: ModelShape) -> float:
    """Of all experts of all layers."""
    matrices = 3 if shape.gated else 2
    return float(shape.moe_layers * shape.experts * matrices * shape.hidden * (shape.expert_ffn or shape.ffn))


def _kept_layer(plan: TrainingPlan, constants: Section) -> float:
    """Bytes that one layer keeps of one micro-batch for its backward pass, where nothing is computed again."""
    shape, t = plan.shape, plan.tp
    split = t if plan.sequence_parallel else 1
    if plan.stack == "megatron-2021":  # with dropout's masks; scores are kept unless attention is computed again
        scores = 5 * shape.heads * plan.seq / shape.hidden / t if plan.recompute == "none" else 0.0
        return plan.tokens * shape.hidden * (10 / split + 24 / t + scores)
    inner = shape.ffn
    if shape.moe_layers:
        inner = shape.active_experts * (shape.expert_ffn or shape.ffn) + shape.shared_ffn
    projected = 2 * 3 * (shape.heads + shape.kv_heads) * shape.head_dim
    through = constants.number("kept_gated" if shape.gated else "kept_plain") * inner
    routed = 4 * shape.active_experts if shape.moe_layers else 0  # tokens sent to experts, and what comes back
    hidden = (constants.number("kept_hidden") + routed) * shape.hidden
    share = constants.pick("kept_share", "qlora" if WEIGHT_BYTES[held_as(plan)] < 1 else None, plan.method)
    if plan.method == "adapter-v2":
        share *= constants.pick("kept_share", "adapter-v2")
    if plan.precision in ("fp32", "tf32"):
        share *= constants.number("kept_fp32")
    if plan.recompute == "selective" and plan.stack != "megatron":
        share *= constants.number("kept_selective")
    return plan.tokens * (hidden / split + (projected + through) / t) * share


def _activations(plan: TrainingPlan, layer: float) -> float:
    """First stage: it holds as many micro-batches as the pipeline has stages, so the stages cancel out."""
    held = min(plan.micro_batches, plan.pp) / plan.pp
    interleaved = 1 + (plan.pp - 1) / (plan.pp * plan.virtual) if plan.virtual > 1 else 1.0
    layers = plan.shape.layers * interleaved * held
    if plan.recompute == "full":
        split = plan.tp if plan.sequence_parallel else 1
        return 2 * plan.tokens * plan.shape.hidden * layers / split + layer
    return layer * layers


def _buffers(plan: TrainingPlan) -> float:
    """Two layers of gathered parameters under ZeRO-3; 4-bit weights made 16-bit again."""
    shape = plan.shape
    if plan.method != "full":
        return dequantised(shape, held_as(plan), head=plan.stack == "eager")
    layer = (shape.parameters - shape.embedding_parameters) / shape.layers
    return 4.0 * layer / plan.tp if plan.sharding == "zero3" and plan.dp * plan.cp > 1 else 0.0
