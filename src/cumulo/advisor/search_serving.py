"""How a model is best served on so many GPUs of one board: replicas of groups, and how many users each has.

With `users` their latency decides: a layout counts if the whole range of it meets what is wanted. Without, as many
sequences run at once as memory holds, or as still meet it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from cumulo.advisor.answer_text import counted, figure, seconds_text
from cumulo.advisor.estimate import Range
from cumulo.advisor.plans import Estimate, Figure, Part, Refusal, Supply
from cumulo.advisor.questions import Serve
from cumulo.advisor.search_board import cluster_of, has_fabric
from cumulo.advisor.search_training_told import described
from cumulo.advisor.serving import Latency, ServingRate, latency, serving_rate
from cumulo.advisor.serving_memory import ENGINE_SHARE, serving_memory
from cumulo.advisor.serving_plan import ENGINE, ServingPlan, ServingPrecision, supports
from cumulo.advisor.topology import Cluster
from cumulo.catalog.coefficients import Coefficients
from cumulo.domain.quantities import GIB

_TENSOR: Final = (1, 2, 4, 8)
_PIPELINE: Final = (1, 2, 4)
_MOST: Final = 256
_HALVINGS: Final = 10


class _Candidate(NamedTuple):
    plan: ServingPlan
    replicas: int
    users: float
    """Sequences at once in one replica."""
    waits: Latency
    limit: str

    @property
    def rate(self) -> Range:
        return self.waits.output_tokens_s.scaled(self.replicas)


@dataclass(frozen=True, slots=True)
class ServingEstimator:
    """Answers one question."""

    question: Serve
    coefficients: Coefficients

    @property
    def endless(self) -> bool:
        return True

    @property
    def steps(self) -> tuple[str, float | None]:
        return "token", None

    def asked(self) -> str:
        question = self.question
        users = f" for {question.users:,} users at once" if question.users else ""
        targets = [
            f"{name} within {seconds_text(limit)}"
            for name, limit in (("first token", question.ttft_s), ("each further", question.tpot_s))
            if limit is not None
        ]
        return ", ".join([f"serving {described(question.shape)}{users}, {question.context:,} tokens each", *targets])

    def assumed(self) -> Iterator[str]:
        question = self.question
        yield f"prompts of {question.prompt:,} tokens, answers of {question.answer:,}"
        yield f"an engine as fast as {ENGINE}, with {ENGINE_SHARE:.0%} of the memory"
        yield "requests spread evenly over replicas; no prefix is shared"

    def remedies(self) -> Iterator[tuple[str, "ServingEstimator"]]:
        question = self.question
        for precision in ("fp8", "int4"):
            if precision not in question.precisions:
                name = "4-bit weights" if precision == "int4" else "8-bit weights"
                yield name, replace(self, question=replace(question, precisions=(precision,)))
        if question.ttft_s is not None or question.tpot_s is not None:
            yield "no limit on latency", replace(self, question=replace(question, ttft_s=None, tpot_s=None))
        if question.context > 2048:
            shorter = replace(question, context=question.context // 2, prompt=question.prompt // 2)
            yield f"a context of {shorter.context:,} tokens", replace(self, question=shorter)

    def least_gpus(self, supply: Supply) -> int:
        """A bound below which the weights alone can't be held."""
        return max(1, int(0.5 * self.question.shape.parameters / supply.memory_bytes))

    def most_gpus(self) -> int:
        return _MOST

    def estimate(self, supply: Supply, gpus: int) -> Estimate | Refusal:
        refusal = Refusal(
            "precision", f"{supply.name} computes in none of {', '.join(self.question.precisions).upper()}"
        )
        best: _Candidate | None = None
        for precision in self._precisions(supply):
            for tp, pp in self._groups(supply, gpus):
                plan = ServingPlan(shape=self.question.shape, precision=precision, tp=tp, pp=pp)
                found = self._served(plan, cluster_of(supply, plan.gpus), gpus // plan.gpus, supply)
                if isinstance(found, Refusal):
                    refusal = found
                elif best is None or found.rate.expected > best.rate.expected:
                    best = found
        return refusal if best is None else self._told(best, supply)

    def _precisions(self, supply: Supply) -> list[ServingPrecision]:
        """Those asked for that the board has a rate for; FP16 in place of a BF16 that it lacks."""
        asked: list[ServingPrecision] = [
            "fp16" if precision == "bf16" and supply.variant.bf16 is False else precision
            for precision in self.question.precisions
        ]
        return [precision for precision in asked if supports(supply.variant, precision)]

    def _groups(self, supply: Supply, gpus: int) -> Iterator[tuple[int, int]]:
        """Tensor-parallel groups inside a node, and pipelines of whole nodes where one can't hold the model."""
        shape = self.question.shape
        for tp in _TENSOR:
            if tp <= min(supply.per_node, gpus) and gpus % tp == 0 and shape.heads % tp == 0:
                yield tp, 1
        widest = supply.per_node
        for pp in _PIPELINE[1:]:
            if supply.joins and widest in _TENSOR and widest * pp <= gpus and gpus % (widest * pp) == 0:
                yield widest, pp

    def _served(self, plan: ServingPlan, cluster: Cluster, replicas: int, supply: Supply) -> _Candidate | Refusal:
        question = self.question
        room = serving_memory(plan, cluster, context=question.context).sequences
        if question.users is not None and replicas > question.users:
            return Refusal("layout", f"{supply.name}: more replicas than users")
        if question.users is not None:
            users = question.users / replicas
            tried = [users] if room >= users else []
        else:
            most = serving_rate(plan, cluster, self.coefficients, isl=question.prompt, osl=question.answer)
            tried = [] if most is None else [max(min(most.batch, room) / 2**power, 1.0) for power in range(_HALVINGS)]
            tried = [users for users in dict.fromkeys(tried) if room >= users]
        if not tried:
            return self._too_little(plan, supply, replicas)
        for users in tried:
            waits = latency(
                plan, cluster, self.coefficients, isl=question.prompt, osl=question.answer, concurrency=users
            )
            if waits is not None and self._quick(waits):
                rate = serving_rate(
                    plan, cluster, self.coefficients, isl=question.prompt, osl=question.answer, concurrency=users
                )
                return _Candidate(plan, replicas, users, waits, _limit(rate))
        return Refusal("latency", f"{supply.name}: too slow for the latency that is wanted")

    def _quick(self, waits: Latency) -> bool:
        """Whether the whole range meets what is wanted."""
        question = self.question
        first = question.ttft_s is None or waits.ttft.high <= question.ttft_s
        return first and (question.tpot_s is None or waits.tpot.high <= question.tpot_s)

    def _too_little(self, plan: ServingPlan, supply: Supply, replicas: int) -> Refusal:
        users = 1.0 if self.question.users is None else max(self.question.users / replicas, 1.0)
        cluster = cluster_of(supply, plan.gpus)
        need = serving_memory(plan, cluster, context=self.question.context, sequences=round(users)).needed
        return Refusal(
            "memory",
            f"{plan.gpus * replicas} x {supply.name}: needs {need / GIB:.0f} GiB on each GPU of "
            f"{supply.memory_bytes / GIB:.0f}",
            short_by=need - supply.memory_bytes,
        )

    def _told(self, one: _Candidate, supply: Supply) -> Estimate:
        plan, question = one.plan, self.question
        cluster = cluster_of(supply, plan.gpus)
        memory = serving_memory(plan, cluster, context=question.context, sequences=max(int(one.users), 1))
        parts = (Part("weights", memory.weights), Part("cache", memory.cache), Part("reserve", memory.reserve))
        left = Part("left free by the engine", memory.needed - sum(part.amount for part in parts))
        return Estimate(
            layout=layout(plan, one.replicas),
            rate=one.rate,
            unit="tokens/s",
            limit=one.limit,
            memory=Range.exactly(memory.needed),
            memory_parts=(*parts, left),
            figures=(
                Figure(name="first token", value=one.waits.ttft, unit="s"),
                Figure(name="each further token", value=one.waits.tpot, unit="s"),
                Figure(name="users at once", value=Range.exactly(float(round(one.users * one.replicas))), unit=""),
            ),
            notes=tuple(_notes(plan, supply)),
            working=(
                f"{figure(one.users)} sequences at once in {counted(one.replicas, 'replica')}: first token after "
                f"{_wait(one.waits.ttft)}, each further after {_wait(one.waits.tpot)}.",
            ),
            settings={
                "tensor_parallel": plan.tp, "pipeline_parallel": plan.pp, "precision": plan.precision,
                "context": question.context,
            },
            piece=plan.gpus,
            demand=question.users is not None,
        )  # fmt: skip


def _limit(rate: ServingRate | None) -> str:
    limit = "" if rate is None else rate.limit
    return "launch overhead" if limit == "launch" else limit


def layout(plan: ServingPlan, replicas: int) -> str:
    """`FP8, 4 replicas of TP 2`."""
    group = f"TP {plan.tp}" + (f" x PP {plan.pp}" if plan.pp > 1 else "") if plan.gpus > 1 else "one GPU"
    told = group if replicas == 1 else f"{replicas} replicas of {group}"
    return f"{plan.precision.upper()}, {told}"


def _wait(value: Range) -> str:
    return f"{seconds_text(value.expected)} ({seconds_text(value.low)} to {seconds_text(value.high)})"


def _notes(plan: ServingPlan, supply: Supply) -> Iterator[str]:
    if plan.precision == "fp16" and supply.variant.bf16 is False:
        yield f"{supply.variant.name} has no BF16: FP16"
    if plan.precision in ("int4", "fp4"):
        yield "4-bit weights cost quality: compare answers before you serve them"
    if plan.tp > 1 and not has_fabric(supply.variant):
        yield "no NVLink: tensor parallelism goes over PCIe, which is counted"
