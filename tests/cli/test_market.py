"""What people read of prices, bids and reservations."""

from datetime import UTC, datetime, timedelta

import pytest

from cumulo.cli import history, plan, reservations
from cumulo.client.answers.market import Reservation, SpotPrice
from cumulo.client.answers.planning import Choice, Plan

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def planned(price, devices="2x A100-80GB", **changes):
    choice = Choice(region="local", node="one", devices=devices, price_usd_h=price)
    return Plan(name="n", choices=(choice,), **changes)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (planned(4.0), "$4.00/h"),
        (planned(1.45, purchase="spot"), "$1.45/h as spot now, never more than on demand"),
        (
            planned(1.45, purchase="spot", max_price_usd_h=1.0),
            "$1.45/h as spot now, never more than your bid of $1.00 a GPU",
        ),
        (planned(0.0, purchase="reserved"), "$0.00/h: its reservation is paid for, used or not"),
        (
            planned(0.0, purchase="spot", max_price_usd_h=1.0),
            "$0.00/h, your own hardware; your bid of $1.00 a GPU only says who goes first",
        ),
        (
            planned(0.0, devices="2x A100-80GB (emulated)", purchase="spot", max_price_usd_h=1.0),
            "none: emulated devices have no price; your bid of $1.00 a GPU only says who goes first",
        ),
    ],
)
def test_a_plan_says_what_it_costs_and_at_most(given, told):
    assert plan.price(given) == told


def price(at, usd, gpu="A100-80GB"):
    return SpotPrice(at=at, region="local", gpu=gpu, price_usd_h=usd, on_demand_usd_h=2.0, gpus=8.0, held=3.5)


def test_prices_are_drawn_by_region_and_kind_from_nothing_to_on_demand():
    found = (price(NOON, 0.5), price(NOON, 1.0, "T4"), price(NOON + timedelta(minutes=30), 1.0))
    first, second = history.drawn(found, since=NOON, until=NOON + timedelta(hours=1)).split("\n\n")
    assert first.startswith("A100-80GB in local: spot $1.00/h now, on demand $2.00/h; 3.5 of 8 GPUs are held")
    assert second.startswith("T4 in local: spot $1.00/h now")
    lines = first.split("\n")
    assert lines[1] == "2.00 ┤"
    assert lines[5] == "0.40 ┤" + "█" * 60
    assert lines[4].endswith("█" * 30)
    assert lines[6] == "0.00 └" + "─" * 60


def test_a_name_that_may_be_several_kinds_shows_all_of_them():
    found = (price(NOON, 1.0), price(NOON, 1.0, "A100-40GB"), price(NOON, 1.0, "T4"), price(NOON, 1.0, "Homemade"))
    assert [row.gpu for row in history.of_kind(found, "a100")] == ["A100-80GB", "A100-40GB"]
    assert [row.gpu for row in history.of_kind(found, "Homemade")] == ["Homemade"]
    assert len(history.of_kind(found, None)) == 4


def test_a_reservation_is_a_row_with_what_is_in_use_of_it():
    one = Reservation(
        id="1ngvws82jc09", name="nightly", project="vision", gpu="A100-80GB", count=3, in_use=1.5, price_usd_h=2.0,
        starts_at=NOON, ends_at=NOON + timedelta(days=30),
    )  # fmt: skip
    _, row = reservations.table((one,)).split("\n")
    assert row.startswith("nightly  3x A100-80GB  vision   1.5 of 3    $6.00    $0.00  ")
