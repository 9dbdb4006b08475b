"""How runs end: by request, by the clock, by memory; that nothing survives; and that it is explained."""

import json
import os
import signal

import pytest

from tests.system.cloud import Cloud, eventually
from tests.system.evidence import with_argument
from tests.system.load import outputs

pytestmark = pytest.mark.system

needs_cgroups = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: memory limits are cgroups'")


def running(cloud: Cloud, run: str) -> None:
    eventually(lambda: cloud.run(run)["status"] == "running")


def test_cancel_gives_its_grace(cloud: Cloud):
    script = "trap 'echo saving; sleep 0.5; echo saved; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    run = cloud.launch(script, "--name", "graceful")
    eventually(lambda: cloud.ok("logs", "graceful") == "ready\n")
    cloud.ok("cancel", "--wait", "graceful")
    said = [line for line in cloud.ok("logs", run["id"]).splitlines() if "Terminated" not in line]  # of its sleep
    assert said == ["ready", "saving", "saved"]
    row = cloud.run(run["id"])
    assert (row["status"], row["reason"]) == ("cancelled", "cancelled")
    assert cloud.cli("wait", run["id"]).code == 103


def test_who_ignores_sigterm_is_killed_after_the_grace(cloud: Cloud):
    (cloud.work / "deaf.yaml").write_text("name: deaf\nrun: trap '' TERM; echo deaf; while :; do sleep 0.1; done\n")
    cloud.ok("launch", "-y", "-d", "deaf.yaml")
    eventually(lambda: cloud.ok("logs", "deaf") == "deaf\n")
    cloud.ok("cancel", "--wait", "--grace", "1", "deaf", timeout=30)
    row = cloud.run("deaf")
    assert row["status"] == "cancelled"
    assert row["instances"][0]["signal"] == signal.SIGKILL


def test_nothing_survives_its_run(cloud: Cloud):
    """Daemonised twice, in a session of its own, without a parent."""
    script = "(setsid bash -c 'setsid sleep 8642 & disown' & disown); sleep 0.2; exit 0"
    for runtime in ("sandbox", "process"):
        assert cloud.cli("launch", "-y", "--no-workdir", "--runtime", runtime, "--", "bash", "-c", script).code == 0
        assert not with_argument("8642"), runtime


def test_cancelling_twice_says_how_it_ended(cloud: Cloud):
    run = cloud.launch("exit 2")
    cloud.cli("wait", run["id"])
    done = cloud.cli("cancel", run["id"])
    assert done.code == 1
    assert "failed" in done.err


def test_max_duration(cloud: Cloud):
    done = cloud.cli("launch", "-y", "--no-workdir", "--name", "slow", "--max-duration", "1s", "--", "sleep", "60")
    assert done.code not in (0, 1, 2)
    row = cloud.run("slow")
    assert (row["status"], row["reason"]) == ("failed", "timeout")
    assert "max_duration" in cloud.ok("why", "slow")


@needs_cgroups
def test_out_of_memory_is_called_so(cloud: Cloud):
    eater = "x = bytearray(1 << 20)\nwhile True: x += b'x' * (1 << 22)"
    done = cloud.cli(
        "launch", "-y", "--no-workdir", "--memory", "64MB", "--name", "hungry", "--", "python3", "-c", eater
    )
    assert done.code == 137
    row = cloud.run("hungry")
    assert row["reason"] == "out_of_memory"
    assert "memory" in cloud.ok("why", "hungry")
    assert row["instances"][0]["max_memory_bytes"] <= 65 << 20


def test_why_of_what_ended(cloud: Cloud):
    cloud.launch("echo one; echo the last words; exit 9", "--name", "ended")
    cloud.cli("wait", "ended")
    said = cloud.ok("why", "ended")
    assert "9" in said
    assert "the last words" in said
    told = json.loads(cloud.ok("why", "ended", "--json"))
    assert told["ended"]["last_log_lines"][-1] == "the last words"


def test_why_of_what_waits_and_its_advice_works(cloud: Cloud):
    """What `why` says would start it now does start now."""
    holders = [cloud.launch("sleep 60", "--gpus", "A100:3", "--name", f"holder-{i}")["id"] for i in (0, 1)]
    for holder in holders:
        running(cloud, holder)
    waits = cloud.launch("true", "--gpus", "A100-80GB:2", "--name", "waits")
    why = json.loads(cloud.ok("why", "waits", "--json"))
    assert why["status"] == "queued"
    assert "6 of 8" in why["summary"] or "3 of 4" in why["summary"], why["summary"]
    assert sum(count["nodes"] for count in why["counts"]) >= 3
    assert len(why["nodes"]) == 3
    expected = why["expected_start"]
    assert expected["at"] is None or expected["earliest"] <= expected["at"] <= expected["latest"]
    gpus = why["suggestion"]["change"]["accelerators"]
    assert f"--gpus {gpus}" in cloud.ok("why", "waits")
    done = cloud.cli("launch", "-y", "--no-workdir", "--gpus", gpus, "--", "true", timeout=20)
    assert done.code == 0, f"{why['suggestion']}: {done.err}"
    assert cloud.run(waits["id"])["status"] == "queued"
    cloud.ok("cancel", *holders, waits["id"], "--grace", "0")


def test_expected_start_comes_from_declared_durations(cloud: Cloud):
    holder = cloud.launch("sleep 60", "--gpus", "T4", "--max-duration", "30m")
    running(cloud, holder["id"])
    cloud.launch("true", "--gpus", "T4", "--name", "after-it")
    at = json.loads(cloud.ok("why", "after-it", "--json"))["expected_start"]["at"]
    started = cloud.run(holder["id"])["started_at"]
    assert at is not None
    assert at > started
    (row,) = (row for row in json.loads(cloud.ok("queue", "--json")) if row["name"] == "after-it")
    assert row["expected_start"] is not None
    cloud.ok("cancel", holder["id"], "after-it", "--grace", "0")


def test_outputs_are_kept_after_the_end(cloud: Cloud):
    run = cloud.launch("echo result > $CUMULO_OUTPUT_DIR/result; exit 1")
    cloud.cli("wait", run["id"])
    assert (outputs(cloud, run["id"]) / "result").read_text() == "result\n"


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 5", 100), ("sleep 60", 103)])
def test_codes_of_wait(cloud: Cloud, script: str, code: int):
    run = cloud.launch(script)
    if code == 103:
        cloud.ok("cancel", run["id"], "--grace", "0")
    assert cloud.cli("wait", run["id"]).code == code


def test_wait_of_nobody_and_for_too_long(cloud: Cloud):
    assert cloud.cli("wait", "nobody-of-that-name").code == 102
    run = cloud.launch("sleep 60")
    assert cloud.cli("wait", "--timeout", "1s", run["id"]).code == 1
    cloud.ok("cancel", run["id"], "--grace", "0")
