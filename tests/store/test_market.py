"""Spot prices and reservations, on SQLite and on PostgreSQL alike."""

from dataclasses import asdict
from typing import Any

from sqlalchemy import insert, select

from cumulo.domain.reservation import Reservation
from cumulo.store import market, retention
from cumulo.store import tables as t
from cumulo.store.blobs import Blobs
from cumulo.store.logs import Logs
from tests.databases import NOW

DAY = 86400.0


def put_prices(db, *rows):
    with db.write() as tx:
        tx.execute(
            insert(t.spot_price),
            [
                {
                    "region": "local", "kind": kind, "at": at, "price_nano_h": price, "shown_nano_h": price,
                    "on_demand_nano_h": 100, "capacity_milli": 0, "held_milli": 0, "wanted_milli": 0,
                }
                for kind, at, price in rows
            ],
        )  # fmt: skip


def reservation(name, starts_at, ends_at, **changes):
    values: dict[str, Any] = {
        "id": f"id-{name}", "name": name, "project": "p", "account": "ada", "region": "local", "kind": "T4", "count": 1,
        "price_nano_h": 1, "upfront_nano": 0, "created_at": 0.0, "starts_at": starts_at, "ends_at": ends_at,
    }  # fmt: skip
    return Reservation(**values | changes)


def put_reservations(db, *several, over=False):
    with db.write() as tx:
        tx.execute(insert(t.reservation), [asdict(one) | {"over": over} for one in several])


def test_the_latest_price_of_each_pool_and_a_history_that_begins_with_the_one_that_held(db):
    put_prices(db, ("T4", 1.0, 10), ("T4", 5.0, 20), ("T4", 9.0, 30), ("L4", 2.0, 40))
    with db.read() as tx:
        assert {row.kind: row.price_nano_h for row in market.latest_prices(tx)} == {"T4": 30, "L4": 40}
        assert [row.price_nano_h for row in market.price_history(tx, kind="T4", since=6.0)] == [20, 30]
        assert [row.price_nano_h for row in market.price_history(tx, kind=None, since=6.0)] == [40, 20, 30]
        assert [row.price_nano_h for row in market.price_history(tx, kind="T4", since=0.0, limit=2)] == [20, 30]


def test_a_sweep_keeps_the_price_that_held_at_the_cutoff(db, tmp_path):
    put_prices(db, ("T4", NOW - 95 * DAY, 1), ("T4", NOW - 92 * DAY, 2), ("T4", NOW, 3), ("L4", NOW - 99 * DAY, 4))

    def sweep(dry_run):
        swept = retention.sweep(
            db,
            blobs=Blobs(tmp_path),
            logs=Logs(tmp_path),
            retention=retention.Retention(),
            now=NOW,
            dry_run=dry_run,
        )
        return {one.what: one.count for one in swept}["spot prices"]

    assert (sweep(True), sweep(False), sweep(False)) == (1, 1, 0)
    with db.read() as tx:
        assert set(tx.execute(select(t.spot_price.c.price_nano_h)).scalars()) == {2, 3, 4}


def test_reservations_by_when_they_begin_page_by_page(db):
    put_reservations(db, reservation("b", 5.0, 50.0), reservation("a", 5.0, 50.0), reservation("c", 9.0, 50.0))
    put_reservations(db, reservation("old", 0.0, 3.0), over=True)
    with db.read() as tx:
        first = market.reservations(tx, now=4.0, limit=2)
        rest = market.reservations(tx, now=4.0, after=(first[-1].starts_at, first[-1].id), limit=2)
        assert [one.name for one in (*first, *rest)] == ["a", "b", "c"]
        assert {one.name for one in market.open_reservations(tx)} == {"a", "b", "c"}
        assert [one.name for one in market.find_reservations(tx, "id-c")] == ["c"]
        assert market.find_reservations(tx, "old") == []
        assert [one.name for one in market.reservations_between(tx, since=1.0, until=5.0)] == ["old"]
        assert market.reservations_between(tx, since=1.0, until=9.0, account="eve") == []
        assert market.drawn_milli(tx, ["id-a"]) == {}
