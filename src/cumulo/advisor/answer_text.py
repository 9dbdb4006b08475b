"""The reasoning behind advice, in lines that a person can check with a calculator."""

from collections.abc import Iterator, Sequence
from typing import Final

from cumulo.advisor.estimate import Range
from cumulo.advisor.plans import Part, Plan
from cumulo.domain.quantities import GIB, NANO, format_duration, format_usd

_REASONS = {
    "memory": "not enough memory, on any number of them that was tried",
    "precision": "cannot compute in that precision, or its rate is unknown",
    "unknown": "a figure that is needed is unknown",
    "ask": "not what the run asks for",
    "double": "FP64 is there for show",
    "network": "what joins several of them is not known, and one node is not enough",
    "few": "too few of them work together",
    "layout": "the work can't be spread over them",
    "latency": "too slow for the latency that is wanted",
}


def shown_counts(refused: Sequence[tuple[str, str, str]]) -> tuple[str, ...]:
    """One line for each reason, with the GPUs it holds for; of one GPU alone the whole sentence."""
    lines = []
    for reason in dict.fromkeys(reason for reason, _, _ in refused):
        names = list(dict.fromkeys(name for each, name, _ in refused if each == reason))
        text = next(text for each, _, text in refused if each == reason)
        if len(names) == 1:
            lines.append(text)
            continue
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        lines.append(f"{_REASONS.get(reason, reason)}: {', '.join(names[:8])}{more}")
    return tuple(lines)


def reasoning(plan: Plan, *, why: str, steps: float | None, step_name: str) -> Iterator[str]:
    """Why this plan, and how its memory, time and cost come about."""
    estimate = plan.estimate
    yield f"{headline(plan)}: {why}."
    yield from estimate.working
    if estimate.memory is not None:
        parts = " + ".join(f"{part.name} {gib(part.amount)}" for part in estimate.memory_parts if part.amount > 5e6)
        total = f" = {gib(estimate.memory.expected)}" if parts else gib(estimate.memory.expected)
        yield (
            f"Memory on each GPU: {parts}{total} "
            f"({gib(estimate.memory.low)} to {gib(estimate.memory.high)}) of {gib(plan.supply.memory_bytes)} GiB."
        )
    if estimate.tight:
        yield "Memory may run out: the upper end of the range is more than there is."
    if estimate.time_parts:
        yield _time(estimate.time_parts, estimate.limit, step_name)
    if estimate.seconds is not None:
        times = counted(steps, step_name) if steps else "All of it"
        start = f", {format_duration(estimate.start_s)} until the first included" if estimate.start_s else ""
        pace = f", at {rate(estimate.rate, estimate.unit)}" if estimate.working or estimate.time_parts else ""
        yield f"{times}: {span(estimate.seconds)}{start}{pace}."
    if plan.price is not None and plan.nano_h is not None:
        yield _cost(plan)
    yield from (f"{note[0].upper()}{note[1:]}." for note in estimate.notes)


def headline(plan: Plan) -> str:
    where = (
        f"in this cloud ({plan.supply.region})" if plan.supply.own else plan.price.place if plan.price else "nowhere"
    )
    return f"{plan.gpus} x {plan.supply.name}, {plan.purchase}, {where}"


def counted(number: float, name: str) -> str:
    """`1 step`, `7,629 steps`, `2.5 hashes`."""
    plural = {"ns": "ns", "hash": "hashes", "hashe": "hashes"}.get(name, f"{name}s")
    shown = f"{number:,.0f}" if 100 <= number < 1e9 or number == int(number) < 1e9 else figure(number)
    return f"{shown} {name if number == 1 else plural}"


def _time(parts: Sequence[Part], limit: str, step_name: str) -> str:
    total = sum(part.amount for part in parts)
    shares = ", ".join(f"{part.name} {part.amount / total:.0%}" for part in parts if part.amount >= 0.01 * total)
    return f"One {step_name} takes {seconds_text(total)}: {shares}. What limits it: {limit}."


def _cost(plan: Plan) -> str:
    price, cost = plan.price, plan.cost
    assert price is not None  # noqa: S101 (asked before)
    date = f", list of {price.as_of}" if price.as_of else ", a list without a date" if not plan.supply.own else ""
    where = f"{price.place} {price.instance_type}".strip()
    paid = f"{plan.billed_gpus} x {format_usd(price.nano_h)}/h ({where}{date})"
    if plan.supply.own:
        rent = plan.supply.rental_nano_h
        told = f", where the same would rent for about {format_usd(rent * plan.gpus)}/h" if rent else ""
        if not price.nano_h:
            return f"Cost: your own hardware, $0.00{told}."
        paid += told
    if cost is None:
        unit = plan.unit_cost
        per = unit_scale(plan)
        name = plan.estimate.unit.removesuffix("/s")
        each = f"; {SCALES[per]} {name} cost {money(unit.scaled(per))}" if unit else ""
        return f"Cost: {paid}{each}."
    return f"Cost: {paid} x {span(plan.estimate.seconds) if plan.estimate.seconds else ''} = {money(cost)}."


SCALES: Final = {
    1.0: "one of the", 1e3: "a thousand", 1e6: "a million", 1e9: "a billion", 1e12: "10^12", 1e15: "10^15",
    1e18: "10^18", 1e21: "10^21",
}  # fmt: skip


def unit_scale(plan: Plan | None) -> float:
    """Of how many units a price is worth telling: the least for which it is a tenth of a cent."""
    cost = plan.unit_cost if plan is not None else None
    if cost is None or not cost.expected:
        return 1e6
    return next((scale for scale in SCALES if cost.expected * scale >= NANO / 1000), 1e21)


def gib(amount: float) -> str:
    return f"{amount / GIB:.1f}"


def span(seconds: Range | None) -> str:
    """`3h 20m (2h 50m to 4h 10m)`."""
    if seconds is None:
        return ""
    if seconds.low == seconds.high:
        return format_duration(seconds.expected)
    return f"{format_duration(seconds.expected)} ({format_duration(seconds.low)} to {format_duration(seconds.high)})"


def money(nano: Range) -> str:
    if nano.low == nano.high:
        return format_usd(round(nano.expected))
    return f"{format_usd(round(nano.expected))} ({format_usd(round(nano.low))} to {format_usd(round(nano.high))})"


def rate(value: Range, unit: str) -> str:
    return f"{figure(value.expected)} {unit} ({figure(value.low)} to {figure(value.high)})"


def figure(value: float) -> str:
    """Three figures, in the words people use: `1.41 G`, `12,300`, `0.0231`."""
    for word, scale in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {word}"
    return f"{float(f'{value:.3g}'):,.10g}"


def seconds_text(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else format_duration(value) if value >= 60 else f"{value:.3g} s"


def usd(nano: int | None) -> float | None:
    return None if nano is None else nano / NANO
