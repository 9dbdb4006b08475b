"""Logs shipped from an engine to the store: from where the store stands, and progress found on the way."""

import json
from typing import cast

import pytest

from cumulo.control import shipping
from cumulo.control.shipping import Shipper, Source
from cumulo.engines.protocol import Engine
from cumulo.store.logs import LogRef, Logs

ID = "0123456789ab-0-1-0"


class Written:
    """An engine with one log, which counts what was asked of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[int] = []

    def read_log(self, instance_id: str, offset: int, limit: int = 1 << 20) -> bytes:
        self.asked.append(offset)
        return self.data[offset : offset + limit]


@pytest.fixture
def told() -> list[tuple[str, dict[str, float]]]:
    return []


@pytest.fixture
def logs(tmp_path):
    return Logs(tmp_path)


@pytest.fixture
def shipper(logs, told):
    return Shipper(logs, clock=lambda: 7.0, progress=lambda run, line: told.append((run, json.loads(line))))


def ship(shipper, engine, pattern=None):
    shipper.watch([Source(engine=engine, instance_id=ID, run_id="run", progress=pattern)])
    shipper.finish(engine, ID)


def test_what_the_store_has_is_not_fetched_again(shipper, logs):
    engine = Written(b"one\n")
    ship(shipper, engine)
    engine.data += b"two\n"
    ship(shipper, engine)
    assert logs.read(LogRef.of(ID), 0) == b"one\ntwo\n"
    assert engine.asked == [0, 4, 4, 8]


def test_progress_is_the_last_match(shipper, told):
    ship(shipper, Written(b"epoch 1/9\nepoch 2/9\n"), r"epoch (\d+)/(\d+)")
    assert [(run, line["done"], line["total"]) for run, line in told] == [(ID, 2.0, 9.0)]


def test_a_pattern_that_never_comes_to_an_end_is_left(shipper, logs, told, monkeypatch):
    monkeypatch.setattr(shipping, "_LOOK_S", 0.01)
    engine = Written(b"a" * 5000)
    ship(shipper, engine, "(a+)+b")
    engine.data += b"b\n"
    ship(shipper, engine, "(a+)+b")
    assert logs.size(LogRef.of(ID)) == 5002, "the log itself is shipped all the same"
    assert told == []


def test_an_engine_that_forgot_holds_up_nothing(shipper):
    class Forgetful(Written):
        def read_log(self, instance_id: str, offset: int, limit: int = 1 << 20) -> bytes:
            raise KeyError(instance_id)

    ship(shipper, Forgetful(b""))


def test_who_comes_is_looked_at_and_who_goes_is_not(shipper, logs, monkeypatch):
    sources = [
        Source(engine=cast(Engine, Written(b"x")), instance_id=f"{run}-0-1-0", run_id=run)
        for run in ("aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc")
    ]
    shipper.watch(sources[:1])
    shipper.change(sources[1:], ())
    assert shipper._due(all_of_them=True) == sources
    shipper.change((), [sources[0].instance_id, "unknown-0-1-0"])
    assert shipper._due(all_of_them=True) == sources[1:]
    assert shipper._due(all_of_them=False) == []
    monkeypatch.setattr(logs, "followed_runs", lambda: frozenset({"aaaaaaaaaaaa", "cccccccccccc"}))
    assert shipper._due(all_of_them=False) == sources[2:]
