"""Work whose rate on a board is a law or a figure of the board: simulations, rendering, proving, hashing, vision.

Each question becomes a `Rated`: how much there is to do, how fast so many GPUs do it, and what that rests on. What is
made of independent pieces is as many times as fast on as many GPUs; what is one piece takes one GPU.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cumulo.advisor.answer_text import counted, figure
from cumulo.advisor.estimate import Range
from cumulo.advisor.plans import MAX_GPUS, Estimate, Refusal, Supply
from cumulo.advisor.search_board import variant_of
from cumulo.catalog.variants import Variant

HOURS: Final = "hours"
"""The unit of what is held for a time, whatever it does with it."""
RateOf = Callable[[Variant, int], Range | None]
"""Units a second of so many GPUs of a board; None where a figure of the board that is needed is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """Work of `amount` units (None: without an end). `needs` is what the law asks of a board, in words.

    `pieces` bounds the number of GPUs: more would have nothing to do; fewer than `least` are not looked at.
    `memory_bytes` is the need of each GPU, None where it is not known. `refuse` names boards that would be bad advice.
    """

    title: str
    amount: float | None
    unit: str
    rate: RateOf
    needs: str
    limit: str
    pieces: int = MAX_GPUS
    least: int = 1
    memory_bytes: float | None = None
    assumptions: tuple[str, ...] = ()
    notes: Callable[[Supply], Iterator[str]] | None = None
    refuse: Callable[[Supply], Refusal | None] | None = None
    settings: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def endless(self) -> bool:
        return self.amount is None

    @property
    def steps(self) -> tuple[str, float | None]:
        return ("hour" if self.unit == HOURS else self.unit.removesuffix("s")), self.amount

    def asked(self) -> str:
        return self.title

    def assumed(self) -> Iterator[str]:
        yield from self.assumptions

    def remedies(self) -> Iterator[tuple[str, "Rated"]]:
        yield from ()

    def least_gpus(self, supply: Supply) -> int:
        return self.least

    def most_gpus(self) -> int:
        return max(1, min(self.pieces, MAX_GPUS))

    def estimate(self, supply: Supply, gpus: int) -> Estimate | Refusal:
        if self.refuse is not None and (refusal := self.refuse(supply)):
            return refusal
        if self.memory_bytes is not None and self.memory_bytes > supply.memory_bytes:
            return Refusal(
                "memory",
                f"{supply.name}: needs {self.memory_bytes / (1 << 30):.0f} GiB on each GPU of "
                f"{supply.memory_bytes / (1 << 30):.0f}",
                short_by=self.memory_bytes - supply.memory_bytes,
            )
        rate = self.rate(variant_of(supply), gpus)
        if rate is None:
            return Refusal("unknown", f"{supply.name}: its {self.needs} is unknown")
        return Estimate(
            layout="one GPU" if gpus == 1 else f"{gpus} GPUs at once",
            rate=rate,
            unit=f"{self.unit}/s",
            limit=self.limit,
            seconds=None if self.amount is None else rate.inverted(self.amount),
            memory=None if self.memory_bytes is None else Range.exactly(self.memory_bytes),
            notes=() if self.notes is None else tuple(self.notes(supply)),
            working=()
            if self.unit == HOURS
            else (f"Rate: {figure(rate.expected)} {self.unit}/s on {counted(gpus, 'GPU')}.",),
            settings=self.settings,
            piece=1,
        )


def in_pieces(alone: Callable[[Variant], Range | None]) -> RateOf:
    """The rate of many GPUs that each work on their own."""

    def rate(variant: Variant, gpus: int) -> Range | None:
        one = alone(variant)
        return None if one is None else one.scaled(gpus)

    return rate
