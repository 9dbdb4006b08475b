"""Spot prices and reservations."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from cumulo.wire.api.model import Body, Decimal, Model
from cumulo.wire.fields import Gpus, Name, Seconds


class SpotPrice(Model):
    """What a GPU costs an hour as spot, from `at` until the next row of the same region and kind.

    `shown_usd_h` is the same smoothed. GPUs: how many spot runs could have, have, and wait for.
    """

    at: datetime
    region: str
    gpu: str
    price_usd_h: float
    shown_usd_h: float
    on_demand_usd_h: float
    gpus: float
    held: float
    wanted: float


class SpotPrices(Model):
    items: list[SpotPrice]


class NewReservation(Body):
    """Whole GPUs of one kind for a project."""

    gpus: Gpus = Field(description="so many of one kind: A100-80GB:4")
    term: Annotated[Seconds, Field(ge=60, le=10 * 365 * 86400)] = Field(description="for how long: 30d")
    project: Name | None = Field(default=None, description="who pays; the caller's if left out")
    name: Name | None = Field(default=None, description="what runs call it")
    starts_at: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="when it begins, ISO 8601 with its zone; now if left out"
    )
    upfront: bool = Field(default=False, description="all of it is paid when it begins")


class Reservation(Model):
    """GPUs promised to a project. `price_usd_h` is of one, used or not; `upfront_usd` of all, when it begins.

    `in_use` counts the GPUs that runs draw of it now.
    """

    id: str
    name: str
    project: str
    account: str
    region: str
    gpu: str
    count: int
    in_use: float
    price_usd_h: float
    upfront_usd: Decimal
    created_at: datetime
    starts_at: datetime
    ends_at: datetime


class ReservationPage(Model):
    items: list[Reservation]
    next: str | None
