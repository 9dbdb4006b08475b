"""Advice: plans for a piece of work, with ranges, and how they come about."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What is expected, and the bounds within which it should lie as often as the advice's `confidence` says."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A latency, a share, a rate beside the main one."""

    name: str
    value: Interval
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """So many GPUs of one kind, and what comes of it. What is not known is None, never 0."""

    gpu: str
    gpus: int
    nodes: int
    gpus_per_node: int = 1
    own: bool = False
    region: str = ""
    instance_type: str = ""
    mode: str = "exclusive"
    profile: str | None = None
    emulated: bool = False
    free: int | None = None
    purchase: str = "on-demand"
    price_usd_h: float | None = None
    price_date: str | None = None
    rental_usd_h: float | None = None
    layout: str = ""
    memory_need_gb: Interval | None = None
    memory_gb: float = 0.0
    seconds: Interval | None = None
    cost_usd: Interval | None = None
    rate: Interval
    unit: str = ""
    unit_cost_usd: Interval | None = None
    limit: str = ""
    figures: tuple[Figure, ...] = ()
    marks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    in_time: bool = True
    in_budget: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Plans, this cloud's own first. `own` and `rented` are places of the best of each, `recommended` is one of them.

    `launch` is a run file for `own`, else for `rented`; `unit_cost_usd` is for `per` units of work.
    """

    asked: str
    confidence: float
    recommended: int | None = None
    own: int | None = None
    rented: int | None = None
    plans: tuple[Plan, ...] = ()
    considered: int = 0
    reasoning: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    prices: str = ""
    per: float = 1e6
    launch: dict[str, Any] | None = field(default=None)
