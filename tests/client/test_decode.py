"""Answers are read leniently where versions may differ, and written back as they came."""

from datetime import UTC, datetime

import pytest

from cumulo.client.answers.planning import Plan
from cumulo.client.answers.runs import Instance, Run
from cumulo.client.answers.service import Health
from cumulo.client.decode import decode, encode
from cumulo.domain.errors import CumuloError


def test_nested_answers_times_and_lists():
    run = decode(
        Run,
        {
            "id": "a", "name": "n", "accepted_at": "2026-11-30T10:00:00.123456Z", "ended_at": None,
            "instances": [{"id": "a-0-1-0", "devices": ["GPU-1"]}], "progress": {"done": 1, "total": 2},
        },
    )  # fmt: skip
    assert run.accepted_at == datetime(2026, 11, 30, 10, 0, 0, 123456, tzinfo=UTC)
    assert run.instances == (Instance(id="a-0-1-0", devices=("GPU-1",)),)
    assert run.progress
    assert run.progress.done == 1.0


def test_keys_of_newer_servers_are_passed_over_and_missing_ones_take_defaults():
    assert decode(Health, {"status": "ok", "mood": "fine"}) == Health(status="ok")


def test_null_where_there_must_be_a_value_is_the_default():
    assert decode(Run, {"id": "a", "name": "n", "spec": None}).spec == {}


def test_what_may_not_be_missing_is_missed():
    with pytest.raises(CumuloError, match="not a Run"):
        decode(Run, {"id": "a"})


def test_encoding_gives_back_what_was_decoded():
    data = {
        "name": "n", "kind": "task", "ask": "A100:8", "units": 1, "nodes": 1, "satisfiable": True, "starts_now": False,
        "queue_position": 2, "choices": [], "problems": ["p"], "suggestions": [], "warnings": [], "runtime": None,
        "max_duration_s": 5.0, "expected_start": "2026-11-30T10:00:00.000001Z", "expected_earliest": None,
        "expected_latest": "2026-11-30T11:00:00.000001Z", "deadline": None, "purchase": "spot", "max_price_usd_h": 0.8,
    }  # fmt: skip
    assert encode(decode(Plan, data)) == data
