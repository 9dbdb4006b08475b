"""How long things are kept: who may set it, what is refused, what obeys it."""

import math
from dataclasses import asdict

import pytest

from cumulo.store import retention
from cumulo.store.retention import Retention
from cumulo.wire import api
from tests.server.test_runs import problem

DAY = 86400.0


@pytest.fixture(autouse=True)
def defaults(box):
    """A setting outlives its test in the shared box."""
    yield
    with box.db.write() as tx:
        retention.save_retention(tx, Retention())


def keep(box, **days):
    return box.ask("PATCH", "/v1/storage", {"kept_days": days})


def kept(box):
    with box.db.read() as tx:
        return retention.load_retention(tx)


def told(box):
    return box.get("/v1/events?kind=storage.kept&limit=500")["items"]


def test_every_setting_can_be_set():
    assert set(api.KeptDays.model_fields) == set(asdict(Retention()))


def test_it_is_set_and_answered_with_what_there_is(box):
    answer = keep(box, logs=14, outputs=None, environments=0.5)
    assert answer.status == 200
    rows = {row.what: row.kept_days for row in api.StorageRows.model_validate(answer.json).items}
    assert (rows["logs"], rows["environments"], rows["events"]) == (14, 0.5, 90)
    assert kept(box) == Retention(logs=14, outputs=None, environments=0.5)
    assert answer.json == box.get("/v1/storage")


def test_the_node_obeys_from_the_next_sweep_on(box):
    keep(box, outputs=2, environments=None)
    assert box.ask("POST", "/v1/storage/sweep").status == 200
    assert box.engine.swept[-1] == (2 * DAY, math.inf)


def test_an_event_tells_who_changed_what(box):
    keep(box, logs=14, outputs=None)
    keep(box, logs=1, events=90)
    first, second = told(box)[-2:]
    assert first["account"] == "owner"
    parts = "logs 14 days (before: 30 days), outputs forever (before: 30 days)"
    assert first["message"] == f"owner set how long things are kept: {parts}"
    assert second["message"].endswith("kept: logs 1 day (before: 14 days)")


def test_what_changes_nothing_is_no_event(box):
    before = told(box)
    assert keep(box).status == 200
    assert keep(box, logs=30).status == 200
    assert told(box) == before


@pytest.mark.parametrize("days", [0, -1, 36501, True, "14", "forever", [1]])
def test_days_that_can_not_be(box, days):
    answer = keep(box, outputs=60, logs=days)
    problem(answer, "invalid_request", 422)
    assert answer.json["detail"].startswith("kept_days.logs")
    assert kept(box) == Retention()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("log", "did you mean 'logs'?"),
        ("idempotency keys", "did you mean 'idempotency'?"),
        ("workdirs", "known: events, logs, blobs, idempotency, environments, outputs"),
    ],
)
def test_a_name_that_is_not_known(box, name, hint):
    answer = keep(box, **{name: 14})
    problem(answer, "invalid_request", 422)
    assert answer.json["detail"].startswith(f"kept_days.{name}: is not known")
    assert answer.json["detail"].endswith(hint)


@pytest.mark.parametrize("body", [{}, {"kept_days": None}, {"kept_days": [1]}, {"kept_days": {}, "logs": 14}])
def test_a_body_that_says_something_else(box, body):
    problem(box.ask("PATCH", "/v1/storage", body), "invalid_request", 422)


def test_only_an_admin_sets_it(box):
    body = {"kept_days": {"logs": 14}}
    problem(box.ask("PATCH", "/v1/storage", body, token=box.token_of("guest")), "forbidden", 403)
    problem(box.ask("PATCH", "/v1/storage", body, token=""), "unauthenticated", 401)
    assert kept(box) == Retention()
