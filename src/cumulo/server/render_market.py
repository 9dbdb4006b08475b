"""Spot prices and reservations as the API's JSON; shaped as `cumulo.wire.api` says."""

from typing import Any

from sqlalchemy import Row

from cumulo.domain.reservation import Reservation
from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.server.render import time_of, usd
from cumulo.server.render_control import usd_h


def spot_price(row: Row[Any]) -> dict[str, Any]:
    return {
        "at": time_of(row.at),
        "region": row.region,
        "gpu": row.kind,
        "price_usd_h": usd_h(row.price_nano_h),
        "shown_usd_h": usd_h(row.shown_nano_h),
        "on_demand_usd_h": usd_h(row.on_demand_nano_h),
        "gpus": row.capacity_milli / WHOLE_MILLI,
        "held": row.held_milli / WHOLE_MILLI,
        "wanted": row.wanted_milli / WHOLE_MILLI,
    }


def reservation(one: Reservation, drawn_milli: int) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "project": one.project,
        "account": one.account,
        "region": one.region,
        "gpu": one.kind,
        "count": one.count,
        "in_use": drawn_milli / WHOLE_MILLI,
        "price_usd_h": usd_h(one.price_nano_h),
        "upfront_usd": usd(one.upfront_nano),
        "created_at": time_of(one.created_at),
        "starts_at": time_of(one.starts_at),
        "ends_at": time_of(one.ends_at),
    }
