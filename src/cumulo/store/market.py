"""Spot prices and reservations in the store."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, func, literal, or_, select, tuple_

from cumulo.domain.lifecycle import InstanceState
from cumulo.domain.reservation import Reservation
from cumulo.store.tables import instance, reservation, spot_price

_RESERVATION: Final = select(*(column for column in reservation.c if column.name != "over"))

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


def open_reservations(tx: Connection) -> list[Reservation]:
    """Reservations that hold or are to hold, and those whose end has not been dealt with."""
    return _made(tx.execute(_RESERVATION.where(~reservation.c.over).order_by(reservation.c.starts_at)).all())


def find_reservations(tx: Connection, text: str) -> list[Reservation]:
    """Reservations of that id or name that are not over."""
    named = or_(reservation.c.id == text, reservation.c.name == text)
    return _made(tx.execute(_RESERVATION.where(named, ~reservation.c.over)).all())


def reservations(
    tx: Connection, *, now: float, after: tuple[float, str] = (float("-inf"), ""), limit: int = 50
) -> list[Reservation]:
    """Those that hold at `now` or are to hold, by (starts_at, id); `after` is that of the last one seen."""
    key = tuple_(reservation.c.starts_at, reservation.c.id)
    query = _RESERVATION.where(reservation.c.ends_at > now)
    if after[1]:
        query = query.where(key > tuple_(literal(after[0]), literal(after[1])))
    return _made(tx.execute(query.order_by(reservation.c.starts_at, reservation.c.id).limit(limit)).all())


def reservations_between(
    tx: Connection, *, since: float, until: float, account: str | None = None
) -> list[Reservation]:
    """Those that held at some time in between; of who made them, or of everybody."""
    query = _RESERVATION.where(reservation.c.ends_at > since, reservation.c.starts_at < until)
    if account is not None:
        query = query.where(reservation.c.account == account)
    return _made(tx.execute(query.order_by(reservation.c.starts_at, reservation.c.id)).all())


def drawn_milli(tx: Connection, ids: Sequence[str]) -> dict[str, int]:
    """What instances that have not ended draw on those reservations, in thousandths of a GPU."""
    there = and_(instance.c.reservation_id.in_(ids), instance.c.state != str(InstanceState.ENDED))
    query = select(instance.c.reservation_id, func.sum(instance.c.gpu_milli)).where(there)
    return {row[0]: int(row[1]) for row in tx.execute(query.group_by(instance.c.reservation_id))}


def _made(rows: Sequence[Row[Any]]) -> list[Reservation]:
    return [Reservation(**row._mapping) for row in rows]
