"""Deadlines as people write them, on their own machine and as the server takes them."""

import time
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.errors import CumuloError
from cumulo.wire.deadline import deadline_at, read_deadline, resolved
from cumulo.wire.run_file import read_run_file, to_spec

NOW = 1_800_000_000.0


def spec(**keys):
    return to_spec(read_run_file({"run": "true", **keys}), now=NOW)


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_duration_counts_from_when_it_is_accepted():
    assert spec(deadline="20h", work="12h").deadline_at == NOW + 20 * 3600
    assert spec(deadline="1d12h").deadline_at == NOW + 36 * 3600
    assert spec(deadline=90).deadline_at == NOW + 90
    assert spec(deadline="20h", work="12h").work_s == 12 * 3600


def test_a_date_and_time_is_that_moment():
    made = spec(deadline="2027-01-15T18:00+01:00")
    assert made.deadline_at == datetime.fromisoformat("2027-01-15T17:00+00:00").timestamp()
    assert made.work_s is None
    assert spec(deadline="2027-01-15T17:00Z").deadline_at == made.deadline_at


def test_a_time_of_day_is_the_next_one_where_the_person_is(berlin):
    now = datetime(2026, 7, 1, 9, 30)
    assert resolved("18:00", now) == "2026-07-01T18:00:00+02:00"
    assert resolved("9:15", now) == "2026-07-02T09:15:00+02:00"
    assert resolved(" 9:30:05 ", now) == "2026-07-01T09:30:05+02:00"
    assert resolved("2026-12-24", now) == "2026-12-24T00:00:00+01:00"
    assert resolved("2026-12-24 18:00", now) == "2026-12-24T18:00:00+01:00", "winter has another offset"
    assert resolved("2026-12-24T18:00Z", now) == "2026-12-24T18:00:00+00:00"


def test_over_the_night_in_which_clocks_change(berlin):
    now = datetime(2026, 10, 24, 20, 0)
    assert resolved("18:00", now) == "2026-10-25T18:00:00+01:00"


@pytest.mark.parametrize("value", ["20h", "soon", 5, None, ["x"], "2026-99-99"])
def test_other_things_are_the_servers_to_judge(value):
    assert resolved(value, datetime(2026, 7, 1)) == value


@given(st.datetimes(min_value=datetime(2026, 1, 1), max_value=datetime(2035, 1, 1)))
def test_a_time_of_day_is_within_a_day_and_never_past(now):
    at = datetime.fromisoformat(str(resolved("18:00", now)))
    assert timedelta(0) < at.replace(tzinfo=None) - now <= timedelta(days=1)


@given(st.floats(min_value=1e-3, max_value=3e8), st.floats(min_value=0, max_value=4e9))
def test_what_is_read_keeps_its_meaning(seconds, accepted_at):
    assert deadline_at(read_deadline(seconds), accepted_at) == pytest.approx(accepted_at + seconds)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"deadline": "soon"}, "deadline: 'soon' is not a deadline; write a duration such as 20h"),
        ({"deadline": True}, "deadline: True is not a deadline"),
        ({"deadline": "18:00"}, "deadline: '18:00' has no date: only the command line knows your time zone"),
        ({"deadline": "2026-12-24T18:00"}, "needs an offset from UTC, such as 2026-12-24T18:00+01:00"),
        ({"deadline": "2026-13-24T18:00Z"}, "is not a date and time"),
        ({"deadline": 0}, "deadline: 0 is not a deadline"),
        ({"work": "2h"}, "work: is how long the work takes for a deadline, which is missing"),
        ({"deadline": "2h", "work": 0}, "work: Input should be greater than 0"),
        ({"deadline": "2h", "kind": "dev"}, "deadline: a dev run stays until it is stopped"),
        ({"deadline": "2h", "resources": {"use_spot": True}}, "resources.use_spot: a deadline chooses between spot"),
        ({"deadline": "2h", "gpu": 1, "resources": {"max_price": 1}}, "resources.max_price: a deadline takes spot"),
        ({"deadline": "2h", "gpu": 1, "resources": {"reservation": "r"}}, "a deadline chooses between spot"),
        ({"deadline": "9h", "work": "2h", "max_duration": "1h"}, "work: takes longer than max_duration lets"),
    ],
)
def test_what_is_wrong_is_said(keys, told):
    with pytest.raises(CumuloError) as caught:
        spec(**keys)
    assert told in caught.value.message
    assert caught.value.code == "invalid_run_file"
