"""Advice as the API's JSON; shaped as `cumulo.wire.api.advice` says."""

from typing import Any

from cumulo.advisor.answer import Advice, in_budget, in_time
from cumulo.advisor.estimate import Range
from cumulo.advisor.plans import Plan
from cumulo.advisor.questions import Wanted
from cumulo.domain.quantities import NANO
from cumulo.server.render import gib
from cumulo.server.render_control import usd_h


def advice(one: Advice, wanted: Wanted, launch: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "asked": one.asked,
        "confidence": one.confidence,
        "recommended": _place(one, one.recommended),
        "own": _place(one, one.own),
        "rented": _place(one, one.rented),
        "plans": [_plan(each, wanted, one.per) for each in one.plans],
        "considered": one.considered,
        "reasoning": list(one.reasoning),
        "warnings": list(one.warnings),
        "assumed": list(one.assumed),
        "refused": list(one.refused),
        "suggestions": list(one.suggestions),
        "prices": one.prices,
        "per": one.per,
        "launch": launch,
    }


def _place(one: Advice, plan: Plan | None) -> int | None:
    return next((place for place, each in enumerate(one.plans) if each is plan), None)


def _plan(one: Plan, wanted: Wanted, per: float) -> dict[str, Any]:
    supply, estimate, price = one.supply, one.estimate, one.price
    rental = supply.rental_nano_h
    return {
        "gpu": supply.name,
        "gpus": one.gpus,
        "nodes": one.nodes,
        "gpus_per_node": supply.per_node,
        "own": supply.own,
        "region": price.place if price is not None else "",
        "instance_type": price.instance_type if price is not None else "",
        "mode": str(supply.mode),
        "profile": supply.profile or None,
        "emulated": supply.emulated,
        "free": supply.free,
        "purchase": str(one.purchase),
        "price_usd_h": usd_h(one.nano_h),
        "price_date": price.as_of if price is not None else None,
        "rental_usd_h": None if rental is None else usd_h(rental * one.gpus),
        "layout": estimate.layout,
        "memory_need_gb": None if estimate.memory is None else _interval(estimate.memory, 1 / (1 << 30)),
        "memory_gb": gib(supply.memory_bytes),
        "seconds": None if estimate.seconds is None else _interval(estimate.seconds),
        "cost_usd": None if one.cost is None else _interval(one.cost, 1 / NANO),
        "rate": _interval(estimate.rate),
        "unit": estimate.unit,
        "unit_cost_usd": None if one.unit_cost is None else _interval(one.unit_cost, per / NANO),
        "limit": estimate.limit,
        "figures": [
            {"name": figure.name, "value": _interval(figure.value), "unit": figure.unit} for figure in estimate.figures
        ],
        "marks": list(one.marks),
        "notes": list(estimate.notes),
        "in_time": in_time(one, wanted),
        "in_budget": in_budget(one, wanted),
    }


def _interval(value: Range, by: float = 1.0) -> dict[str, float]:
    return {"low": value.low * by, "expected": value.expected * by, "high": value.high * by}
