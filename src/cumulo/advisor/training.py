"""How long a training step takes, and what it is spent on.

Layers cost what training_layers.py says, or what it takes the host to launch their kernels. Collectives cost what
topology.py says, less what each software hides behind computing. A pipeline adds its bubble.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from cumulo.advisor.estimate import Range, Spread
from cumulo.advisor.memory import expert_parameters
from cumulo.advisor.topology import Cluster, Links, all_reduce_seconds
from cumulo.advisor.training_layers import (
    Rates,
    Work,
    forward_expert_layer,
    forward_head,
    forward_layer,
    lineage,
    resembles_measured,
)
from cumulo.advisor.training_plan import TrainingPlan
from cumulo.catalog.coefficients import Coefficients, Section

# Of an architecture with fewer results the range is that of one that nothing was fitted to.
_FEW_CASES: Final = 4
# Of a parameter whose states the host keeps: its 16-bit gradient goes there, the weight comes back; weight, momentum,
# variance and gradient in 32 bits are read, the first three written, and the weight in 16 bits as well.
_SENT_BYTES: Final = 4.0
_UPDATED_BYTES: Final = 30.0

__all__ = ["StepTime", "TrainingPlan", "step_time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one step of the optimizer on every GPU; the parts sum to what is expected of the total."""

    matmul: float
    attention: float
    elementwise: float
    launch: float
    """What the host takes longer to launch kernels than the GPU to run them."""
    tensor_parallel: float
    expert_parallel: float
    context_parallel: float
    pipeline: float
    """The bubble, and what is sent between stages."""
    data_parallel: float
    """Gradients and sharded parameters, as far as no computing hides them."""
    optimizer: float
    host: float
    """Optimizer states in the host's memory: gradients go there, the CPU updates, weights come back."""
    total: Range

    @property
    def limit(self) -> str:
        """What binds: compute, memory bandwidth, network, launch overhead, pipeline bubble or host memory."""
        network = self.tensor_parallel + self.expert_parallel + self.context_parallel + self.data_parallel
        shares = {
            "compute": self.matmul + self.attention,
            "memory bandwidth": self.elementwise + self.optimizer,
            "network": network,
            "launch overhead": self.launch,
            "pipeline bubble": self.pipeline,
            "host memory": self.host,
        }
        return max(shares, key=lambda name: shares[name])


class _MicroBatch(NamedTuple):
    """Seconds of one micro-batch, forward and backward, in one stage."""

    work: Work
    launch: float
    tensor: float
    expert: float
    context: float
    sharded: float
    """Gathering parameters and scattering gradients, where they are sharded (ZeRO-3), beyond what is hidden."""

    @property
    def total(self) -> float:
        return self.work.total + self.launch + self.tensor + self.expert + self.context + self.sharded


def step_time(plan: TrainingPlan, cluster: Cluster, coefficients: Coefficients) -> StepTime:
    """Of a plan that fits the cluster: `plan.gpus` of its GPUs are used.

    Raises CumuloError (invalid_request) where no rate of the GPU in the plan's precision is known.
    """
    constants = coefficients.training
    micro = _micro_batch(plan, cluster, constants)
    count = plan.micro_batches
    bubble = (plan.pp - 1) / plan.virtual * micro.total
    sent = 2 * (count + plan.pp - 1) * _stage_send(plan, cluster, constants)
    gradients = _gradients(plan, cluster, constants, hideable=micro.work.total * 2 / 3)
    optimizer, host = _optimizer(plan, cluster, constants)
    launch = count * micro.launch + constants.number("step_seconds")
    expected = count * micro.total + bubble + sent + gradients + optimizer + host + constants.number("step_seconds")
    target = spread_of(plan)
    few = constants.pick("cases", *lineage(cluster.architecture)) < _FEW_CASES
    if target != "training_tuned" and (few or not resembles_measured(cluster.variant, cluster.architecture, constants)):
        target += "_unseen"
    return StepTime(
        matmul=count * micro.work.matmul,
        attention=count * micro.work.attention,
        elementwise=count * micro.work.elementwise,
        launch=launch,
        tensor_parallel=count * micro.tensor,
        expert_parallel=count * micro.expert,
        context_parallel=count * micro.context,
        pipeline=bubble + sent,
        data_parallel=gradients + count * micro.sharded,
        optimizer=optimizer,
        host=host,
        total=Spread(*constants.spread(target)).around(expected),
    )


def spread_of(plan: TrainingPlan) -> str:
    """Which results tell how far off the time of such a plan is.

    Fine-tuning's are few, of small batches and of software that nobody tuned: they scatter more than pretraining's. Of
    states on the host there are none: no range is wider than that.
    """
    if plan.method != "full" or plan.optimizer == "adamw-host":
        return "training_tuned"
    return "training_moe" if plan.shape.experts else "training_dense"


def _micro_batch(plan: TrainingPlan, cluster: Cluster, constants: Section) -> _MicroBatch:
    """Of the slowest stage: the last one has the vocabulary's head as well, unless layers can make up for it."""
    rates, shape = Rates.of(plan, cluster, constants), plan.shape
    dense = _passes(plan, forward_layer(plan, rates))
    sparse = _passes(plan, forward_expert_layer(plan, rates)) if shape.moe_layers else Work(0, 0, 0)
    head = _scaled(forward_head(plan, rates), 3 if plan.method == "full" else 2)
    count, sparse_count = (shape.layers - shape.moe_layers) / plan.pp, shape.moe_layers / plan.pp
    uneven = shape.layers % (plan.pp * plan.virtual) != 0
    heads = 1 / plan.pp if uneven else 1.0
    work = _sum(_sum(_scaled(dense, count), _scaled(sparse, sparse_count)), _scaled(head, heads))
    work = work._replace(elementwise=work.elementwise + _accumulating(plan, rates))
    tensor = shape.layers / plan.pp * _tensor_parallel(plan, cluster, constants)
    expert = sparse_count * _expert_parallel(plan, cluster, constants)
    busy = work.total + tensor + expert
    recompute = 4 / 3 if plan.recompute == "full" else 1.0
    routing = constants.number("launch_routing_seconds")
    routing += constants.number("launch_expert_seconds") * shape.experts / plan.ep  # each that a GPU holds by itself
    host = recompute * ((count + sparse_count) * constants.pick("launch_seconds", plan.stack) + sparse_count * routing)
    launched = _smooth_max(busy, host, constants.number("launch_exponent")) - busy
    context = shape.layers / plan.pp * _context_parallel(plan, cluster, constants)
    wire = _sharded(plan, cluster, constants)
    sharded = _smooth_max(busy + launched, wire, constants.number("overlap_exponent")) - busy - launched
    return _MicroBatch(work, launched, tensor, expert, context, sharded)


def _passes(plan: TrainingPlan, forward: Work) -> Work:
    """Forward, backward (twice the products; once where the weights are frozen), and what is computed again."""
    again = 1.0 if plan.recompute == "full" else 0.0
    backward = 2.0 if plan.method == "full" else 1.05
    attention_again = 1.0 if plan.recompute != "none" and not plan.fused_attention else again
    return Work(
        forward.matmul * (1 + backward + again),
        forward.attention * (3.5 + attention_again),
        forward.elementwise * (3 + again),
    )


def _accumulating(plan: TrainingPlan, rates: Rates) -> float:
    """Of a micro-batch: its gradients are added to those of all weights that a GPU holds, also of idle experts.

    Where experts are spread over few GPUs, each GPU holds many, and each gets few tokens for all that traffic.
    """
    if plan.method != "full":
        return 0.0
    experts = expert_parameters(plan.shape)
    held = (plan.shape.parameters - experts + experts / plan.ep) / plan.tp / plan.pp
    return rates.accumulate * held / rates.memory


def _tensor_parallel(plan: TrainingPlan, cluster: Cluster, constants: Section) -> float:
    """Of one layer: two all-reduces forward, two backward, two more where all is computed again."""
    if plan.tp == 1:
        return 0.0
    payload = 2.0 * plan.tokens * plan.shape.hidden
    bandwidth = Links.of(constants).ring(cluster, plan.tp, 1)
    once = all_reduce_seconds(payload, plan.tp, bandwidth)
    count = 6 if plan.recompute == "full" else 4
    return count * once * constants.pick("tensor_exposed", plan.stack)


def _expert_parallel(plan: TrainingPlan, cluster: Cluster, constants: Section) -> float:
    """Of one layer: tokens go to their experts and back, forward and backward."""
    if plan.ep == 1:
        return 0.0
    payload = 2.0 * plan.tokens * plan.shape.hidden / plan.tp
    links, active = Links.of(constants), plan.shape.active_experts
    once = links.exchange_seconds(cluster, plan.ep, copies=active, payload=payload)
    return 4 * once * constants.number("expert_exposed")


def _context_parallel(plan: TrainingPlan, cluster: Cluster, constants: Section) -> float:
    """Of one layer: keys and values go round, forward and (with their gradients) backward."""
    if plan.cp == 1:
        return 0.0
    payload = 2.0 * 2 * plan.tokens * plan.shape.kv_heads * plan.shape.head_dim / plan.tp * (plan.cp - 1)
    bandwidth = Links.of(constants).ring(cluster, plan.cp, plan.tp)
    return 3 * payload / bandwidth * constants.pick("tensor_exposed", plan.stack)


def _sharded(plan: TrainingPlan, cluster: Cluster, constants: Section) -> float:
    """ZeRO-3: parameters are gathered forward and backward, gradients scattered, for each micro-batch."""
    group = plan.dp * plan.cp
    if plan.sharding != "zero3" or group == 1:
        return 0.0
    held = 2.0 * plan.shape.parameters / plan.tp / plan.pp
    bandwidth = Links.of(constants).ring(cluster, group, plan.tp)
    passes = 3 if plan.method == "full" else 2
    return passes * held * (group - 1) / group / bandwidth


def _gradients(plan: TrainingPlan, cluster: Cluster, constants: Section, *, hideable: float) -> float:
    """Once a step, where parameters are not sharded: an all-reduce, or a reduce-scatter and an all-gather."""
    group = plan.dp * plan.cp
    if plan.sharding == "zero3" or group == 1:
        return 0.0
    links, shape = Links.of(constants), plan.shape
    bandwidth = links.ring(cluster, group, plan.tp)
    trained = plan.trainable_parameters / shape.parameters
    experts = expert_parameters(shape) * trained
    others = (shape.parameters * trained - experts) / plan.tp / plan.pp
    local = others + experts / plan.tp / plan.pp / plan.ep
    wire = all_reduce_seconds(constants.number("gradient_bytes") * local, group, bandwidth)
    hidden = constants.pick("gradient_hidden", plan.stack)
    return wire - hidden * min(wire, hideable)


def _optimizer(plan: TrainingPlan, cluster: Cluster, constants: Section) -> tuple[float, float]:
    """Reads and writes the states of the parameters that a GPU updates: in its own memory, or in the host's."""
    held = plan.trainable_parameters / plan.tp / plan.pp
    if plan.sharding != "none":
        held /= plan.dp * plan.cp
    elif plan.shape.experts:
        held /= plan.ep
    share = constants.number("memory_share")
    if plan.optimizer == "adamw-host":
        sent = _SENT_BYTES * held / (cluster.host_link_bytes_s * share)
        return 0.0, sent + _UPDATED_BYTES * held / (cluster.host_memory_bytes_s * share)
    memory = (cluster.variant.memory_bandwidth or 500e9) * share
    return constants.number("optimizer_bytes") * held / memory, 0.0


def _stage_send(plan: TrainingPlan, cluster: Cluster, constants: Section) -> float:
    """Activations of a micro-batch to the next stage, or their gradients back."""
    if plan.pp == 1:
        return 0.0
    payload = 2.0 * plan.tokens * plan.shape.hidden / plan.tp * plan.virtual
    apart = plan.tp * plan.dp * plan.cp >= cluster.gpus_per_node
    links = Links.of(constants)
    bandwidth = cluster.nic_bytes_s * links.nic_share if apart else cluster.fabric_bytes_s * links.fabric_share
    return (payload / bandwidth + 1e-5) * constants.pick("tensor_exposed", plan.stack)


def _smooth_max(one: float, other: float, exponent: float) -> float:
    """Of two things that run at once: the longer, or somewhat more where they are alike."""
    longer = max(one, other)
    if longer <= 0:
        return 0.0
    return float(longer * ((one / longer) ** exponent + (other / longer) ** exponent) ** (1 / exponent))


def _scaled(work: Work, by: float) -> Work:
    return Work(work.matmul * by, work.attention * by, work.elementwise * by)


def _sum(one: Work, other: Work) -> Work:
    return Work(one.matmul + other.matmul, one.attention + other.attention, one.elementwise + other.elementwise)
