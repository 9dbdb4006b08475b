"""What one micro-batch costs one GPU in one layer and in the vocabulary's head: a roofline for each kind of operation.

Matrix products run at the rate measured for the board (MAMF: what the best shape of product reaches), times the share
of it that training reaches on that architecture, times how well their own sizes fill the GPU; or as fast as their
weights can be read. Attention counts the causal half and has its own share. What is done element by element moves
bytes. Shares are fitted; the formulae follow arXiv:2205.05198.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from cumulo.advisor.topology import Cluster
from cumulo.advisor.training_plan import TrainingPlan
from cumulo.catalog.coefficients import Section
from cumulo.catalog.variants import Variant
from cumulo.domain.errors import CumuloError

_TERA: Final = 1e12
# TFLOPS a watt of the boards that were measured. One that promises more for its watts reaches less of what it promises,
# and one that promises less (GeForce, workstation boards) more, up to its peak.
_MEASURED_PER_WATT: Final = {"Volta": 0.42, "Ampere": 0.78, "Ada": 0.37, "Hopper": 1.41, "Blackwell": 2.25}
_MOST_UNTHROTTLED: Final = 1.3
_ALIKE: Final = 0.06
_A100_PEAK: Final = 312.0
# Their tensor cores and copies run beside the other work of a kernel, which newer attention kernels use and older not.
_ASYNCHRONOUS: Final = frozenset({"Hopper", "Blackwell"})


class Work(NamedTuple):
    """Seconds of a GPU, by what they are spent on."""

    matmul: float
    attention: float
    elementwise: float

    @property
    def total(self) -> float:
        return self.matmul + self.attention + self.elementwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a board reaches, in operations or bytes a second."""

    matmul: float
    """Of the plan's precision, for large products."""
    matmul_16: float
    attention: float
    memory: float
    fill: float
    fill_grouped: float
    """Side of a product at which half the rate is lost; products of experts come in groups that fill a GPU less."""
    elementwise: float
    dequantise: float
    """Bytes that a 4-bit weight moves to become a 16-bit one."""
    grouped: float
    """Of products of experts, for large ones."""
    routed: float
    """Bytes moved for a value of a token that goes to an expert and comes back: sorted, padded, weighed."""
    accumulate: float
    """Bytes moved a weight to add a micro-batch's gradient to what is there."""

    @classmethod
    def of(cls, plan: TrainingPlan, cluster: Cluster, constants: Section) -> "Rates":
        """Raises CumuloError (invalid_request) where no rate of the board in the plan's precision is known."""
        variant, architecture = cluster.variant, cluster.architecture
        wide = plan.precision if plan.precision in ("fp32", "tf32") else "bf16"
        best = achieved_rate(variant, architecture, constants, wide)
        if not best:
            raise CumuloError(
                "invalid_request",
                f"no {wide.upper()} rate of {variant.name} is known",
                hint="ask for bf16 or another GPU",
            )
        # GeForce boards clock higher than their makers reckon with, so that results ask for more than the whole peak.
        most = _peak(variant, wide) * min(_throttled(variant, architecture), 1.0) * _TERA
        base = min(best * share_of_best("matmul", variant, architecture, constants), most)
        matmul, grouped = base, base * constants.number("grouped_share")
        if plan.precision in ("fp8", "fp4") and _peak(variant, plan.precision):
            narrow = achieved_rate(variant, architecture, constants, plan.precision) / best
            matmul *= max(narrow * constants.number(f"{plan.precision}_share"), 1.0)
            grouped *= constants.number("grouped_narrow_gain")
        attention = share_of_best("attention", variant, architecture, constants)
        if set(lineage(architecture)) & _ASYNCHRONOUS:
            attention *= constants.pick("attention_gain", plan.stack)
        return cls(
            matmul=matmul,
            matmul_16=base,
            attention=best * attention,
            memory=(variant.memory_bandwidth or 500e9) * constants.number("memory_share"),
            fill=constants.number("fill"),
            fill_grouped=constants.number("fill_grouped"),
            elementwise=constants.pick("elementwise", plan.stack) * (1 if wide == "bf16" else 2),
            dequantise=constants.number("dequantise_bytes"),
            grouped=grouped,
            routed=constants.number("routed_bytes"),
            accumulate=constants.number("accumulate_bytes"),
        )


def forward_layer(plan: TrainingPlan, rates: Rates) -> Work:
    """Of one dense layer, forward. `backward_factor` and recomputation come on top."""
    shape, tokens = plan.shape, plan.tokens
    dense = shape.attention_parameters + shape.feed_forward_parameters(experts=0)
    matmul = _product(plan, rates, parameters=dense, tokens=tokens, inner=shape.ffn)
    elementwise = _elementwise(plan, rates, inner=shape.ffn)
    if plan.method == "qlora":  # weights become 16-bit ones again in each pass
        elementwise += rates.dequantise * dense / plan.tp / rates.memory
    return Work(matmul, _attention(plan, rates), elementwise)


def forward_expert_layer(plan: TrainingPlan, rates: Rates) -> Work:
    """Of one layer with experts, forward, tokens spread evenly over the experts of the group."""
    shape, tokens = plan.shape, plan.tokens
    attention = _product(plan, rates, parameters=shape.attention_parameters, tokens=tokens, inner=shape.hidden)
    width = shape.expert_ffn or shape.ffn
    active = shape.feed_forward_parameters(experts=shape.active_experts)
    per_expert = tokens * plan.ep * shape.active_experts / max(shape.experts, 1)
    experts = _product(plan, rates, parameters=active, tokens=tokens, inner=width, batch=per_expert)
    routed = shape.active_experts * width + shape.shared_ffn
    moved = rates.routed * tokens * shape.active_experts * shape.hidden
    elementwise = _elementwise(plan, rates, inner=routed) + moved / rates.memory
    return Work(attention + experts, _attention(plan, rates), elementwise)


def forward_head(plan: TrainingPlan, rates: Rates) -> Work:
    """Of the vocabulary's product and its loss, forward: it stays in 16 bits."""
    shape, tokens = plan.shape, plan.tokens
    flops = 2 * tokens * shape.vocab * shape.hidden / plan.tp
    logits = 10 * tokens * shape.vocab / plan.tp
    return Work(flops / rates.matmul_16 / _filled(rates.fill, tokens, shape.hidden), 0.0, logits / rates.memory)


def _product(
    plan: TrainingPlan, rates: Rates, *, parameters: float, tokens: float, inner: float, batch: float | None = None
) -> float:
    """Seconds of products of `tokens` with `parameters` weights; `batch` is how many tokens an expert gets."""
    flops = 2 * tokens * parameters / plan.tp
    fill = rates.fill if batch is None else rates.fill_grouped
    filled = _filled(fill, batch or tokens, plan.shape.hidden, inner / plan.tp)
    weights = 2 * parameters / plan.tp
    if batch is not None:  # every expert that a GPU holds is read, whoever is active
        weights *= max(plan.shape.experts / plan.shape.active_experts / plan.ep, 1)
    return max(flops / filled / (rates.matmul if batch is None else rates.grouped), weights / rates.memory)


def _filled(fill: float, *sizes: float) -> float:
    """How much of its best rate a product of these sizes reaches: short sides leave tiles and pipelines idle."""
    return 1 / (1 + fill * sum(1 / max(size, 1) for size in sizes))


def _attention(plan: TrainingPlan, rates: Rates) -> float:
    shape = plan.shape
    wide = shape.heads * shape.head_dim / plan.tp
    if not plan.fused_attention:
        scores = plan.micro_batch * plan.seq * plan.seq * shape.heads / plan.tp / plan.cp
        return 4 * scores * shape.head_dim / rates.matmul_16 + 5 * 2 * scores * rates.elementwise / rates.memory
    return 4 * plan.tokens * wide * _looked_back(plan) / rates.attention


def _looked_back(plan: TrainingPlan) -> float:
    """Tokens that a token looks back to, on average over layers and places."""
    shape, whole = plan.shape, plan.seq / 2
    if not shape.window or not shape.window_layers or plan.seq <= shape.window:
        return whole
    short = shape.window * (1 - shape.window / (2 * plan.seq))
    share = shape.window_layers / shape.layers
    return share * short + (1 - share) * whole


def _elementwise(plan: TrainingPlan, rates: Rates, *, inner: float) -> float:
    """Norms, residuals and dropout are done by every GPU of a tensor-parallel group, unless the sequence is split."""
    shape = plan.shape
    alone = 10 * shape.hidden / (plan.tp if plan.sequence_parallel else 1)
    wide = shape.heads * shape.head_dim + shape.kv_heads * shape.head_dim
    shared = (4 * wide + 4 * inner * (1.5 if shape.gated else 1)) / plan.tp
    return rates.elementwise * plan.tokens * (alone + shared) / rates.memory


def achieved_rate(variant: Variant, architecture: str | None, constants: Section, precision: str) -> float:
    """The best rate of a large product on a board; 0 where it lacks the precision."""
    peak = _peak(variant, precision)
    if not peak:
        return 0.0
    table = "matmul_fp8" if precision in ("fp8", "fp4") else "matmul_bf16"
    measured = constants.table(table)
    if variant.name in measured:
        return peak * measured[variant.name] * _TERA
    return peak * constants.pick(table, *lineage(architecture)) * _throttled(variant, architecture) * _TERA


def share_of_best(kind: str, variant: Variant, architecture: str | None, constants: Section) -> float:
    """What training reaches of a board's best rate, by kind of operation: `matmul` or `attention`.

    The faster a board's tensor cores, the more its memory and all else that is not their work hold them up: the share
    falls by a power of the peak, and each architecture is a little off that line.
    """
    peak = (_peak(variant, "bf16") or _A100_PEAK) / _A100_PEAK
    level, fall = constants.number(f"{kind}_share"), constants.number(f"{kind}_fall")
    return float(level * peak**-fall * constants.pick(f"{kind}_own", *lineage(architecture)))


def lineage(architecture: str | None) -> tuple[str | None, ...]:
    """An architecture and what it came from: Blackwell Ultra's constants are Blackwell's where it has none."""
    return (architecture, architecture.split()[0]) if architecture else (None,)


def resembles_measured(variant: Variant, architecture: str | None, constants: Section) -> bool:
    """Whether a board was measured itself, or is run at about the power of those of its architecture that were."""
    measured = variant.name in constants.table("matmul_bf16")
    return measured or abs(_throttled(variant, architecture) - 1) < _ALIKE


def _throttled(variant: Variant, architecture: str | None) -> float:
    """What power makes of the rate that the measured boards of the architecture reach."""
    measured = next((_MEASURED_PER_WATT[name] for name in lineage(architecture) if name in _MEASURED_PER_WATT), None)
    if measured is None or not variant.tdp_watts or not variant.fp16_tensor_tflops:
        return 1.0
    return float(min((measured * variant.tdp_watts / variant.fp16_tensor_tflops) ** 0.3, _MOST_UNTHROTTLED))


def _peak(variant: Variant, precision: str) -> float:
    """Dense TFLOPS. A board without tensor cores does 16-bit products at its FP32 rate."""
    if precision == "fp8":
        return variant.fp8_tensor_tflops or 0.0
    if precision == "fp4":
        return variant.fp4_tensor_tflops or 0.0
    if precision == "tf32":
        return variant.tf32_tensor_tflops or variant.fp32_tflops or 0.0
    if precision == "fp32":
        return variant.fp32_tflops or 0.0
    return variant.fp16_tensor_tflops or variant.fp32_tflops or 0.0
