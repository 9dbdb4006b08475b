"""How deadlines are said on the command line."""

from datetime import UTC, datetime, timedelta

import pytest

from cumulo.cli import phrases
from cumulo.client.answers.runs import Deadline

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def noon(monkeypatch):
    """It is noon, and what is told is told by UTC's clock."""
    monkeypatch.setattr(phrases, "now", lambda: NOW)
    monkeypatch.setattr(phrases, "clock", lambda at: at.strftime("%H:%M"))


def given(**changes):
    return Deadline(at=NOW + timedelta(hours=6, minutes=12), **changes)


def said(**changes):
    return phrases.deadline(given(**changes), since=NOW)


def test_what_it_does_and_until_when():
    assert said() == "18:12 (in 6h 12m)"
    told = said(choice="spot", text="runs on spot: 1h 40m of slack left", on_demand_at=NOW + timedelta(hours=1))
    assert told == "18:12 (in 6h 12m): runs on spot: 1h 40m of slack left; on-demand from 13:00 at the latest"


def test_what_it_costs_where_that_is_known():
    told = said(text="runs on spot", expected_cost_usd="3.1", on_demand_cost_usd="8")
    assert told == "18:12 (in 6h 12m): runs on spot; expected cost $3.10 (on-demand only $8.00)"


def test_that_it_will_be_late_and_when_it_is_done():
    late = {"on_demand_at": NOW, "done_at": NOW + timedelta(hours=7, minutes=10)}
    told = said(text="can't be done in time", feasible=False, **late)
    assert told == "18:12 (in 6h 12m): can't be done in time; earliest 19:10"


def test_text_from_others_can_not_act_on_a_terminal():
    assert "\x1b" not in said(text="\x1b[31mred")


def test_work_that_is_left():
    assert phrases.work(given(work_s=43200.0, work_left_s=11400.0)) == "3h 10m of 12h 00m left"
    assert phrases.work(given()) == ""
