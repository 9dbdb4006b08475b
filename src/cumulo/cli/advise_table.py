"""Advice as a person reads it: the answer first, then the table, then how it comes about; one screen."""

import math
import shutil
import sys
from collections.abc import Sequence

from cumulo.cli import phrases
from cumulo.cli.phrases import DASH, clean
from cumulo.cli.tables import Column, is_terminal, render, styled, width
from cumulo.client.answers.advice import Advice, Interval, Plan

_DROPPED = ("LAYOUT", "LIMIT", "GB EACH", "BOUGHT")
_NARROW = 6
_UNITS = (("d", 2 * 86400.0, 86400.0), ("h", 3600.0, 3600.0), ("min", 60.0, 60.0), ("s", 1.0, 1.0), ("ms", 0.0, 1e-3))
_SCALES = ((1e12, " T"), (1e9, " G"), (1e6, " M"))


def text(one: Advice) -> str:
    """All of it."""
    parts = [styled(clean(one.asked), "bold")]
    if one.plans:
        parts.append(answer(one))
        parts.append(table(one))
    else:
        parts += [_list("What would do:", one.suggestions)] if one.suggestions else []
    if one.reasoning:
        parts.append(_list("Why:", one.reasoning))
    parts.append("\n".join(_foot(one)))
    return "\n\n".join(part for part in parts if part)


def answer(one: Advice) -> str:
    """What to take, in a line or two."""
    told = [_told(one, "Yours", one.own), _told(one, "Rent", one.rented)]
    lines = [styled(line, "green") for line in told if line]
    lines += [styled(f"warning: {clean(warning)}", "yellow") for warning in one.warnings]
    return "\n".join(lines) or "No plan here has a price: none is recommended."


def _told(one: Advice, word: str, place: int | None) -> str:
    """`Rent   4 x H100-80GB on demand at vast VN: 11.6 h (10.2-13.2), $86.8 (76.5-98.4)`."""
    if place is None:
        return ""
    plan = one.plans[place]
    emulated = " EMULATED" if plan.emulated else ""
    where = "here" if plan.own else f"at {clean(plan.region)}"
    pace = f"{number(plan.rate)} {clean(plan.unit)}" if plan.seconds is None else span(plan.seconds)
    cost = f"{phrases.usd(plan.price_usd_h)}/h" if plan.cost_usd is None else money(plan.cost_usd)
    late = "" if plan.in_time else ", too late"
    rent = f", rents for about {phrases.usd(plan.rental_usd_h)}/h" if plan.rental_usd_h else ""
    return f"{word:6} {plan.gpus} x {clean(plan.gpu)}{emulated} {plan.purchase} {where}: {pace}{late}, {cost}{rent}"


def table(one: Advice) -> str:
    endless = all(plan.seconds is None for plan in one.plans)
    unit = clean(one.plans[0].unit)
    columns = (
        Column(""), Column("GPUS"), Column("LAYOUT", shrinks=True), Column("GB EACH", right=True),
        Column(unit.upper() if endless else "TIME", right=True),
        Column("COST/H" if endless else "COST", right=True),
        *([Column(_per(one, unit), right=True)] if endless else []),
        Column("BOUGHT"), Column("WHERE", shrinks=True), Column("LIMIT", shrinks=True), Column("BEST AT", shrinks=True),
    )  # fmt: skip
    rows = [_row(plan, best=place == one.recommended, endless=endless) for place, plan in enumerate(one.plans)]
    return render(*_fitted(columns, rows))


def _fitted(columns: Sequence[Column], rows: list[list[str]]) -> tuple[list[Column], list[list[str]]]:
    """Without what can be read under `Why` as well, as far as a narrow terminal makes that necessary."""
    kept = list(range(len(columns)))
    limit = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
    for title in _DROPPED:
        widths = [
            _NARROW if column.shrinks else max(width(cell) for cell in (column.title, *(row[place] for row in rows)))
            for place, column in enumerate(columns)
            if place in kept
        ]
        if limit is None or sum(widths) + 2 * (len(kept) - 1) <= limit:
            break
        kept = [place for place in kept if columns[place].title != title]
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _row(plan: Plan, *, best: bool, endless: bool) -> list[str]:
    gpus = f"{plan.gpus} x {clean(plan.gpu)}" + (" EMULATED" if plan.emulated else "")
    need = DASH if plan.memory_need_gb is None else f"{plan.memory_need_gb.expected:.0f}"
    late = "" if plan.in_time else " late"
    told = number(plan.rate) if endless else span(plan.seconds) + late
    cost = phrases.usd(plan.price_usd_h) if endless else money(plan.cost_usd)
    each = [money(plan.unit_cost_usd)] if endless else []
    where = f"{clean(plan.region)} (yours)" if plan.own else clean(plan.region) or "no list price"
    return [
        "*" if best else "", gpus, clean(plan.layout), f"{need} of {plan.memory_gb:.0f}", told, cost, *each,
        plan.purchase, where, _limit(plan), ", ".join(clean(mark) for mark in plan.marks),
    ]  # fmt: skip


def _limit(plan: Plan) -> str:
    """What binds: of one's own GPUs first whether they are free."""
    if plan.free is not None and plan.free < plan.gpus:
        return f"capacity: {plan.free} free now"
    return clean(plan.limit)


def _per(one: Advice, unit: str) -> str:
    """`A MILLION TOKENS`, `10^15 HASHES`."""
    words = {1.0: "ONE OF", 1e3: "A THOUSAND", 1e6: "A MILLION", 1e9: "A BILLION"}
    scale = words.get(one.per, f"10^{round(math.log10(one.per))}")
    return f"{scale} {unit.removesuffix('/s').upper()}"


def span(seconds: Interval | None) -> str:
    """`19.7 h (16.8-23.7)`."""
    if seconds is None:
        return DASH
    unit, _, scale = next(each for each in _UNITS if seconds.expected >= each[1])
    return f"{_figure(seconds.expected / scale)} {unit}{_bounds(seconds, scale)}"


def money(usd: Interval | None) -> str:
    """`$74 (63-88)`."""
    if usd is None:
        return DASH
    if usd.expected >= 1e4:
        return f"${usd.expected / 1e3:,.3g}k{_bounds(usd, 1e3)}" if usd.expected < 1e6 else _millions(usd)
    return f"${_figure(usd.expected)}{_bounds(usd, 1.0)}"


def _millions(usd: Interval) -> str:
    return f"${usd.expected / 1e6:,.3g}M{_bounds(usd, 1e6)}"


def number(value: Interval) -> str:
    """`12,300 (10,100-14,800)`, `1.41 G (1.2-1.7)`."""
    scale, suffix = next(((scale, suffix) for scale, suffix in _SCALES if value.expected >= scale), (1.0, ""))
    return f"{_figure(value.expected / scale)}{suffix}{_bounds(value, scale)}"


def _bounds(value: Interval, scale: float) -> str:
    if value.low == value.high:
        return ""
    return f" ({_figure(value.low / scale)}-{_figure(value.high / scale)})"


def _figure(value: float) -> str:
    """Three figures, without an exponent."""
    rounded = float(f"{value:.3g}")
    if 0 < rounded < 1e-3:
        return f"{rounded:.{2 - math.floor(math.log10(rounded))}f}".rstrip("0")
    return f"{rounded:,.10g}"


def _list(title: str, lines: tuple[str, ...]) -> str:
    return "\n".join([styled(title, "bold"), *(f"  {clean(line)}" for line in lines)])


def _foot(one: Advice) -> list[str]:
    times = f"{one.confidence:.0%}".removesuffix("%")
    lines = [f"Ranges in brackets should hold {times} times in 100. {one.considered:,} plans were compared."]
    lines += [f"Taken for granted: {clean('; '.join(one.assumed))}."] if one.assumed else []
    lines += [f"Prices: {clean(one.prices)}."] if one.prices else []
    lines += [f"Not for this: {clean(line)}." for line in one.refused]
    return lines
