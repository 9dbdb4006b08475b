"""Reservations and spot prices over HTTP: who may, what is answered, and what it costs."""

import time

import pytest
from sqlalchemy import insert

from cumulo.domain.quantities import NANO
from cumulo.store import tables
from cumulo.wire import api


@pytest.fixture
def made(box):
    """Two of the four GPUs, reserved and given back in the end."""
    answer = box.ask("POST", "/v1/reservations", {"gpus": "A100:2", "term": "30d", "name": "nightly"})
    assert answer.status == 201, answer.body
    yield answer.json
    box.ask("DELETE", f"/v1/reservations/{answer.json['id']}")


def test_a_reservation_is_made_listed_page_by_page_and_given_back(box, made):
    api.Reservation.model_validate(made)
    assert (made["gpu"], made["count"], made["in_use"], made["project"]) == ("A100-80GB", 2, 0.0, "default")
    body = {"gpus": "A100:1", "term": 3600, "name": "later", "starts_at": "2126-01-01T00:00:00Z"}
    later = box.ask("POST", "/v1/reservations", body).json
    first = box.get("/v1/reservations?limit=1")
    second = box.get(f"/v1/reservations?limit=1&cursor={first['next']}")
    assert [row["name"] for row in (*first["items"], *second["items"])] == ["nightly", "later"]
    assert box.ask("DELETE", f"/v1/reservations/{later['id']}").status == 200
    assert [row["name"] for row in box.get("/v1/reservations")["items"]] == ["nightly"]
    assert box.ask("DELETE", "/v1/reservations/nobody").json["code"] == "not_found"


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ({"gpus": "A100:9", "term": "1h"}, "no_capacity", "this cloud has 4 A100-80GB, 9 asked"),
        ({"gpus": "A100:3", "term": "1h"}, "no_capacity", "2 A100-80GB can be reserved from now for 1h 00m, 3 asked"),
        ({"gpus": "A100:0.5", "term": "1h"}, "invalid_ask", "whole GPUs are reserved"),
        ({"gpus": "A100:1", "term": "soon"}, "invalid_request", "term: 'soon' is not a duration"),
        ({"gpus": "A100:1", "term": "1h", "starts_at": "18:00"}, "invalid_request", "write a time with its zone"),
        ({"gpus": "A100:1", "term": "1h", "project": "nobodys"}, "not_found", "there is no project 'nobodys'"),
    ],
)
def test_what_can_not_be_reserved(box, made, body, code, text):
    answer = box.ask("POST", "/v1/reservations", body)
    assert (answer.json["code"], text in answer.json["detail"]) == (code, True)


def test_only_an_admin_reserves_and_gives_back_and_everybody_may_look(box, made):
    guest = box.token_of("guest")
    body = {"gpus": "A100:1", "term": "1h"}
    assert box.ask("POST", "/v1/reservations", body, token=guest).status == 403
    assert box.ask("DELETE", f"/v1/reservations/{made['id']}", token=guest).status == 403
    assert [row["id"] for row in box.get("/v1/reservations", token=guest)["items"]] == [made["id"]]


def test_a_reservation_is_a_line_of_the_bill_by_any_group(box, made):
    with box.db.write() as tx:
        of = tables.reservation.c.id == made["id"]
        hour_ago = time.time() - 3600.0
        tx.execute(tables.reservation.update().where(of).values(price_nano_h=NANO, starts_at=hour_ago))
    keys = {"run": made["id"], "account": "owner", "project": "default", "purchase": "reserved"}
    for group, key in keys.items():
        bill = box.get(f"/v1/usage?group={group}")
        (row,) = [row for row in bill["items"] if row["key"] == key]
        assert float(row["cost_usd"]) == pytest.approx(2.0, abs=0.05)
        assert float(bill["total"]["cost_usd"]) >= float(row["cost_usd"])
    assert box.get("/v1/usage", token=box.token_of("another"))["items"] == []


def test_spot_prices_as_they_were(box):
    now = time.time()
    row = {
        "region": "local", "kind": "T4", "price_nano_h": NANO // 10, "shown_nano_h": NANO // 5,
        "on_demand_nano_h": NANO // 4, "capacity_milli": 4000, "held_milli": 2500, "wanted_milli": 0,
    }  # fmt: skip
    with box.db.write() as tx:
        tx.execute(insert(tables.spot_price), [row | {"at": now - 7200.0}, row | {"at": now - 60.0}])
    found = box.get("/v1/prices?gpu=T4&since=3600")["items"]
    assert len(found) == 2  # with the one that held then
    assert api.SpotPrice.model_validate(found[-1]).price_usd_h == 0.1
    assert (found[-1]["gpus"], found[-1]["held"], found[-1]["shown_usd_h"]) == (4.0, 2.5, 0.2)
    assert len(box.get("/v1/prices?gpu=T4&since=30")["items"]) == 1
    assert box.get("/v1/prices?gpu=L4")["items"] == []
    assert box.ask("GET", "/v1/prices?since=yesterday").json["code"] == "invalid_request"
