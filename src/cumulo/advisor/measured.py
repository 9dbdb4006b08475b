"""Which GPUs take a training step that was measured on a person's own code, how fast, and at what price.

What is known of the step is every operation's arithmetic and traffic. So its time is a roofline for each operation: as
long as the slower of computing and of moving bytes takes, or as long as the host takes to launch it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cumulo.advisor.estimate import Range, Spread
from cumulo.advisor.training_layers import achieved_rate, share_of_best
from cumulo.catalog.coefficients import Coefficients, Section
from cumulo.catalog.kinds import GpuKind
from cumulo.catalog.prices import ListPrice, price
from cumulo.catalog.variants import Variant
from cumulo.domain.quantities import GIB

_TRACKED: Final = Spread(0.95, 1.05)
"""How far the tracked peak was from measured ones, eager PyTorch; fragmentation and the context come on top."""
_LAYER_OPERATIONS: Final = 143
"""Of a transformer's layer in eager PyTorch, forward, backward and optimizer: counted, for what launching one takes."""
_UNSEEN: Final = 1.5
"""A program of any kind lies further from the data than a language model: the range is so many times as wide (log)."""
_COMPUTED: Final = {"float16": "bf16", "bfloat16": "bf16", "float32": "fp32"}


class Operation(NamedTuple):
    """One kind of operation in a step. `kind` is `product`, `attention`, `convolution` or `other`; `moved` is bytes."""

    kind: str
    dtype: str
    flops: int
    moved: int
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A step of a person's script. `parts` are bytes of the peak; `stand_ins` counts made-up values by line."""

    torch: str
    models: tuple[str, ...]
    inputs: tuple[str, ...]
    parameters: int
    trainable: int
    peak_bytes: int
    parts: Mapping[str, int]
    operations: tuple[Operation, ...]
    stand_ins: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def flops(self) -> int:
        return sum(each.flops * each.times for each in self.operations)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of what is multiplied, the most first."""
        flops: dict[str, int] = {}
        for each in self.operations:
            if each.flops:
                flops[each.dtype] = flops.get(each.dtype, 0) + each.flops * each.times
        return tuple(sorted(flops, key=lambda name: -flops[name]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """A GPU that takes the step, by its usual board."""

    kind: GpuKind
    variant: Variant
    memory: Range
    seconds: Range
    limit: str
    price: ListPrice | None

    def cost(self, steps: int) -> Range | None:
        """Nano-USD for so many steps at the median list price; None without one."""
        return None if self.price is None else self.seconds.scaled(steps / 3600 * self.price.on_demand.median)

    @property
    def tight(self) -> bool:
        """Whether the upper end of the range of memory is more than it has."""
        return self.memory.high > self.kind.memory_bytes


class Passed(NamedTuple):
    """A GPU that does not take it, and why in a word: `memory`, `bf16` or `unknown`."""

    kind: GpuKind
    reason: str


def takers(
    step: MeasuredStep, kinds: Iterable[GpuKind], coefficients: Coefficients
) -> tuple[list[Taker], list[Passed]]:
    """Each kind by its usual board: those that take the step, cheapest first, and those that don't."""
    found: list[Taker] = []
    passed: list[Passed] = []
    need = needed_memory(step, coefficients)
    for kind in kinds:
        board = kind.typical
        if need.expected > kind.memory_bytes:
            passed.append(Passed(kind, "memory"))
        elif board is None or not board.memory_bandwidth:
            passed.append(Passed(kind, "unknown"))
        elif "bfloat16" in step.dtypes and board.bf16 is not True:
            passed.append(Passed(kind, "bf16"))
        elif (timed := step_seconds(step, kind, board, coefficients)) is None:
            passed.append(Passed(kind, "unknown"))
        else:
            seconds, limit = timed
            taker = Taker(
                kind=kind, variant=board, memory=need, seconds=seconds, limit=limit, price=price(kind.name)
            )  # fmt: skip
            found.append(taker)
    return sorted(found, key=_order), passed


def _order(one: Taker) -> tuple[bool, float, float]:
    cost = one.cost(1)
    return (cost is None, cost.expected if cost else 0.0, one.seconds.expected)


def needed_memory(step: MeasuredStep, coefficients: Coefficients) -> Range:
    """Bytes a GPU must have: the peak, and what the driver's context and fragmentation take."""
    return _TRACKED.around(step.peak_bytes).shifted(coefficients.memory.number("reserve_bytes"))


def step_seconds(
    step: MeasuredStep, kind: GpuKind, board: Variant, coefficients: Coefficients
) -> tuple[Range, str] | None:
    """Seconds of one step on one GPU, and what limits it; None where a rate it needs is unknown."""
    constants = coefficients.training
    memory = (board.memory_bandwidth or 0) * constants.number("memory_share")
    spent = {"compute": 0.0, "memory bandwidth": 0.0}
    for each in step.operations:
        computing = 0.0
        if each.flops:
            rate = _rate(each, kind, board, constants)
            if not rate:
                return None
            computing = each.flops / rate
        moving = each.moved / memory
        limit = "compute" if computing > moving else "memory bandwidth"
        spent[limit] += max(computing, moving) * each.times
    launched = sum(each.times for each in step.operations)
    host = launched * constants.pick("launch_seconds", "eager", "fsdp") / _LAYER_OPERATIONS
    busy = sum(spent.values())
    spread = Spread(*constants.spread("training_dense_unseen")).widened(_UNSEEN)
    limit = "launch overhead" if host > busy else max(spent, key=lambda name: spent[name])
    return spread.around(max(busy, host)), limit


def _rate(operation: Operation, kind: GpuKind, board: Variant, constants: Section) -> float:
    """Operations a second. PyTorch lets convolutions of float32 use TF32, and products not."""
    work = "attention" if operation.kind == "attention" else "matmul"
    share = share_of_best(work, board, kind.architecture, constants)
    if operation.dtype == "float64":
        return (board.fp64_tensor_tflops or board.fp64_tflops or 0.0) * 1e12 * share
    precision = _COMPUTED.get(operation.dtype, "fp32")
    if precision == "fp32" and operation.kind == "convolution":
        precision = "tf32"
    return achieved_rate(board, kind.architecture, constants, precision) * share


def advice_where_nothing_fits(step: MeasuredStep, kinds: Sequence[GpuKind]) -> str:
    """What would make it fit, where no GPU of `kinds` holds the step."""
    largest = max(kinds, key=lambda kind: kind.memory_bytes)
    fixed = step.peak_bytes - step.parts.get("activations", 0)
    if fixed < 0.8 * largest.memory_bytes:
        room = 0.9 * largest.memory_bytes - fixed
        part = max(room / max(step.parts.get("activations", 0), 1), 0.001)
        return (
            f"a batch {max(2, round(1 / part)):,} times smaller (or activation checkpointing) would fit on one "
            f"{largest.name}: {step.parts.get('activations', 0) / GIB:,.1f} GiB of the peak are activations"
        )
    gpus = -(-fixed // int(0.7 * largest.memory_bytes))
    return (
        f"weights, gradients and optimizer alone take {fixed / GIB:,.1f} GiB: shard them (FSDP, ZeRO-3) over at least "
        f"{gpus} x {largest.name}, or train fewer of them (LoRA)"
    )
