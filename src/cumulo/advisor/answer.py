"""From plans to advice: which come first, what each is best at, when spot and reservations pay, and why.

One's own GPUs come first, for nobody rents what stands idle beside him. A deadline is met where the upper end of the
range meets it: nine times in ten, then.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from cumulo.advisor.answer_text import shown_counts
from cumulo.advisor.plans import Plan
from cumulo.advisor.questions import Wanted
from cumulo.advisor.search import Found
from cumulo.domain.quantities import format_usd
from cumulo.domain.run import PurchaseOption

CHEAPEST: Final = "cheapest"
FASTEST: Final = "fastest"
BY_DEADLINE: Final = "cheapest by the deadline"
BEST_VALUE: Final = "best value"
_VALUE: Final = 1.2
"""Best value is the fastest of what costs at most so many times the least, spot left aside."""
_OWN: Final = 2
"""Rows for one's own GPUs and slices beside those with a mark: a MIG GPU has 15 sizes."""
_YEAR_H: Final = 365 * 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What is answered. `plans` are the best of each GPU of those `considered`, this cloud's own first.

    `own` and `rented` are the best of each of the two; `recommended` is one of them.
    """

    asked: str
    plans: tuple[Plan, ...]
    recommended: Plan | None
    own: Plan | None
    rented: Plan | None
    considered: int
    confidence: float
    reasoning: tuple[str, ...]
    warnings: tuple[str, ...]
    refused: tuple[str, ...]
    suggestions: tuple[str, ...]
    assumed: tuple[str, ...]
    prices: str
    per: float
    """Of how many units of work a unit's cost is told."""


def marked(plans: Iterable[Plan], wanted: Wanted) -> list[Plan]:
    """The plans, each with what it is best at among those that one owns or those that one can rent."""
    marks: dict[int, list[str]] = {}
    pool = list(plans)
    for own in (True, False):
        group = [plan for plan in pool if plan.supply.own is own and plan.price is not None]
        for mark, plan in _best(group, wanted):
            marks.setdefault(id(plan), []).append(mark)
    return [replace(plan, marks=tuple(marks.get(id(plan), ()))) for plan in pool]


def _best(group: list[Plan], wanted: Wanted) -> Iterator[tuple[str, Plan]]:
    safe = [plan for plan in group if not plan.estimate.tight] or group
    within = [plan for plan in safe if in_budget(plan, wanted)]
    if not within:
        return
    yield CHEAPEST, min(within, key=lambda plan: (_money(plan), _pace(plan)))
    # Spot promises no time: what may be taken away is fast or in time by luck alone.
    steady = [plan for plan in within if plan.purchase is not PurchaseOption.SPOT]
    if not steady:
        return
    differ = len({_pace(plan) for plan in within}) > 1
    if differ:
        yield FASTEST, min(steady, key=lambda plan: (_pace(plan), _money(plan)))
    timely = [plan for plan in steady if in_time(plan, wanted)]
    if wanted.deadline_s is not None and timely:
        yield BY_DEADLINE, min(timely, key=lambda plan: (_money(plan), _pace(plan)))
    steady = timely or steady
    least = min(_money(plan) for plan in steady)
    near = [plan for plan in steady if _money(plan) <= _VALUE * least]
    yield BEST_VALUE, min(near, key=lambda plan: (_pace(plan), _money(plan)))


def in_time(plan: Plan, wanted: Wanted) -> bool:
    """Whether the whole range lies before the deadline; True where there is neither."""
    seconds = plan.estimate.seconds
    return wanted.deadline_s is None or seconds is None or seconds.high <= wanted.deadline_s


def in_budget(plan: Plan, wanted: Wanted) -> bool:
    """Whether the whole range of its cost (an hour's, where work has no end) lies within the budget."""
    if wanted.budget_nano is None:
        return True
    cost = plan.cost
    amount = cost.high if cost is not None else plan.nano_h
    return amount is not None and amount <= wanted.budget_nano


def _money(plan: Plan) -> float:
    """What is compared: cost of the work; of an hour where its demand is met; of a unit where none is named."""
    cost = plan.cost
    if cost is not None:
        return cost.expected
    if plan.nano_h is None:
        return 1e30
    unit = plan.unit_cost
    return float(plan.nano_h) if plan.estimate.demand or unit is None else unit.expected


def _pace(plan: Plan) -> float:
    """Seconds for the work, or for one unit of it."""
    seconds = plan.estimate.seconds
    return seconds.expected if seconds is not None else 1 / max(plan.estimate.rate.expected, 1e-30)


def chosen(plans: list[Plan], wanted: Wanted, *, limit: int) -> tuple[Plan, ...]:
    """What is shown: own plans first, then what has a mark, then the best plan of each other GPU by cost."""
    order: Callable[[Plan], tuple[bool, bool, bool, float]] = lambda plan: (  # noqa: E731
        not plan.supply.own,
        not (in_time(plan, wanted) and in_budget(plan, wanted)) or plan.estimate.tight,
        plan.price is None,
        _money(plan) if plan.price is not None else _pace(plan),
    )
    kept = [plan for plan in plans if plan.marks]
    seen = {(plan.supply.own, plan.supply.name) for plan in kept}
    room = {True: min(limit, _OWN) - sum(plan.supply.own for plan in kept), False: limit}
    for plan in sorted(plans, key=lambda plan: (*order(plan), _pace(plan))):
        own, name = plan.supply.own, plan.supply.name
        if room[own] > 0 and (own, name) not in seen:
            seen.add((own, name))
            kept.append(plan)
            room[own] -= 1
    return tuple(sorted(kept, key=lambda plan: (*order(plan), _pace(plan))))


def best(plans: Iterable[Plan], wanted: Wanted, *, own: bool) -> Plan | None:
    """What is recommended of one's own GPUs or of what can be rented; what is late only where nothing is in time."""
    pool = [plan for plan in plans if plan.marks and plan.supply.own is own]
    timely = [plan for plan in pool if in_time(plan, wanted)]
    for mark in (BY_DEADLINE, BEST_VALUE, CHEAPEST):
        for plan in timely:
            if mark in plan.marks:
                return plan
    return min(pool, key=_pace, default=None)


def break_even(plan: Plan) -> Iterator[str]:
    """Lines on when spot and a reservation pay, against on demand for the same GPUs."""
    prices = plan.supply.prices
    base = prices.get(PurchaseOption.ON_DEMAND)
    if base is None or not base.nano_h or plan.supply.own:
        return
    spot, reserved = prices.get(PurchaseOption.SPOT), prices.get(PurchaseOption.RESERVED)
    if spot is not None and spot.nano_h < base.nano_h:
        ratio = spot.nano_h / base.nano_h
        yield (
            f"Spot: {format_usd(spot.nano_h)}/h at the least ({spot.place}), {ratio:.0%} of on demand. It pays until "
            f"preemptions make the work take {1 / ratio:.1f} times as long; how often they come is not known here."
        )
    elif spot is None:
        yield f"Spot: no list has a spot price for {plan.supply.name} in nodes of {plan.supply.per_node}."
    if reserved is not None and reserved.nano_h < base.nano_h:
        ratio = reserved.nano_h / base.nano_h
        yield (
            f"Reserved for a year: {format_usd(reserved.nano_h)}/h ({reserved.place}), used or not. It pays from "
            f"{_YEAR_H * ratio:,.0f} hours of use a year ({ratio:.0%})."
        )
    elif reserved is not None:
        yield "Reserved for a year: no cheaper than on demand elsewhere, so it never pays."


def refusals(found: Found) -> tuple[str, ...]:
    """Why GPUs are not among the plans, alike reasons together: `needs more memory: T4, L4 (…)`."""
    whole = [(supply, refusal) for supply, refusal in found.refusals if supply.share == 1]
    told = [
        (refusal.reason, f"{supply.name} (yours)" if supply.own else supply.name, refusal.text)
        for supply, refusal in whole
    ]
    return shown_counts(told)
