"""Runs with a deadline, from outside: real processes and real time, of which there is little."""

import json
from datetime import datetime
from typing import Any

import pytest

from tests.system.cloud import Cloud, eventually

pytestmark = pytest.mark.system


def launched(cloud: Cloud, script: str, **keys: str) -> dict[str, Any]:
    """Launches a run with a deadline and a short grace."""
    lines = [f"{key}: {value}" for key, value in {"name": "train", "gpu": 2, "grace": "1s", **keys}.items()]
    (cloud.work / "task.yaml").write_text("\n".join([*lines, f"run: {script}\n"]))
    run: dict[str, Any] = json.loads(cloud.ok("launch", "-y", "-d", "--json", "task.yaml"))
    return run


def told(cloud: Cloud, run: dict[str, Any]) -> dict[str, Any]:
    """How the run stands to its deadline."""
    found: dict[str, Any] = cloud.run(run["id"])["deadline"]
    return found


def bought(cloud: Cloud, run: dict[str, Any]) -> list[str]:
    """As what it went on."""
    lines = cloud.ok("events", run["id"]).splitlines()
    return [line.split("goes on as ")[1].split(":")[0] for line in lines if "goes on as " in line]


def ended(cloud: Cloud, run: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = eventually(lambda: (now := cloud.run(run["id"]))["ended_at"] and now, patience_s=60)
    return row


def in_time(row: dict[str, Any]) -> bool:
    return datetime.fromisoformat(row["ended_at"]) <= datetime.fromisoformat(row["deadline"]["at"])


@pytest.fixture
def small(new_cloud: Any) -> Cloud:
    """A cloud of one node with two GPUs."""
    made: Cloud = new_cloud(emulate="A100-80GB:2")
    made.start()
    return made


def test_a_run_waits_for_spot_and_is_done_in_time(small: Cloud):
    hog = small.launch("sleep 60", "--gpus", "2", "--name", "hog", "--max-duration", "4s")
    eventually(lambda: small.run(hog["id"])["status"] == "running")
    run = launched(small, "sleep 2", deadline="60s", work="2s")
    eventually(lambda: told(small, run)["choice"] == "wait")
    why = small.ok("why", run["id"])
    assert "Deadline" in why
    assert "waits for spot: " in why
    assert "on-demand from " in why
    assert json.loads(small.ok("why", run["id"], "--json"))["deadline"]["feasible"] is True
    row = ended(small, run)
    assert (row["status"], row["attempts"], in_time(row)) == ("succeeded", 1, True)
    assert row["deadline"]["text"].startswith("succeeded ")
    assert bought(small, run) == [], "it ran as spot from its start to its end"


def test_a_run_that_is_preempted_goes_on_as_on_demand_over_a_restart(small: Cloud):
    run = launched(small, "sleep 10", deadline="24s", work="10s")  # it saves nothing: each attempt begins anew
    eventually(lambda: told(small, run)["text"].startswith("runs on spot: "))
    hog = small.launch("sleep 60", "--gpus", "2", "--name", "hog", "--max-duration", "3s")
    eventually(lambda: small.run(hog["id"])["status"] == "running")
    assert small.run(run["id"])["status"] == "recovering"
    small.kill()
    small.start()
    eventually(lambda: small.run(run["id"])["status"] == "running")
    eventually(lambda: told(small, run)["text"].startswith("runs on-demand: "))
    row = ended(small, run)
    assert (row["status"], row["attempts"], in_time(row)) == ("succeeded", 2, True)


def test_a_deadline_that_can_not_be_met_is_refused_and_one_that_becomes_so_is_told(small: Cloud):
    words = ("launch", "-y", "-d", "--no-workdir", "--gpus", "2", "--deadline")
    refused = small.cli(*words, "10s", "--work", "1h", "--", "true")
    assert refused.code == 2
    assert "deadline: 1h 00m of work can't be done in 10s, even on-demand from now on" in refused.err
    assert "the earliest is in 1h 00m" in refused.err
    past = small.cli(*words, "2020-01-01T10:00Z", "--", "true")
    assert "deadline: it was " in past.err
    small.launch("sleep 60", "--gpus", "2", "--name", "hog")
    run = launched(small, "sleep 5", deadline="12s", work="5s")
    late = eventually(lambda: not (now := told(small, run))["feasible"] and now)
    assert late["text"].startswith("can't be done in time: 5s of work and ")
    assert "earliest " in small.ok("status", run["id"])
    events = small.ok("events", run["id"])
    assert events.count("run.late") == 1
    assert events.count("run.unsure") == 1
