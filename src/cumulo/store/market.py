"""Spot prices and reservations in the store."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, RowMapping, and_, func, or_, select

from cumulo.store.tables import reservation, spot_price

_LATEST: Final = select(spot_price.c.region, spot_price.c.kind, func.max(spot_price.c.at).label("at")).group_by(
    spot_price.c.region, spot_price.c.kind
)


def latest_prices(tx: Connection) -> Sequence[Row[Any]]:
    """The last spot price of each pool."""
    # SELECT * FROM spot_price JOIN (SELECT region, kind, MAX(at) ... GROUP BY region, kind) USING (region, kind, at)
    last = _LATEST.subquery()
    of = and_(*(spot_price.c[name] == last.c[name] for name in ("region", "kind", "at")))
    return tx.execute(select(spot_price).join(last, of)).all()


def price_history(tx: Connection, *, kind: str | None, since: float, limit: int = 2000) -> Sequence[Row[Any]]:
    """Spot prices since then, oldest first, each pool from the one that held at `since` on; the newest `limit`."""
    before = _LATEST.where(spot_price.c.at <= since).subquery()
    of = and_(spot_price.c.region == before.c.region, spot_price.c.kind == before.c.kind)
    query = select(spot_price).outerjoin(before, of)
    query = query.where(spot_price.c.at >= func.coalesce(before.c.at, since))
    if kind is not None:
        query = query.where(spot_price.c.kind == kind)
    return tx.execute(query.order_by(spot_price.c.at.desc(), spot_price.c.kind).limit(limit)).all()[::-1]


def open_reservations(tx: Connection) -> Sequence[RowMapping]:
    """Reservations that hold or are to hold, and those whose end has not been dealt with."""
    query = select(*(column for column in reservation.c if column.name != "over")).where(~reservation.c.over)
    return tx.execute(query.order_by(reservation.c.starts_at, reservation.c.id)).mappings().all()


def find_reservations(tx: Connection, text: str) -> Sequence[Row[Any]]:
    """Reservations of that id or name that are not over."""
    named = or_(reservation.c.id == text, reservation.c.name == text)
    return tx.execute(select(reservation).where(named, ~reservation.c.over)).all()


def reservations(
    tx: Connection, *, since: float, until: float = float("inf"), projects: Sequence[str] | None = None
) -> Sequence[Row[Any]]:
    """Reservations that held at some time from `since` to `until`, or will; of some projects or of all."""
    query = select(reservation).where(reservation.c.ends_at > since)
    if until < float("inf"):
        query = query.where(reservation.c.starts_at < until)
    if projects is not None:
        query = query.where(reservation.c.project.in_(projects))
    return tx.execute(query.order_by(reservation.c.starts_at, reservation.c.id)).all()
