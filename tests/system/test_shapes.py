"""The shapes of runs: arrays, gangs, runs after others, priorities, dev servers."""

import json

import pytest

from tests.system.cloud import Cloud, eventually
from tests.system.load import outputs

pytestmark = pytest.mark.system


def test_an_array_runs_each_index_once(cloud: Cloud):
    run = cloud.launch('echo "index $CUMULO_ARRAY_INDEX"', "--array", "2-9%3", "--name", "eight")
    assert cloud.cli("wait", "eight").code == 0
    row = cloud.run("eight")
    assert (row["units"], row["units_succeeded"], row["units_failed"]) == (8, 8, 0)
    log = cloud.ok("logs", "-f", "eight").splitlines()
    assert sorted(log) == sorted(f"[{index}] index {index}" for index in range(2, 10))
    assert cloud.ok("logs", run["id"], "--unit", "5") == "index 5\n"


def test_an_array_keeps_to_its_limit(cloud: Cloud):
    cloud.launch("sleep 0.3", "--array", "0-5%2", "--name", "two-at-once")
    assert cloud.cli("wait", "two-at-once").code == 0
    found = list(cloud.client().instances("two-at-once"))
    moments = [(one.started_at, 1) for one in found] + [(one.ended_at, -1) for one in found]
    most = now = 0
    for _, change in sorted((at.timestamp(), change) for at, change in moments if at):
        now += change
        most = max(most, now)
    assert most <= 2


def test_one_index_fails_and_one_is_cancelled(cloud: Cloud):
    script = "[ $CUMULO_ARRAY_INDEX != 1 ] || exit 5; [ $CUMULO_ARRAY_INDEX != 2 ] || sleep 60"
    cloud.launch(script, "--array", "0-3", "--name", "mixed")
    eventually(lambda: cloud.run("mixed")["units_active"] == 1)
    cloud.ok("cancel", "mixed", "--unit", "2", "--grace", "0")
    assert cloud.cli("wait", "mixed").code == 100
    row = cloud.run("mixed")
    assert (row["units_succeeded"], row["units_failed"]) == (2, 1)
    units = {unit.index: unit for unit in cloud.client().units("mixed")}
    assert {index: unit.status for index, unit in units.items()} == {
        0: "succeeded", 1: "failed", 2: "cancelled", 3: "succeeded",
    }  # fmt: skip
    assert units[1].exit_code == 5


def test_a_gang_starts_together_and_knows_itself(cloud: Cloud):
    script = (
        'echo "$RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $CUMULO_GPUS_PER_NODE $(echo "$CUMULO_NODE_IPS" | wc -l)"'
    )
    run = cloud.launch(script, "-N", "2", "--gpus", "A100:3")
    assert cloud.cli("wait", run["id"]).code == 0
    ranks = {one["rank"]: one for one in cloud.run(run["id"])["instances"]}
    assert {one["node"].removeprefix("local/") for one in ranks.values()} == {"emulated-0", "emulated-1"}
    told = [cloud.ok("logs", run["id"], "--rank", str(rank)).split() for rank in (0, 1)]
    assert [words[0] for words in told] == ["0/2", "1/2"]
    assert told[0][1:] == told[1][1:]
    assert told[0][2:] == ["3", "2"]


def test_a_gang_lives_and_dies_together(cloud: Cloud):
    script = "if [ $RANK = 1 ]; then sleep 0.3; exit 6; fi; sleep 60"
    run = cloud.launch(script, "-N", "2", "--gpus", "A100")
    assert cloud.cli("wait", run["id"], timeout=40).code == 100
    row = cloud.run(run["id"])
    assert row["exit_code"] == 6
    assert "rank 1" in row["message"]
    assert {one["rank"]: one["reason"] for one in row["instances"]} == {0: "peer_ended", 1: "failed"}


def test_a_gang_is_all_or_nothing(cloud: Cloud):
    """One node is full: the other is not taken either, so a small run still fits there."""
    full = cloud.launch("sleep 60", "--gpus", "A100:4")
    gang = cloud.launch("true", "-N", "2", "--gpus", "A100:4", "--max-duration", "1h")
    assert cloud.run(gang["id"])["instances"] == []
    assert "A100" in cloud.ok("why", gang["id"])
    cloud.ok("cancel", full["id"], "--grace", "0")
    assert cloud.cli("wait", gang["id"]).code == 0


def test_after_waits_for_success(cloud: Cloud):
    first = cloud.launch("sleep 0.5; echo first", "--name", "first")
    second = cloud.launch("echo second", "--after", "first")
    why = json.loads(cloud.ok("why", second["id"], "--json"))
    assert "first" in json.dumps(why) or cloud.run(second["id"])["status"] != "queued"
    assert cloud.cli("wait", second["id"]).code == 0
    one, two = cloud.run(first["id"]), cloud.run(second["id"])
    assert two["started_at"] >= one["ended_at"]


def test_after_a_failure_it_never_starts(cloud: Cloud):
    wait_for_us = "until [ -e $CUMULO_OUTPUT_DIR/go ]; do sleep 0.05; done"
    doomed = cloud.launch(f"{wait_for_us}; exit 1", "--name", "doomed")
    second = cloud.launch("echo never", "--after", "doomed")
    third = cloud.launch("echo never", "--after", second["id"])
    eventually(lambda: cloud.run(doomed["id"])["status"] == "running")
    (outputs(cloud, doomed["id"]) / "go").touch()
    assert cloud.cli("wait", third["id"]).code == 100
    row = cloud.run(second["id"])
    assert (row["status"], row["reason"], row["instances"]) == ("failed", "dependency_failed", [])
    assert "doomed" in cloud.ok("why", second["id"])


def test_priority_goes_first(cloud: Cloud):
    holder = cloud.launch("sleep 60", "--gpus", "T4")
    low = cloud.launch("true", "--gpus", "T4", "--priority", "-1", "--name", "low")
    high = cloud.launch("true", "--gpus", "T4", "--priority", "7", "--name", "high")
    queue = json.loads(cloud.ok("queue", "--json"))
    assert [row["run"] for row in queue] == [high["id"], low["id"]]
    assert "high" in cloud.ok("why", "low")
    cloud.ok("cancel", holder["id"], "--grace", "0")
    assert cloud.cli("wait", low["id"], high["id"]).code == 0
    assert cloud.run(high["id"])["placed_at"] < cloud.run(low["id"])["placed_at"]


def test_a_dev_server_stops_and_starts(cloud: Cloud):
    said = cloud.cli("launch", "-y", "--dev", "--gpus", "T4", "--name", "desk", "--no-workdir")
    assert said.code == 0, said.err
    assert "cumulo ssh desk" in said.err
    assert cloud.ok("exec", "desk", "--", "bash", "-c", "echo kept > note; pwd")
    cloud.ok("stop", "--wait", "--grace", "1", "desk")
    assert cloud.run("desk")["status"] == "stopped"
    assert json.loads(cloud.ok("offers", "--json"))
    free = {row["gpu"]: row["free"] for row in json.loads(cloud.ok("offers", "--json"))}
    assert free["T4"] == 1, "a stopped server holds nothing"
    cloud.ok("start", "desk")
    eventually(lambda: cloud.run("desk")["status"] == "running")
    assert cloud.ok("exec", "desk", "--", "cat", "note") == "kept\n"
    assert cloud.run("desk")["attempts"] == 2
    cloud.ok("cancel", "--wait", "--grace", "0", "desk")
    assert cloud.run("desk")["status"] == "cancelled"


def test_only_a_dev_run_stops(cloud: Cloud):
    cloud.launch("sleep 60", "--name", "plain-task")
    done = cloud.cli("stop", "plain-task")
    assert done.code == 1
    assert "cancel it instead" in done.err
    cloud.ok("cancel", "plain-task", "--grace", "0")


def test_a_retry_begins_a_new_attempt_with_the_same_checkpoints(cloud: Cloud):
    (cloud.work / "again.yaml").write_text(
        "name: again\nretry: {on_events: [error], max_attempts: 3, backoff: 0.1}\n"
        "run: |\n  cd $CUMULO_CHECKPOINT_DIR\n  echo $CUMULO_ATTEMPT >> seen\n  cat seen | tr '\\n' ' '\n"
        "  [ $CUMULO_ATTEMPT = 3 ]\n"
    )
    assert cloud.cli("launch", "-y", "again.yaml").code == 0
    row = cloud.run("again")
    assert row["attempts"] == 3
    assert cloud.ok("logs", "again").split("[cumulo: attempt ") == ["1 \n", "2]\n1 2 \n", "3]\n1 2 3 "]
    assert [one["exit_code"] for one in sorted(row["instances"], key=lambda one: one["attempt"])] == [1, 1, 0]
    assert cloud.ok("logs", "again", "--attempt", "2").split() == ["1", "2"]
