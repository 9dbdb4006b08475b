"""Whether a run that is watched has GPUs of the right size, and what else would do its work for less.

What is seen is memory and how much of the time kernels run, not what they do. So another GPU's speed lies between the
ratio of the two boards' arithmetic and that of their bandwidths, and only the busy part of the time changes with it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from cumulo.advisor.estimate import Range, Spread
from cumulo.catalog.coefficients import Coefficients
from cumulo.catalog.kinds import GpuKind
from cumulo.catalog.prices import price
from cumulo.catalog.variants import Variant
from cumulo.domain.quantities import GIB

_ROOM: Final = 1.1
"""Memory to have beyond the peak seen: a run may not have met its longest batch yet."""
_IDLE, _BUSY = 0.35, 0.8
_FRACTIONS: Final = (0.5, 0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a run was seen to use. Per GPU: `peak_bytes` and `share` (1 is all of it); `busy` is the mean, 0 to 1."""

    kind: GpuKind
    gpus: int
    share: float
    there_bytes: int
    peak_bytes: int
    busy: float
    cpus_used: float | None = None
    cpus: float | None = None


class Choice(NamedTuple):
    """Something else that would do. `time` and `cost` are multiples of now's; `nano_h` is for one GPU or its part."""

    kind: GpuKind
    share: float
    memory_bytes: int
    time: Range
    nano_h: int
    cost: Range

    @property
    def surely_cheaper(self) -> bool:
        return self.cost.high < 1


def needed_bytes(seen: Observed) -> int:
    return int(seen.peak_bytes * _ROOM)


def verdicts(seen: Observed) -> list[str]:
    """What to think of the size, in lines a person can check."""
    used, there = seen.peak_bytes / GIB, seen.there_bytes / GIB
    lines = [f"memory: {used:,.1f} of {there:,.1f} GiB at the peak seen ({seen.peak_bytes / seen.there_bytes:.0%})"]
    if seen.peak_bytes > 0.95 * seen.there_bytes:
        lines.append("memory is all but full: the run may end out of memory, or it takes whatever there is (vLLM, JAX)")
    lines.append(f"busy: kernels ran {seen.busy:.0%} of the time")
    if seen.busy < _IDLE:
        lines.append(_why_idle(seen))
    elif seen.busy >= _BUSY:
        lines.append("the GPU is what the run waits for: a faster one shortens it")
    return lines


def _why_idle(seen: Observed) -> str:
    if seen.cpus and seen.cpus_used is not None and seen.cpus_used > 0.85 * seen.cpus:
        return (
            f"the GPU waits, and {seen.cpus_used:.1f} of {seen.cpus:g} CPUs are busy: ask for more CPUs, or load data "
            "with more workers, before another GPU"
        )
    return "the GPU waits most of the time, and not for CPUs: for data, the network or small kernels"


def choices(seen: Observed, kinds: Iterable[GpuKind], coefficients: Coefficients) -> list[Choice]:
    """Parts of the same GPU and other kinds with enough memory, cheapest first, by median list prices.

    How far a board's speed may lie from what its rates say is taken from training on boards left out of the fit. The
    list is empty where the present kind has no list price or no specification: there is nothing to compare with.
    """
    now = price(seen.kind.name)
    board = seen.kind.typical
    if now is None or board is None:
        return []
    paid = now.on_demand.median * seen.share
    spread = Spread(*coefficients.training.spread("training_dense_unseen"))
    found = [_part(seen, share, paid, now.on_demand.median) for share in _FRACTIONS if _holds_part(seen, share)]
    for kind in kinds:
        listed, other = price(kind.name), kind.typical
        if listed is None or other is None or kind.name == seen.kind.name or kind.memory_bytes < needed_bytes(seen):
            continue
        speed = speeds(board, other)
        if speed is not None:
            speed = Range(speed.low * spread.low, speed.expected, speed.high * spread.high)
            time = _changed(seen.busy, speed.scaled(1 / seen.share))
            amount = listed.on_demand.median
            found.append(Choice(kind, 1.0, kind.memory_bytes, time, amount, time.scaled(amount / paid)))
    return sorted(found, key=lambda choice: choice.cost.expected)


def _holds_part(seen: Observed, share: float) -> bool:
    return share < seen.share and needed_bytes(seen) <= seen.kind.memory_bytes * share and seen.busy <= share


def _part(seen: Observed, share: float, paid: float, whole: int) -> Choice:
    """A part is busier in the same time, until it is full: at worst the busy part takes as much longer."""
    amount = int(whole * share)
    longest = 1 - seen.busy + seen.busy * seen.share / share
    time = Range(1.0, (1.0 + longest) / 2, longest)
    return Choice(seen.kind, share, int(seen.kind.memory_bytes * share), time, amount, time.scaled(amount / paid))


def speeds(one: Variant, other: Variant) -> Range | None:
    """How many times as fast `other` is: between arithmetic and bandwidth; None where either is unknown."""
    arithmetic = _ratio(one.fp16_tensor_tflops or one.fp32_tflops, other.fp16_tensor_tflops or other.fp32_tflops)
    bandwidth = _ratio(one.memory_bandwidth, other.memory_bandwidth)
    if arithmetic is None or bandwidth is None:
        return None
    low, high = sorted((arithmetic, bandwidth))
    return Range(low, (low * high) ** 0.5, high)


def _ratio(one: float | None, other: float | None) -> float | None:
    return other / one if one and other else None


def _changed(busy: float, speed: Range) -> Range:
    """Multiples of now's time when the busy part runs at `speed` times the speed."""
    return Range(*(1 - busy + busy / each for each in (speed.high, speed.expected, speed.low)))
