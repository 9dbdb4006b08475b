"""Spot prices and reservations."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPrice:
    """What a GPU costs an hour as spot, from `at` until the next of its region and kind; `shown_usd_h` is smoothed."""

    at: datetime | None = None
    region: str = ""
    gpu: str = ""
    price_usd_h: float = 0.0
    shown_usd_h: float = 0.0
    on_demand_usd_h: float = 0.0
    gpus: float = 0.0
    held: float = 0.0
    wanted: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """GPUs promised to a project; one costs `price_usd_h`, used or not, all of it `upfront_usd` when it begins."""

    id: str
    name: str = ""
    project: str = ""
    account: str = ""
    region: str = ""
    gpu: str = ""
    count: int = 0
    in_use: float = 0.0
    price_usd_h: float = 0.0
    upfront_usd: str = "0"
    created_at: datetime | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
