"""Looking at the cloud: lists, details, JSON that programs may rely on, metrics, OpenAPI."""

import json
import re
import shutil
import subprocess

import pytest

from cumulo.domain.errors import CumuloError
from tests.system.cloud import CUMULO, Cloud, eventually

pytestmark = pytest.mark.system

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture(scope="module")
def work(cloud: Cloud) -> Cloud:
    """A cloud with something to see: one ended, one running, one waiting."""
    cloud.launch("echo hi; exit 3", "--name", "was")
    cloud.launch("sleep 100", "--name", "is", "--gpus", "T4")
    cloud.launch("true", "--name", "will-be", "--gpus", "T4")
    cloud.cli("wait", "was")
    eventually(lambda: cloud.run("is")["status"] == "running")
    return cloud


def test_status_json_has_what_programs_need(work: Cloud):
    rows = {row["name"]: row for row in json.loads(work.ok("status", "--json"))}
    assert {"was", "is", "will-be"} <= rows.keys()
    was = json.loads(work.ok("status", "was", "--json"))
    for row in (rows["was"], was):
        assert (row["kind"], row["status"], row["exit_code"], row["reason"], row["attempts"]) == (
            "task", "failed", 3, "failed", 1,
        )  # fmt: skip
        assert row["cost"] == 0
        for name in ("accepted_at", "placed_at", "started_at", "ended_at"):
            assert TIME.fullmatch(row[name]), (name, row[name])
        assert row["accepted_at"] <= row["placed_at"] <= row["started_at"] <= row["ended_at"]
    (instance,) = was["instances"]
    for name in ("accepted_at", "placed_at", "started_at", "ended_at"):
        assert TIME.fullmatch(instance[name])
    waiting = rows["will-be"]
    assert (waiting["status"], waiting["placed_at"], waiting["started_at"], waiting["exit_code"]) == (
        "queued", None, None, None,
    )  # fmt: skip


def test_lists_for_people(work: Cloud):
    said = work.ok("ps")
    assert re.search(r"is\s+task\s+running", said)
    assert re.search(r"will-be\s+task\s+queued", said)
    assert "emulated" in said
    detail = work.ok("status", "was")
    assert "exited with code 3" in detail
    assert "\x1b" not in said + detail, "no colours where there is no terminal"


def test_queue(work: Cloud):
    (row,) = json.loads(work.ok("queue", "--json"))
    assert (row["name"], row["place"]) == ("will-be", 1)
    assert "T4" in row["waiting_for"]
    assert "will-be" in work.ok("queue")


def test_offers_and_nodes(work: Cloud):
    offers = {row["gpu"]: row for row in json.loads(work.ok("offers", "--json")) if row["mode"] == "exclusive"}
    assert (offers["A100-80GB"]["total"], offers["A100-80GB"]["max_per_node"]) == (8, 4)
    assert (offers["T4"]["total"], offers["T4"]["free"], offers["T4"]["emulated"]) == (1, 0, True)
    assert "EMULATED" in work.ok("offers")
    nodes = json.loads(work.ok("nodes", "--json"))
    held = [holder for node in nodes for device in node["devices"] for holder in device["holders"]]
    assert [one["name"] for one in held] == ["is"]
    assert all(device["emulated"] for node in nodes for device in node["devices"])


def test_top_follows_what_processes_use(work: Cloud):
    telemetry = json.loads(work.ok("top", "--json"))
    assert [one["name"] for one in telemetry["instances"]] == ["is"]
    assert telemetry["instances"][0]["processes"] >= 1
    assert "is" in work.ok("top")


def test_an_emulated_device_shows_the_memory_of_its_processes(work: Cloud):
    run = work.launch("exec python3 -c 'x = bytearray(300 << 20); import time; time.sleep(60)'", "--gpus", "A100:1")
    (device,) = eventually(lambda: work.run(run["id"])["instances"])[0]["devices"]

    def used() -> int:
        devices = {row["uuid"]: row for row in json.loads(work.ok("top", "--json"))["devices"]}
        return int(devices[device]["memory_used_bytes"])

    eventually(lambda: used() > 300 << 20)
    work.ok("cancel", "--wait", "--grace", "0", run["id"])
    eventually(lambda: used() == 0)


def test_events_are_followed(work: Cloud):
    with work.attached("events", "-f", "--after", "0", "is") as attached:
        assert "run.accepted" in attached.line()
        assert "run.placed" in attached.line()


def test_events_tell_a_run_from_beginning_to_end(work: Cloud):
    rows = json.loads(work.ok("events", "was", "--json"))
    assert [row["kind"] for row in rows] == ["run.accepted", "run.placed", "run.running", "run.failed"]
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    assert all(TIME.fullmatch(row["at"]) for row in rows)


def test_the_newest_events(work: Cloud):
    rows = json.loads(work.ok("events", "--json", "-n", "1000"))
    assert [row["seq"] for row in json.loads(work.ok("events", "--json", "-n", "2"))] == [
        row["seq"] for row in rows[-2:]
    ]
    first = json.loads(work.ok("events", "--json", "-n", "2", "--after", "0"))
    assert [row["seq"] for row in first] == [row["seq"] for row in rows[:2]]
    assert [row["kind"] for row in json.loads(work.ok("events", "was", "--json", "-n", "1"))] == ["run.failed"]


def test_usage(work: Cloud):
    told = json.loads(work.ok("usage", "--json"))
    assert told["items"]
    assert all(float(row["cost_usd"]) == 0 for row in told["items"])


def test_doctor_and_storage(work: Cloud):
    done = work.cli("doctor", "--json")
    checks = {check["name"]: check["status"] for check in done.json}
    assert "fail" not in checks.values(), done.out
    assert done.code == 0
    assert any("emulated" in check["text"] for check in done.json)
    assert {row["what"] for row in json.loads(work.ok("df", "--json"))}
    assert work.cli("sweep", "--dry-run").code == 0


def test_completion(work: Cloud):
    assert "_cumulo_completion" in work.ok("completion", "bash")
    typed = {"_CUMULO_COMPLETE": "bash_complete", "COMP_WORDS": "cumulo logs wa", "COMP_CWORD": "2"}
    names = work.cli(env=typed).out
    assert "was" in names


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(work: Cloud, shell: str):
    assert "cumulo" in work.ok("completion", shell)


def test_no_color_and_colour(work: Cloud):
    with work.terminal("status") as terminal:
        assert terminal.end() == 0
        assert "\x1b[" in terminal.shown
    work.env["NO_COLOR"] = "1"
    try:
        with work.terminal("status") as terminal:
            assert terminal.end() == 0
            assert "\x1b[3" not in terminal.shown
    finally:
        del work.env["NO_COLOR"]


def test_watching(work: Cloud):
    with work.terminal("status", "-w") as terminal:
        terminal.expect("will-be")
        terminal.expect("will-be")  # and again
        terminal.type("\x03")
        assert terminal.end() in (0, 130)


def test_a_pipe_that_closes_is_no_error(work: Cloud):
    script = '"$0" events | head -1'
    done = subprocess.run(
        ["bash", "-c", script, CUMULO], capture_output=True, text=True, check=False, env=work.env, timeout=30
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_metrics_satisfy_promtool(work: Cloud):
    text = work.http("/metrics").text
    assert re.search(r"^cumulo_\w+", text, re.MULTILINE)
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_openapi_is_served(work: Cloud):
    api = work.http("/openapi.json").json
    assert api["openapi"].startswith("3.1")
    assert {"/v1/runs", "/v1/runs/{run}", "/v1/plans", "/v1/events", "/v1/nodes"} <= set(api["paths"])


def test_a_problem_is_a_problem(work: Cloud):
    answer = work.http("/v1/runs/nobody")
    assert answer.type.startswith("application/problem+json")
    assert (answer.status, answer.json["status"], answer.json["code"]) == (404, 404, "run_not_found")


def test_an_idempotency_key_launches_once(work: Cloud):
    client = work.client()
    run = {"name": "once", "run": "true"}
    first = client.submit(run, idempotency_key="the-same")
    assert client.submit(run, idempotency_key="the-same").id == first.id
    with pytest.raises(CumuloError) as caught:
        client.submit({"name": "twice", "run": "true"}, idempotency_key="the-same")
    assert caught.value.code == "idempotency_mismatch"


def test_pages(work: Cloud):
    client = work.client()
    ids = {client.submit({"name": f"page-{i}", "run": "true"}).id for i in range(7)}
    for run in ids:
        client.wait(run)
    found, cursor = [], None
    while True:
        page = client.transport.json("GET", "/v1/runs", query={"limit": 3, "cursor": cursor})
        found += [row["id"] for row in page["items"]]
        assert len(page["items"]) <= 3
        if (cursor := page["next"]) is None:
            break
    assert ids <= set(found)
    assert len(found) == len(set(found))


def test_typos_in_commands_are_answered(work: Cloud):
    done = work.cli("statsu")
    assert done.code == 2
    assert "did you mean 'status'?" in done.err
    assert work.cli("launch", "--gpsu", "1", "--", "true").code == 2
