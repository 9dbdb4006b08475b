"""A run whose work is not known: where what it asks for can be had, and what it costs for as long as it may take."""

from typing import Final

from cumulo.advisor.answer_text import counted
from cumulo.advisor.estimate import Range
from cumulo.advisor.plans import Refusal, Supply
from cumulo.advisor.search_laws import HOURS, Rated
from cumulo.catalog.variants import Variant
from cumulo.domain.ask import GpuAsk
from cumulo.domain.quantities import format_duration
from cumulo.domain.sharing import WHOLE_MILLI

_HOUR_S: Final = 3600.0


def held(name: str, ask: GpuAsk, *, nodes: int, seconds: float | None) -> Rated:
    """GPUs for a time: what a run asks for, as long as it may take (an hour where it names no limit)."""
    gpus = ask.count_min * nodes
    hours = (seconds or _HOUR_S) / _HOUR_S

    def rate(variant: Variant, gpus: int) -> Range | None:
        return Range.exactly(1 / _HOUR_S)

    def refuse(supply: Supply) -> Refusal | None:
        if supply.share == 1:
            return None
        if supply.profile:
            fits = supply.profile == ask.mig_profile
        else:
            fits = ask.fraction and supply.share * WHOLE_MILLI >= ask.milli_of(supply.kind.memory_bytes)
        return None if fits else Refusal("ask", f"{supply.name}: not what the run asks for")

    return Rated(
        title=f"{name}: {counted(gpus, 'GPU')} as it asks, {format_duration(hours * _HOUR_S)}",
        amount=hours,
        unit=HOURS,
        rate=rate,
        needs="nothing",
        limit="unknown",
        pieces=gpus,
        least=gpus,
        assumptions=(
            "what it computes is not known, so neither is how long it takes: name a model in its command, or ask with "
            "`cumulo advise train` or `serve`",
            "as long as its max_duration" if seconds else "an hour, since it has no max_duration",
        ),
        refuse=refuse,
    )
