"""From a question to advice: search, marks, the order, the reasons, and what would help where nothing fits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from cumulo.advisor.answer import (
    BY_DEADLINE,
    CHEAPEST,
    FASTEST,
    Advice,
    best,
    break_even,
    chosen,
    in_budget,
    in_time,
    marked,
    refusals,
)
from cumulo.advisor.answer_text import counted, headline, reasoning, span, unit_scale
from cumulo.advisor.plans import CONFIDENCE, Plan, Supply
from cumulo.advisor.questions import Wanted
from cumulo.advisor.search import Estimator, Found, search
from cumulo.domain.quantities import format_duration, format_usd
from cumulo.domain.run import PurchaseOption


class Subject(Estimator, Protocol):
    """One question, able to estimate and to say in words what it is about."""

    @property
    def steps(self) -> tuple[str, float | None]:
        """What the work consists of (`step`), and how many of those there are."""
        ...

    def asked(self) -> str: ...

    def assumed(self) -> Iterator[str]: ...

    def remedies(self) -> Iterator[tuple[str, Self]]:
        """Changes that may make it fit, in words, each as another question."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """Where GPUs can be had: one's own, and what clouds list."""

    own: Sequence[Supply]
    rented: Sequence[Supply]


def advise(subject: Subject, market: Market, wanted: Wanted, *, limit: int = 6) -> Advice:
    """Advice on one question. `limit` is how many plans are shown beside those with a mark."""
    found = search(subject, [*market.own, *market.rented], wanted)
    plans = marked(found.plans, wanted)
    shown = chosen(plans, wanted, limit=limit)
    own, rented = best(shown, wanted, own=True), best(shown, wanted, own=False)
    recommended = _recommended(own, rented, wanted)
    lines: list[str] = []
    if recommended is not None:
        name, steps = subject.steps
        lines += reasoning(recommended, why=_why(recommended, wanted), steps=steps, step_name=name)
        lines += break_even(recommended)
    return Advice(
        asked=subject.asked(),
        plans=shown,
        recommended=recommended,
        own=own,
        rented=rented,
        considered=len(found.plans),
        confidence=CONFIDENCE,
        reasoning=tuple(lines),
        warnings=tuple(_warnings(recommended, plans, wanted)),
        refused=refusals(found),
        suggestions=tuple(_suggestions(subject, market, wanted, found)),
        assumed=(*subject.assumed(), *([f"at most {counted(wanted.max_gpus, 'GPU')}"] if wanted.max_gpus else [])),
        prices=_dates(shown),
        per=unit_scale(rented or own),
    )


def _recommended(own: Plan | None, rented: Plan | None, wanted: Wanted) -> Plan | None:
    """One's own, unless it computes nothing or comes too late."""
    if own is not None and not own.supply.emulated and (in_time(own, wanted) or rented is None):
        return own
    return rented or own


def _why(plan: Plan, wanted: Wanted) -> str:
    deadline = format_duration(wanted.deadline_s) if wanted.deadline_s is not None else ""
    if not in_time(plan, wanted):
        return f"nothing is sure to be done within {deadline}; this is the fastest"
    whose = "your own" if plan.supply.own else "to rent"
    if BY_DEADLINE in plan.marks:
        return f"the cheapest {whose} that is done within {deadline} over the whole range"
    if CHEAPEST in plan.marks:
        return f"the cheapest {whose}"
    if FASTEST in plan.marks:
        return f"the fastest {whose}, at little more than the cheapest"
    return f"the fastest {whose} of those that cost at most a fifth more than the cheapest on demand"


def _warnings(plan: Plan | None, plans: list[Plan], wanted: Wanted) -> Iterator[str]:
    if plan is None:
        return
    if plan.supply.emulated:
        yield "the GPUs here are emulated: they compute nothing"
    if plan.supply.own and plan.supply.free is not None and plan.supply.free < plan.gpus:
        yield f"only {plan.supply.free} of {plan.gpus} {plan.supply.name} are free now: it would wait"
    if not in_time(plan, wanted):
        yield "no plan is sure to meet the deadline"
    if wanted.budget_nano is not None and not in_budget(plan, wanted):
        yield f"no plan is sure to stay within {format_usd(wanted.budget_nano)}"
    if plan.purchase is PurchaseOption.SPOT:
        yield "spot may be taken away: save checkpoints"
    if not plan.supply.own and plan.nodes > 1:
        yield "whether a cloud has so many at once is not known here"
    if not plan.supply.own and plan.supply.kind.family.startswith(("RTX30", "RTX40", "RTX50", "GTX")):
        yield "NVIDIA's licence of GeForce drivers does not allow data centres"


def _suggestions(subject: Subject, market: Market, wanted: Wanted, found: Found) -> Iterator[str]:
    """What would let it run, where nothing does."""
    if found.plans:
        return
    supplies = [*market.own, *market.rented]
    if wanted.max_gpus is not None or wanted.kinds:
        freed = replace(wanted, max_gpus=None)
        if plan := _least(subject, supplies, freed):
            yield f"more GPUs: {headline(plan)} would do, in {span(plan.estimate.seconds) or 'time'}"
        elif plan := _least(subject, supplies, replace(freed, kinds=frozenset())):
            yield f"other GPUs: {headline(plan)} would do"
    for text, other in subject.remedies():
        if plan := _least(other, supplies, wanted):
            takes = f", in {span(plan.estimate.seconds)}" if plan.estimate.seconds else ""
            yield f"{text}: then {headline(plan)} would do{takes}"


def _least(subject: Subject, supplies: list[Supply], wanted: Wanted) -> Plan | None:
    plans = search(subject, supplies, wanted).plans
    priced = [plan for plan in plans if plan.price is not None] or plans
    return min(priced, key=lambda plan: (plan.gpus, plan.nano_h or 0), default=None)


def _dates(plans: Sequence[Plan]) -> str:
    """Whose prices these are, and of when."""
    rented = [plan.price for plan in plans if plan.price is not None and not plan.supply.own]
    if not rented:
        return ""
    clouds = sorted({price.place.split()[0] for price in rented})
    dates = sorted({price.as_of for price in rented if price.as_of})
    undated = sorted({price.place.split()[0] for price in rented if not price.as_of})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""
    told = f"without a date: {', '.join(undated)}" if undated else ""
    return f"list prices of {', '.join(clouds)} ({'; '.join(part for part in (when, told) if part)}), no quotes"
