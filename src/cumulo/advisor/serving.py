"""How fast a model is served: offline throughput, the latency that users see, and one sequence alone.

A roofline of the steps of an engine with continuous batching. Prefill is bound by products and attention; a step of
decoding reads the weights once and every sequence's cache, and multiplies as well, partly at the same time. In the
steady state each sequence costs its prefill and its share of the steps, so tokens/s = output / (prefill + output x
step / batch). Constants are fitted to TensorRT-LLM's published throughput; see `bench/advisor/serving.py`.
"""

from dataclasses import dataclass, replace
from math import hypot, pow, sqrt
from typing import Final

from cumulo.advisor.estimate import Range, Spread
from cumulo.advisor.serving_memory import serving_memory
from cumulo.advisor.serving_plan import ServingPlan, precision_tflops
from cumulo.advisor.topology import Cluster, all_reduce_seconds
from cumulo.catalog.coefficients import Coefficients, Section
from cumulo.catalog.kinds import find

_WATTS_PER_TFLOPS: Final = 700 / 989.4
"""Of the H100, whose power suffices for its rate."""
_POWER: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRate:
    """Output tokens a second of one replica, and what binds it. `batch` sequences run at once."""

    output_tokens_s: Range
    batch: float
    limit: str
    """`compute`, `memory bandwidth`, `network`, `launch` or `capacity` (too few sequences fit)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds to the first token, and between two tokens of a sequence."""

    ttft: Range
    tpot: Range
    output_tokens_s: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Seconds of one step of decoding a batch, by part. Reading and multiplying overlap in part."""

    reading: float
    multiplying: float
    network: float
    launch: float

    @property
    def total(self) -> float:
        return hypot(self.reading, self.multiplying) + self.network + self.launch

    @property
    def limit(self) -> str:
        parts = {
            "memory bandwidth": self.reading,
            "compute": self.multiplying,
            "network": self.network,
            "launch": self.launch,
        }
        return max(parts, key=lambda name: parts[name])


def serving_rate(
    plan: ServingPlan,
    cluster: Cluster,
    coefficients: Coefficients,
    *,
    isl: int,
    osl: int,
    concurrency: float | None = None,
) -> ServingRate | None:
    """Of one replica with prompts of `isl` and answers of `osl` tokens: as many at once as fit, or `concurrency`.

    None where the weights don't fit, or the board lacks the precision or a rate that it takes.
    """
    constants = coefficients.serving
    found = throughput(plan, cluster, constants, isl=isl, osl=osl, concurrency=concurrency)
    if found is None:
        return None
    rate, batch, limit = found
    return ServingRate(output_tokens_s=serving_spread(plan, cluster, constants).around(rate), batch=batch, limit=limit)


def latency(
    plan: ServingPlan, cluster: Cluster, coefficients: Coefficients, *, isl: int, osl: int, concurrency: float
) -> Latency | None:
    """What each of `concurrency` users of one replica waits; None as for `serving_rate`, or where they don't fit.

    A user's tokens stand still while others' prompts are prefilled: that is part of the time between tokens. A prompt
    waits on average for half a step, and for the prompts before it as their share of the time. Stages of a pipeline
    come one after the other for a prompt as for a token: they let more users in, and nobody sooner.
    """
    constants = coefficients.serving
    context = isl + osl
    if not runnable(plan, cluster) or serving_memory(plan, cluster, context=context).sequences < concurrency:
        return None
    through, at_once = replace(plan, pp=1), max(concurrency / plan.pp, 1)
    step = decode_step(through, cluster, constants, batch=at_once, context=isl + osl / 2).total
    prefill = prefill_seconds(through, cluster, constants, tokens=isl)
    stage = prefill / plan.pp
    between = step + stage * concurrency / osl
    busy = min(stage * concurrency / (stage * concurrency + osl * step), 1.0)
    first = prefill + busy * concurrency / 2 * stage * stage / (stage + between) + step / 2
    spread = serving_spread(plan, cluster, constants)
    return Latency(
        ttft=spread.around(first),
        tpot=spread.around(between),
        output_tokens_s=spread.around(concurrency / between),
    )


def decode_rate(plan: ServingPlan, cluster: Cluster, coefficients: Coefficients) -> Range | None:
    """Tokens a second of a single sequence in an engine like llama.cpp: GPUs of a pipeline take turns.

    Weights are read at what the memory gives, or at what the board's units can have in flight, whichever is less; each
    layer costs launches. None where bandwidth, units or clock are unknown.
    """
    seconds = decode_seconds(plan, cluster, coefficients.serving)
    spread = serving_spread(plan, cluster, coefficients.serving, "decode_batch1")
    return None if seconds is None else spread.around(1 / seconds)


def runnable(plan: ServingPlan, cluster: Cluster) -> bool:
    """Whether the board has the rates that the plan takes."""
    return bool(precision_tflops(cluster.variant, plan.precision) and cluster.variant.memory_bandwidth)


def serving_spread(plan: ServingPlan, cluster: Cluster, constants: Section, target: str = "serving_offline") -> Spread:
    """Wider with each thing that the constants have not seen: the board's family, the model, more GPUs, the engine.

    A mixture of experts that is new counts twice: how well its small products do differs most between models.
    """
    seen = constants.values[f"seen_{target}"]
    kinds = find(cluster.variant.name)
    new_model = plan.shape.name not in seen["models"]
    strange = [
        not kinds or kinds[0].family not in seen["boards"],
        new_model,
        new_model and bool(plan.shape.experts),
        plan.gpus > seen["gpus"],
        plan.engine not in seen["engines"],
    ]
    return Spread(*constants.spread(target)).widened(1 + constants.number(f"widening_{target}") * sum(strange))


def throughput(
    plan: ServingPlan, cluster: Cluster, constants: Section, *, isl: int, osl: int, concurrency: float | None
) -> tuple[float, float, str] | None:
    """Output tokens a second, sequences at once, and what binds; None as for `serving_rate`."""
    if not runnable(plan, cluster):
        return None
    context = isl + osl / 2
    room = serving_memory(plan, cluster, context=round(context)).sequences
    if room <= 0:
        return None
    most = constants.number("most_sequences")
    batch = pow(room**-4 + most**-4, -0.25)
    if concurrency is not None:
        batch = min(batch, concurrency)
    if batch < 1 and room < 1:
        return None
    step = decode_step(plan, cluster, constants, batch=batch, context=context)
    prefill = prefill_seconds(plan, cluster, constants, tokens=isl)
    rate = osl / (prefill + osl * step.total / batch)
    limit = "compute" if prefill > osl * step.total / batch else step.limit
    starved = limit == "memory bandwidth" and room < most / 8 and concurrency is None
    return rate, batch, "capacity" if starved else limit


def prefill_seconds(plan: ServingPlan, cluster: Cluster, constants: Section, *, tokens: int) -> float:
    """Of a prompt alone: products, causal attention, and the tensor-parallel sums."""
    shape = plan.shape
    products = 2 * _multiplied(plan) * tokens / (product_rate(plan, cluster, constants) * plan.gpus)
    looked = _looked_at(plan, tokens)
    attention = 4 * shape.heads * shape.head_dim * shape.layers * tokens * looked
    rate = attention_rate(plan, cluster, constants) * plan.gpus
    return products + attention / rate + _sums(plan, cluster, constants, tokens, latency=0.0)


def decode_step(plan: ServingPlan, cluster: Cluster, constants: Section, *, batch: float, context: float) -> Step:
    """One token for each of `batch` sequences that have `context` tokens behind them."""
    shape, gpus = plan.shape, plan.gpus
    bandwidth = (cluster.variant.memory_bandwidth or 0) * constants.number("memory_share") * gpus
    read = _weights_read(plan, batch) + batch * plan.cache_bytes(round(context))
    # What a sequence's heads take beside their bytes is split over the group, as the heads are.
    launch = constants.number("launch_seconds") + constants.number("sequence_seconds") * batch / plan.tp
    return Step(
        reading=read / bandwidth,
        multiplying=2 * _multiplied(plan) * batch / (product_rate(plan, cluster, constants) * gpus),
        network=_sums(plan, cluster, constants, batch, latency=constants.number("collective_seconds")),
        launch=launch * shape.layers,
    )


def decode_seconds(plan: ServingPlan, cluster: Cluster, constants: Section) -> float | None:
    """What one token of a single sequence takes."""
    variant = cluster.variant
    if not variant.memory_bandwidth or not variant.compute_units or not variant.boost_mhz:
        return None
    bits = plan.weight_bits or 8 * plan.weight_bytes / plan.shape.parameters
    share = _weights_read(plan, 1) / plan.tp
    values = 8 * share / bits
    reading = share / (variant.memory_bandwidth * constants.number("single_memory_share"))
    name = "single_values_per_clock_16" if bits >= 12 else "single_values_per_clock_4"
    unpacking = values / (variant.compute_units * variant.boost_mhz * 1e6 * constants.number(name))
    launches = constants.number("single_launch_seconds") * plan.shape.layers
    hops = constants.number("single_hop_seconds") * sqrt(plan.pp - 1)
    return pow(reading**6 + unpacking**6, 1 / 6) + launches + hops


def product_rate(plan: ServingPlan, cluster: Cluster, constants: Section) -> float:
    """FLOPS that a GPU's large products reach in the plan's precision."""
    peak = precision_tflops(cluster.variant, plan.precision) or 0.0
    share = constants.number("product_share") * achieved(cluster, constants)
    if plan.held.native == "fp4":
        share *= constants.number("fp4_share")
    if plan.shape.experts:
        share *= constants.number("grouped_share")
    return peak * 1e12 * share


def achieved(cluster: Cluster, constants: Section) -> float:
    """What its best product reaches of a board's rate, beside an H100's: as measured, else as power allows."""
    variant, measured = cluster.variant, constants.table("achieved")
    if variant.name in measured or not variant.tdp_watts or not variant.fp16_tensor_tflops:
        return constants.pick("achieved", variant.name, cluster.architecture)
    power = variant.tdp_watts / variant.fp16_tensor_tflops / _WATTS_PER_TFLOPS
    return constants.pick("achieved", cluster.architecture) * min(pow(power, _POWER), 1.0)


def attention_rate(plan: ServingPlan, cluster: Cluster, constants: Section) -> float:
    """FLOPS of attention over a prompt: in 8 bits where the cache is, else in 16."""
    variant = cluster.variant
    eight = variant.fp8_tensor_tflops if plan.held.cache_bytes < 2 else None
    peak = eight or variant.fp16_tensor_tflops or variant.fp32_tflops or 0.0
    return peak * 1e12 * constants.number("attention_share") * achieved(cluster, constants)


def _multiplied(plan: ServingPlan) -> float:
    """Parameters that each token is multiplied with: not the input embedding's."""
    shape = plan.shape
    return shape.active_parameters - (0 if shape.tied else shape.vocab * shape.hidden)


def _looked_at(plan: ServingPlan, tokens: int) -> float:
    """Tokens that one of a prompt looks back to, on average over layers and places."""
    shape, whole = plan.shape, tokens / 2
    if not shape.window or not shape.window_layers or tokens <= shape.window:
        return whole
    share = shape.window_layers / shape.layers
    return share * shape.window * (1 - shape.window / (2 * tokens)) + (1 - share) * whole


def _weights_read(plan: ServingPlan, batch: float) -> float:
    """Bytes of weights that a step reads: of the experts, those that some sequence of the batch needs."""
    shape = plan.shape
    if not shape.experts:
        return plan.read_bytes
    idle = pow(1 - shape.active_experts / shape.experts, batch)
    matrices = 3 if shape.gated else 2
    experts = shape.moe_layers * shape.experts * matrices * shape.hidden * (shape.expert_ffn or shape.ffn)
    return plan.read_bytes * (1 - idle * experts / shape.parameters)


def _sums(plan: ServingPlan, cluster: Cluster, constants: Section, tokens: float, *, latency: float) -> float:
    """Two all-reduces a layer of `tokens` activations in 16 bits, over the tensor-parallel group."""
    if plan.tp == 1:
        return 0.0
    shape = plan.shape
    bandwidth = cluster.fabric_bytes_s * constants.number("fabric_share")
    if plan.tp > cluster.gpus_per_node:
        bandwidth = min(bandwidth, cluster.gpus_per_node * cluster.nic_bytes_s * constants.number("fabric_share"))
    payload = 2.0 * tokens * shape.hidden
    return 2 * shape.layers * all_reduce_seconds(payload, plan.tp, bandwidth, latency=latency)
