"""How a model is best trained on so many GPUs of one board: the layouts that are tried, and the one that wins.

First FSDP (or DDP where the states fit), then Megatron's groups where the model is trained in full. Of each kind the
largest micro-batch and the least recomputation that fit are taken: that alone prunes thousands to a handful.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from cumulo.advisor.answer_text import figure
from cumulo.advisor.memory import CONTEXT_BYTES, STATES, Memory, host_bytes, training_memory
from cumulo.advisor.plans import Estimate, Refusal, Supply
from cumulo.advisor.questions import Train
from cumulo.advisor.search_board import cluster_of, refused_precision
from cumulo.advisor.search_training_told import described, layout, memory_parts, notes, settings, time_parts
from cumulo.advisor.topology import Cluster
from cumulo.advisor.training import StepTime, TrainingPlan, step_time
from cumulo.advisor.training_plan import Precision, Recompute, Sharding
from cumulo.catalog.coefficients import Coefficients
from cumulo.domain.quantities import GIB, format_duration

_LARGEST_MICRO_BATCH: Final = 8
_TENSOR: Final = (1, 2, 4, 8)
_PIPELINE: Final = (1, 2, 4, 8, 16)
_GROUPS: Final = tuple(
    sorted(((t, p) for t in _TENSOR for p in _PIPELINE), key=lambda pair: (pair[0] * pair[1], pair[1]))
)
_KEPT_GROUPS: Final = 3
"""Groups that are looked at from the smallest that fits on: larger ones only cost speed."""
_FSDP_LIMIT: Final = 512
"""GPUs over which fully sharded parameters are gathered in practice."""
_OPTIMIZERS: Final = {
    "adamw": "AdamW in mixed precision: 18 bytes a parameter for weights, gradients and states",
    "adamw-bf16": "AdamW all in BF16: 8 bytes a parameter for weights, gradients and states",
    "adamw-8bit": "8-bit AdamW: 6 bytes a parameter for weights, gradients and states",
    "paged-8bit": "paged 8-bit AdamW: 2 bytes a parameter for weights, its states on the host where room is short",
    "adamw-host": "AdamW on the host: 4 bytes a parameter for weights and gradients, 16 more in the host's memory",
    "sgd": "SGD: 4 bytes a parameter for weights and gradients",
}
START_S: Final = 300.0
"""Until the first step: an instance starts, weights are loaded, kernels compiled. Assumed, and told."""


class Candidate(NamedTuple):
    """A layout that fits."""

    plan: TrainingPlan
    time: StepTime
    memory: Memory


def _holds(memory: Memory, *, sure: bool) -> bool:
    return memory.fits_surely() if sure else memory.total.expected + CONTEXT_BYTES <= memory.there


@dataclass(frozen=True, slots=True)
class TrainingEstimator:
    """Answers one question."""

    question: Train
    coefficients: Coefficients

    @property
    def endless(self) -> bool:
        return False

    @property
    def steps(self) -> tuple[str, float | None]:
        """What the work consists of, and how many there are."""
        return "step", self.question.steps

    def asked(self) -> str:
        question = self.question
        how = {"full": "full training", "lora": "LoRA fine-tuning", "qlora": "QLoRA fine-tuning"}[question.method]
        tokens = "" if question.tokens is None else f" on {figure(question.tokens)} tokens"
        return f"{how} of {described(question.shape)}{tokens} in sequences of {question.seq:,}"

    def assumed(self) -> Iterator[str]:
        question = self.question
        yield f"global batch of {question.global_batch:,} sequences"
        if question.method == "full":
            yield f"{_OPTIMIZERS[question.optimizer]}"
        else:
            yield f"LoRA of rank {question.rank} on all projections ({figure(question.trainable or 0)} parameters)"
        if question.precision is None:
            yield "BF16, or FP16 where a board has no BF16"
        if question.tokens is not None:
            yield f"{format_duration(START_S)} until the first step"
        yield "data is read as fast as it is trained on"

    def remedies(self) -> Iterator[tuple[str, "TrainingEstimator"]]:
        """What would make it fit, each as another question."""
        question = self.question
        if question.recompute == "none" or question.micro_batch not in (None, 1):
            yield (
                "a micro-batch of 1 with activations recomputed",
                replace(self, question=replace(question, recompute=None, micro_batch=None)),
            )
        if question.method == "full":
            if question.optimizer != "adamw-8bit":
                yield "an 8-bit optimizer", replace(self, question=replace(question, optimizer="adamw-8bit"))
            if question.optimizer != "adamw-host":
                yield (
                    "optimizer states in the host's memory (--optimizer adamw-host)",
                    replace(self, question=replace(question, optimizer="adamw-host")),
                )
            yield "LoRA", replace(self, question=replace(question, method="lora", optimizer="adamw"))
        if question.method != "qlora":
            yield "QLoRA (4-bit weights)", replace(self, question=replace(question, method="qlora", optimizer="adamw"))
        if question.seq > 1024:
            yield "sequences of 1,024 tokens", replace(self, question=replace(question, seq=1024))

    def least_gpus(self, supply: Supply) -> int:
        """A bound below which no layout can fit: weights alone, spread over all GPUs."""
        bits = 0.5 if self.question.method == "qlora" else 2.0
        held = self.question.shape.parameters * bits
        return max(1, int(held / supply.memory_bytes))

    def most_gpus(self) -> int:
        """More have nothing to do: each data-parallel group needs a sequence, and groups have 128 GPUs at most."""
        groups = 1 if self.question.method != "full" else _TENSOR[-1] * _PIPELINE[-1]
        return self.question.global_batch * groups

    def estimate(self, supply: Supply, gpus: int) -> Estimate | Refusal:
        precision = self.question.precision or ("bf16" if supply.variant.bf16 else "fp16")
        if refusal := refused_precision(supply, precision):
            return refusal
        if gpus > supply.per_node and not supply.joins:
            return Refusal("network", f"{supply.name}: what joins such instances is not known")
        cluster = cluster_of(supply, gpus)
        for sure in (True, False):
            best, short = self.best(cluster, precision, sure=sure)
            if best is not None:
                return self._told(best, supply=supply, tight=not sure)
        return _too_little(short, supply, gpus)

    def best(self, cluster: Cluster, precision: Precision, *, sure: bool) -> tuple[Candidate | None, Memory | None]:
        """The fastest layout that fits (`sure`: even at the upper end of its range), or the least memory that lacks."""
        best: Candidate | None = None
        short: Memory | None = None
        for plan in self._layouts(cluster, precision):
            fitting, memory = self._fitting(plan, cluster, sure=sure)
            if fitting is None:
                short = memory if short is None or memory.total.expected < short.total.expected else short
                continue
            time = step_time(fitting, cluster, self.coefficients)
            if best is None or time.total.expected < best.time.total.expected:
                best = Candidate(fitting, time, memory)
        return best, short

    def _layouts(self, cluster: Cluster, precision: Precision) -> Iterator[TrainingPlan]:
        """Ways to spread the work, micro-batch and recomputation still open."""
        question, gpus = self.question, cluster.gpus
        base = TrainingPlan(
            shape=question.shape,
            method=question.method,
            precision=precision,
            optimizer=question.optimizer,
            seq=question.seq,
            micro_batch=question.micro_batch or 1,
            global_batch=question.global_batch,
            trainable=question.trainable,
        )
        if gpus <= min(question.global_batch, _FSDP_LIMIT):
            shardings: tuple[Sharding, ...] = ("none",) if gpus == 1 else ("none", "zero3")
            for sharding in shardings:
                yield replace(base, dp=gpus, sharding=sharding)
        if question.method == "full" and gpus > 1:
            yield from self._groups(base, cluster)

    def _groups(self, base: TrainingPlan, cluster: Cluster) -> Iterator[TrainingPlan]:
        """Megatron's, from the smallest that can hold the states on: `_KEPT_GROUPS` of them."""
        shape, gpus = base.shape, cluster.gpus
        kept = 0
        for tp, pp in _GROUPS:
            dp, rest = divmod(gpus, tp * pp)
            possible = not rest and dp <= base.global_batch and tp <= cluster.gpus_per_node and pp <= shape.layers
            if not possible or shape.heads % tp or shape.kv_heads % tp:
                continue
            ep = _expert_groups(shape.experts, dp)
            weight, gradient, state = STATES[base.optimizer]
            states = shape.parameters / (tp * pp * ep) * (weight + gradient + state / dp)
            if states > cluster.memory_bytes:
                continue
            yield replace(
                base, tp=tp, pp=pp, dp=dp, ep=ep, sharding="zero1", sequence_parallel=tp > 1, stack="megatron"
            )
            kept += 1
            if kept == _KEPT_GROUPS:
                return

    def _fitting(self, plan: TrainingPlan, cluster: Cluster, *, sure: bool) -> tuple[TrainingPlan | None, Memory]:
        """The plan with the least recomputation and largest micro-batch that fit; None with what it lacks."""
        question = self.question
        recomputes: tuple[Recompute, ...] = ("none", "full") if question.recompute is None else (question.recompute,)
        for recompute in recomputes:
            tried = plan if recompute == plan.recompute else replace(plan, recompute=recompute)
            memory = training_memory(tried, cluster, self.coefficients)
            if _holds(memory, sure=sure):
                return self._enlarged(tried, memory, cluster, sure=sure)
            states = memory.weights + memory.gradients + memory.optimizer
            if states > cluster.memory_bytes:
                break  # to compute activations again would not help
        return None, memory

    def _enlarged(
        self, plan: TrainingPlan, memory: Memory, cluster: Cluster, *, sure: bool
    ) -> tuple[TrainingPlan, Memory]:
        """With the largest micro-batch that still fits, where the question leaves it open."""
        most = min(max(plan.global_batch // plan.dp, 1), _LARGEST_MICRO_BATCH)
        if self.question.micro_batch is not None:
            return plan, memory
        while 2 * plan.micro_batch <= most:
            tried = replace(plan, micro_batch=2 * plan.micro_batch)
            need = training_memory(tried, cluster, self.coefficients)
            idle = tried.micro_batches * tried.micro_batch > plan.micro_batches * plan.micro_batch
            if idle or not _holds(need, sure=sure):
                break
            plan, memory = tried, need
        return plan, memory

    def _told(self, one: Candidate, *, supply: Supply, tight: bool) -> Estimate:
        steps, (plan, time, memory) = self.question.steps, one
        return Estimate(
            layout=layout(plan),
            rate=time.total.inverted(plan.step_tokens),
            unit="tokens/s",
            limit=time.limit,
            seconds=None if steps is None else time.total.scaled(steps).shifted(START_S),
            start_s=0.0 if steps is None else START_S,
            memory=memory.total.shifted(CONTEXT_BYTES),
            host_bytes=host_bytes(plan),
            tight=tight,
            memory_parts=memory_parts(memory),
            time_parts=time_parts(time),
            notes=tuple(notes(plan, time, supply)),
            settings=settings(plan),
        )


def _expert_groups(experts: int, dp: int) -> int:
    """Over how many GPUs the experts are spread: as many as there are, as far as both divide."""
    size = min(experts, dp) if experts else 1
    while size > 1 and (experts % size or dp % size):
        size -= 1
    return size


def _too_little(short: Memory | None, supply: Supply, gpus: int) -> Refusal:
    if short is None:
        return Refusal("layout", f"{gpus} x {supply.name}: no way to spread the work over so many")
    need = short.total.expected + CONTEXT_BYTES
    return Refusal(
        "memory",
        f"{gpus} x {supply.name}: needs {need / GIB:.0f} GiB on each GPU of {supply.memory_bytes / GIB:.0f}",
        short_by=need - supply.memory_bytes,
    )
