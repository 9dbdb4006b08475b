"""What commands print and exit with, as a process, against a scripted server."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cumulo.wire.api import KeptDays
from tests.cli.cumulo import Cumulo
from tests.client.stub import Reply, Stub, event, log, problem

ID = "1ngtq6n9epnh"


def run(**given: Any) -> dict[str, Any]:
    return {
        "id": ID, "name": "train", "kind": "task", "status": "running", "ask": "A100:2", "account": "ada",
        "project": "default", "units": 1, "placed_on": "emulated-0: 2x A100-80GB (emulated)", "cost_usd": "1.27",
        "cost_nano": 1270000000, "accepted_at": "2026-11-30T10:00:00.000001Z", **given,
    }  # fmt: skip


def plan(**given: Any) -> dict[str, Any]:
    choice = {"region": "local", "node": "n0", "devices": "2x A100-80GB", "price_usd_h": 0.0, "rental_usd_h": 3.6}
    return {
        "name": "train", "kind": "task", "ask": "A100:2", "units": 1, "nodes": 1, "satisfiable": True,
        "starts_now": True, "choices": [choice], "problems": [], "suggestions": [], "warnings": [], **given,
    }  # fmt: skip


def end(status: str, exit_code: int | None = None) -> bytes:
    return event("end", {"status": status, "exit_code": exit_code, "reason": status})


def launches(stub: Stub, *, status: str = "succeeded", exit_code: int | None = 0, **ended: Any) -> None:
    """Lays out a launch that is accepted and ends so."""
    stub.on("POST", "/v1/plans", Reply(plan()))
    stub.on("POST", "/v1/runs", Reply(run(status="queued"), 201))
    stub.on("GET", f"/v1/runs/{ID}/logs", Reply(chunks=[log("hello\n", "1"), end(status, exit_code)]))
    stub.on("GET", f"/v1/runs/{ID}", Reply(run(status=status, exit_code=exit_code, **ended)))


def submitted(stub: Stub) -> dict[str, Any]:
    [request] = stub.seen("POST", "/v1/runs")
    body: dict[str, Any] = request.json["run"]
    return body


def test_the_version_needs_no_server(tmp_path: Path):
    assert re.fullmatch(r"cumulo \d+\.\d+\.\d+\n", Cumulo(tmp_path).ok("--version"))


def test_light_commands_import_nothing_heavy(cumulo: Cumulo, stub: Stub):
    """The budget of CPU is kept by what is not imported; the figures themselves are the benchmark's."""
    stub.on("GET", "/v1/runs", Reply({"items": [run()], "next": None}))
    code = (
        "import sys; from cumulo.cli.main import run; code = run(['status']);"
        "heavy = {'pydantic', 'yaml', 'rich', 'websockets', 'sqlalchemy', 'fastapi', 'cumulo.server', 'asyncio'};"
        "print(code, sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([*cumulo.argv()[:1], "-c", code], env=cumulo.env, capture_output=True, check=True)
    assert done.stderr.decode().strip() == "0 []"


def test_help_lists_every_command(tmp_path: Path):
    from cumulo.cli.main import COMMANDS

    text = Cumulo(tmp_path).ok("--help")
    for name, entry in COMMANDS.items():
        assert re.search(rf"^  {name}\s+{re.escape(entry.help)}$", text, re.MULTILINE)


def test_no_server_at_all(tmp_path: Path):
    done = Cumulo(tmp_path)("status")
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: no server is running here")
    assert b"hint: start one with `cumulo up -d`" in done.stderr


def test_a_command_that_does_not_exist(cumulo: Cumulo):
    done = cumulo("statsu")
    assert done.returncode == 2
    assert b"did you mean 'status'?" in done.stderr


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("unauthenticated", 401, 3), ("forbidden", 403, 3), ("run_not_found", 404, 102), ("no_capacity", 409, 4),
        ("quota_exceeded", 409, 4), ("invalid_request", 422, 2), ("internal", 500, 1),
    ],
)  # fmt: skip
def test_failures_have_their_exit_codes_and_two_lines(
    cumulo: Cumulo, stub: Stub, code: str, status: int, exit_code: int
):
    stub.on("GET", "/v1/runs/x", problem(code, status, "it is\nlike \x1b[31mthis", hint="do that"))
    done = cumulo("status", "x")
    assert done.returncode == exit_code
    assert done.stderr.decode() == "error: it is like ?[31mthis\nhint: do that\n"


def test_status_is_a_table_with_running_ones_first(cumulo: Cumulo, stub: Stub):
    rows = [
        run(id="b", name="waits", status="queued"),
        run(name="evil\x1b[2J", progress={"done": 3, "total": 12, "unit": "epoch", "fraction": 0.25}),
        run(id="c", name="array", units=500, units_succeeded=12, units_active=16, units_failed=1),
    ]
    stub.on("GET", "/v1/runs", Reply({"items": rows, "next": None}))
    head, *lines = cumulo.ok("status").splitlines()
    assert head.split() == ["ID", "NAME", "KIND", "STATUS", "ASK", "WHERE", "TIME", "PROGRESS", "COST"]
    assert [line.split()[1] for line in lines] == ["evil?[2J", "array", "waits"]
    assert "3/12 epoch 25%" in lines[0]
    assert "12/500 done, 16 running, 1 failed" in lines[1]
    assert "$1.27" in lines[0]
    assert stub.requests[0].query["recent_s"] == "86400.0"
    assert "\x1b" not in "".join(lines)


def test_status_all_asks_for_everything(cumulo: Cumulo, stub: Stub):
    stub.on("GET", "/v1/runs", Reply({"items": [], "next": None}))
    assert "No runs yet" in cumulo.ok("status", "--all")
    assert set(stub.requests[0].query) == {"limit"}


def test_status_as_json(cumulo: Cumulo, stub: Stub):
    stub.on("GET", "/v1/runs", Reply({"items": [run()], "next": None}))
    stub.on("GET", "/v1/runs/train", Reply(run(instances=[{"id": f"{ID}-0-1-0", "devices": ["GPU-1"]}])))
    [listed] = json.loads(cumulo.ok("status", "--json"))
    one = json.loads(cumulo.ok("status", "train", "--json"))
    for found in (listed, one):
        wanted = {"id", "name", "kind", "status", "exit_code", "reason", "attempts", "accepted_at", "placed_at"}
        assert wanted | {"started_at", "ended_at", "instances", "cost"} <= set(found)
        assert found["accepted_at"] == "2026-11-30T10:00:00.000001Z"
        assert found["cost"] == 1.27
    assert one["instances"][0]["devices"] == ["GPU-1"]


@pytest.mark.parametrize(
    ("status", "code"), [("succeeded", 0), ("failed", 100), ("lost", 101), ("cancelled", 103), ("stopped", None)]
)
def test_wait_tells_how_it_ended(cumulo: Cumulo, stub: Stub, status: str, code: int | None):
    stub.on("GET", "/v1/runs/train", Reply(run(status=status)))
    stub.on("GET", f"/v1/runs/{ID}", Reply(run(status=status)))
    if code is None:
        assert cumulo("wait", "train", "--timeout", "0.1s").returncode == 1
    else:
        assert cumulo("wait", "train").returncode == code


def test_wait_for_what_is_not_there(cumulo: Cumulo, stub: Stub):
    stub.on("GET", "/v1/runs/x", problem("run_not_found", 404, "there is no run 'x'"))
    assert cumulo("wait", "x").returncode == 102


def test_launch_without_a_terminal_needs_yes(cumulo: Cumulo, stub: Stub):
    done = cumulo("launch", "--", "true")
    assert done.returncode == 2
    assert b"give -y" in done.stderr
    assert stub.requests == []


@pytest.mark.parametrize(
    ("status", "exit_code", "more", "expected"),
    [
        ("succeeded", 0, {}, 0),
        ("failed", 7, {}, 7),
        ("failed", None, {"instances": [{"id": "i", "signal": 9}]}, 137),
        ("failed", None, {}, 100),
        ("lost", None, {}, 101),
        ("cancelled", None, {}, 103),
    ],
)
def test_an_attached_launch_passes_the_runs_own_code_through(
    cumulo: Cumulo, stub: Stub, status: str, exit_code: int | None, more: dict[str, Any], expected: int
):
    launches(stub, status=status, exit_code=exit_code, **more)
    done = cumulo("launch", "-y", "--no-workdir", "--", "true")
    assert (done.returncode, done.stdout) == (expected, b"hello\n")
    assert f"train {status}".encode() in done.stderr


def test_the_plan_is_shown(cumulo: Cumulo, stub: Stub):
    launches(stub)
    text = cumulo("launch", "-y", "--no-workdir", "--gpus", "A100:2", "--", "python", "train.py").stderr.decode()
    assert "2x A100-80GB on n0 in local" in text
    assert "$0.00/h, your own hardware (the same rents for about $3.60/h)" in text
    assert re.search(r"start +now", text)


def test_quoting_after_the_dashes_is_exact(cumulo: Cumulo, stub: Stub):
    launches(stub)
    cumulo.ok("launch", "-y", "-d", "--no-workdir", "--", "python", "a b.py", "--env", "$HOME", "--", "it's")
    sent = submitted(stub)
    assert sent["run"] == """python 'a b.py' --env '$HOME' -- 'it'"'"'s'"""
    assert sent["name"] == "a-b"


def test_flags_win_over_the_file(cumulo: Cumulo, stub: Stub, tmp_path: Path):
    launches(stub)
    (tmp_path / "task.yaml").write_text(
        "commands: python train.py\nnodes: 3\nenv: {A: 1, B: 2}\nresources: {accelerators: H100:8, cpus: 4}\nafter: x\n"
    )
    cumulo.ok(
        "launch", "task.yaml", "-y", "-d", "--gpus", "A100:2", "-e", "B=3", "--nodes", "1", "--after", "y",
        "--max-duration", "2h", "--mount", "~", "--priority", "5", "--array", "0-3%2",
    )  # fmt: skip
    assert submitted(stub) == {
        "run": "python train.py", "num_nodes": 1, "envs": {"A": 1, "B": "3"}, "resources": {"cpus": 4}, "gpu": "A100:2",
        "after": ["x", "y"], "max_duration": "2h", "mounts": ["~"], "priority": 5, "array": "0-3%2", "name": "task",
    }  # fmt: skip


def test_verdicts_point_at_the_line_of_the_file(cumulo: Cumulo, stub: Stub, tmp_path: Path):
    stub.on("POST", "/v1/plans", problem("invalid_run_file", 422, "gpux: is not known", path=["gpux"]))
    (tmp_path / "task.yaml").write_text("run: true\n\ngpux: 1\n")
    done = cumulo("launch", "task.yaml", "-y")
    assert done.returncode == 2
    assert done.stderr.decode() == "error: task.yaml:3: gpux: is not known\n"


def test_a_file_that_is_no_yaml(cumulo: Cumulo, stub: Stub, tmp_path: Path):
    (tmp_path / "task.yaml").write_text("run: [\n")
    done = cumulo("launch", "task.yaml", "-y")
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: task.yaml:")
    assert stub.requests == []


def test_a_file_that_is_not_there(cumulo: Cumulo):
    assert b"task.yaml can't be read" in cumulo("launch", "task.yaml", "-y").stderr
    for words in (["python"], ["python", "train.py"]):
        assert b"a command goes after --" in cumulo("launch", *words, "-y").stderr


def test_what_no_node_could_take_is_refused_with_what_would_do(cumulo: Cumulo, stub: Stub):
    refused = plan(satisfiable=False, choices=[], problems=["1 node has 4, 8 asked"], suggestions=["ask for 4"])
    stub.on("POST", "/v1/plans", Reply(refused))
    stub.on("POST", "/v1/runs", Reply(run(status="queued"), 201))
    done = cumulo("launch", "-y", "--no-workdir", "--gpus", "8", "--", "true")
    assert done.returncode == 4
    assert b"1 node has 4, 8 asked" in done.stderr
    assert b"ask for 4" in done.stderr
    assert cumulo("launch", "-y", "-d", "--queue", "--no-workdir", "--gpus", "8", "--", "true").returncode == 0


def test_a_detached_launch_as_json_is_the_run(cumulo: Cumulo, stub: Stub):
    launches(stub)
    assert json.loads(cumulo.ok("launch", "-y", "-d", "--json", "--no-workdir", "--", "true"))["id"] == ID


def test_an_attached_launch_as_json_is_the_run_as_it_ended(cumulo: Cumulo, stub: Stub):
    launches(stub)
    done = cumulo("launch", "-y", "--json", "--no-workdir", "--", "true")
    assert json.loads(done.stdout)["status"] == "succeeded"
    assert b"hello" in done.stderr


def test_logs_are_bytes_as_they_came(cumulo: Cumulo, stub: Stub):
    text = "\x1b[32mgreen\x1b[0m ünïcode\r50%\rno newline"
    stub.on("GET", "/v1/runs/train", Reply(run()))
    stub.on("GET", f"/v1/runs/{ID}/logs", Reply(chunks=[log(text, "1")]))
    assert cumulo("logs", "train", "--tail", "3", "--since", "10m").stdout == text.encode()
    assert stub.requests[-1].query == {"tail": "3", "since": "600.0"}


def test_logs_of_several_carry_whose_they_are_on_whole_lines(cumulo: Cumulo, stub: Stub):
    stub.on("GET", "/v1/runs/train", Reply(run(ask="2 nodes x A100:2")))
    pieces = [
        log("he", "1", source="rank 0"), log("other\nhalf", "2", source="rank 1", rank=1), log("llo\n", "3"),
        end("succeeded"),
    ]  # fmt: skip
    stub.on("GET", f"/v1/runs/{ID}/logs", Reply(chunks=pieces))
    assert cumulo.ok("logs", "-f", "train") == "[rank 1] other\n[rank 0] hello\n[rank 1] half\n"


def test_logs_as_json_are_one_object_a_line(cumulo: Cumulo, stub: Stub):
    stub.on("GET", "/v1/runs/train", Reply(run()))
    stub.on("GET", f"/v1/runs/{ID}/logs", Reply(chunks=[log("a\n", "1"), log("b\n", "2")]))
    assert [json.loads(line)["text"] for line in cumulo.ok("logs", "train", "--json").splitlines()] == ["a\n", "b\n"]


def test_a_reader_that_leaves_is_not_complained_about(cumulo: Cumulo, stub: Stub):
    stub.on("GET", "/v1/runs/train", Reply(run()))
    stub.on("GET", f"/v1/runs/{ID}/logs", Reply(chunks=[log("x" * 60_000 + "\n", str(n)) for n in range(50)]))
    process = subprocess.Popen(
        cumulo.argv("logs", "train"), env=cumulo.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert process.stderr
    with process.stdout, process.stderr:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.wait(20) == 1


def test_why_says_the_sentence_first_then_what_to_type(cumulo: Cumulo, stub: Stub):
    told = {
        "run": ID, "status": "queued", "summary": "6 of 8 A100 held, 2 free, 8 asked",
        "counts": [{"constraint": "gpus", "nodes": 3, "text": "3 of 13 nodes: others hold the GPUs"}],
        "nodes": [{"node": f"n{place}", "fits": False, "text": "2 free"} for place in range(13)],
        "ahead": [{"run": "b", "name": "other", "text": "asks for 4"}],
        "expected_start": {"at": None, "text": "can't tell"},
        "suggestion": {"text": "ask for 2", "change": {"gpu": "A100:2"}}, "ended": None,
    }  # fmt: skip
    stub.on("GET", "/v1/runs/train/why", Reply(told))
    lines = cumulo.ok("why", "train").splitlines()
    assert lines[0] == "6 of 8 A100 held, 2 free, 8 asked"
    assert "  3 of 13 nodes: others hold the GPUs" in lines
    assert "  n0: 2 free" in lines
    assert "  and 1 more (--json shows all)" in lines
    assert "  other (b): asks for 4" in lines
    assert lines[-2:] == ["Would start it now: ask for 2", "  cumulo launch --gpus A100:2 …"]


def test_cancel_goes_on_after_an_error(cumulo: Cumulo, stub: Stub):
    stub.on("PATCH", "/v1/runs/a", problem("conflict", 409, "a has ended: succeeded"))
    stub.on("PATCH", "/v1/runs/b", Reply(run(name="b", status="stopping")))
    done = cumulo("cancel", "a", "b", "--grace", "5s")
    assert done.returncode == 1
    assert done.stdout.decode() == f"cancelling b ({ID})\n"
    assert stub.requests[-1].json == {"wanted": "cancelled", "grace_s": 5.0}


def test_stop_and_start(cumulo: Cumulo, stub: Stub):
    stub.on("PATCH", "/v1/runs/box", Reply(run(name="box")))
    cumulo.ok("stop", "box")
    cumulo.ok("start", "box")
    assert [one.json for one in stub.requests] == [{"wanted": "stopped"}, {"wanted": "running"}]


def test_queue_nodes_offers_top_usage_df_events_and_doctor_print_tables(cumulo: Cumulo, stub: Stub):
    holder = {"run": ID, "name": "train", "instance": "i", "account": "ada", "mode": "exclusive"}
    device = {
        "index": 0,
        "uuid": "GPU-1",
        "model": "A100-80GB",
        "memory_gb": 80.0,
        "emulated": True,
        "holders": [holder],
    }
    node = {
        "id": "local/n0", "region": "local", "name": "n0", "state": "ready", "cpus": 8, "cpus_free": 6.5,
        "memory_gb": 64, "memory_free_gb": 60, "devices": [device, {**device, "index": 1, "holders": []}],
    }  # fmt: skip
    offer = {"region": "local", "gpu": "A100-80GB", "emulated": True, "rental_usd_h": 1.8, "total": 2, "free": 1}
    row = {
        "place": 1,
        "run": ID,
        "name": "w",
        "ask": "8",
        "waiting_for": "8 GPUs",
        "accepted_at": "2026-11-30T10:00:00Z",
    }
    reading = {"node": "n0", "index": 0, "model": "A100-80GB", "utilisation": 0.5, "memory_used_bytes": 1 << 30,
               "memory_bytes": 80 << 30, "holders": [holder]}  # fmt: skip
    stub.on("GET", "/v1/queue", Reply({"items": [row], "next": None}))
    stub.on("GET", "/v1/nodes", Reply({"items": [node]}))
    stub.on("GET", "/v1/nodes/n0", Reply(node))
    stub.on("GET", "/v1/offers", Reply({"items": [offer]}))
    stub.on("GET", "/v1/telemetry", Reply({"devices": [reading], "instances": []}))
    stub.on(
        "GET", "/v1/usage", Reply({"items": [{"key": "train", "gpu_seconds": 3600}], "total": {"gpu_seconds": 3600}})
    )
    stub.on("GET", "/v1/storage", Reply({"items": [{"what": "logs", "bytes": 34000, "count": 2, "kept_days": 30}]}))
    stub.on("GET", "/v1/events", Reply({"items": [{"seq": 1, "kind": "run.accepted", "run": ID}], "next": None}))
    checks = [{"name": "disk", "status": "fail", "text": "full", "hint": "make room"}]
    stub.on("GET", "/v1/doctor", Reply({"checks": checks}))
    assert "8 GPUs" in cumulo.ok("queue")
    assert "1 of 2 A100-80GB (emulated)" in cumulo.ok("nodes")
    assert f"train ({ID}) of ada" in cumulo.ok("nodes", "n0")
    assert re.search(r"A100-80GB .*\$1.80 +1 of 2 .*EMULATED", cumulo.ok("offers", "A100"))
    assert re.search(r"50% +1GB of 80GB", cumulo.ok("top"))
    assert re.search(r"total +1.000", cumulo.ok("usage"))
    assert re.search(r"logs +34.0 kB +2 +30 days", cumulo.ok("df"))
    assert "run.accepted" in cumulo.ok("events")
    done = cumulo("doctor")
    assert (done.returncode, b"make room" in done.stdout) == (1, True)
    for words in ("queue", "nodes", "offers", "top", "usage", "df", "events"):
        json.loads(cumulo.ok(words, "--json"))


def test_df_keep_sets_how_long_things_are_kept_and_shows_it(cumulo: Cumulo, stub: Stub):
    rows = [{"what": "logs", "bytes": 1, "count": 1, "kept_days": 1}, {"what": "outputs", "bytes": 1, "count": 1}]
    stub.on("PATCH", "/v1/storage", Reply({"items": rows}))
    text = cumulo.ok("df", "--keep", "logs=1d12h", "--keep", "outputs=forever")
    assert stub.requests[-1].json == {"kept_days": {"logs": 1.5, "outputs": None}}
    assert re.search(r"^logs .* 1 day\b", text, re.MULTILINE)
    assert re.search(r"^outputs .* forever\b", text, re.MULTILINE)
    assert json.loads(cumulo.ok("df", "--json", "--keep", "logs=1d"))[0]["kept_days"] == 1
    assert [one.method for one in stub.requests] == ["PATCH", "PATCH"]


@pytest.mark.parametrize("given", ["logs", "logs=", "=14d", "logs=14", "logs=1.5", "logs=0d", "logs=-1d", "logs=soon"])
def test_df_keep_refuses_what_is_no_time_before_anything_is_sent(cumulo: Cumulo, stub: Stub, given: str):
    done = cumulo("df", "--keep", given)
    assert (done.returncode, stub.requests) == (2, [])
    assert b"--keep" in done.stderr


def test_df_says_what_can_be_kept(cumulo: Cumulo):
    told = re.search(r"Keep WHAT \(([^)]*)\)", " ".join(cumulo.ok("df", "--help").split()))
    assert told
    assert set(told[1].split(", ")) == set(KeptDays.model_fields)


def test_login_checks_the_token_and_keeps_it(stub: Stub, tmp_path: Path):
    stub.on("GET", "/v1/health", Reply({"status": "ok"}))
    stub.on("GET", "/v1/me", Reply({"account": "ada"}))
    stub.on("GET", "/v1/runs", Reply({"items": [], "next": None}))
    cumulo = Cumulo(tmp_path)
    assert "as ada" in cumulo.ok("login", stub.url, "--name", "box", stdin=b"cumulo_1_s\n")
    cumulo.ok("status")
    assert stub.requests[-1].headers["authorization"] == "Bearer cumulo_1_s"
    assert json.loads(cumulo.ok("context", "list", "--json")) == [{"name": "box", "url": stub.url, "current": True}]
    cumulo.ok("context", "use", "local")
    assert cumulo("status").returncode == 1
    assert cumulo("context", "use", "nope").returncode == 102


def test_a_token_that_is_wrong_is_not_kept(stub: Stub, tmp_path: Path):
    stub.on("GET", "/v1/health", Reply({"status": "ok"}))
    stub.on("GET", "/v1/me", problem("unauthenticated", 401, "the token is not valid"))
    cumulo = Cumulo(tmp_path)
    assert cumulo("login", stub.url, stdin=b"cumulo_1_wrong\n").returncode == 3
    assert not (tmp_path / "config").exists()


def test_a_new_token_alone_is_on_stdout(cumulo: Cumulo, stub: Stub):
    stub.on("POST", "/v1/tokens", Reply({"id": "1", "label": "laptop", "token": "cumulo_1_s"}, 201))
    assert cumulo.ok("token", "create", "laptop", "--expires", "30d") == "cumulo_1_s\n"
    assert stub.requests[0].json == {"label": "laptop", "expires_in_s": 2592000.0}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(cumulo: Cumulo, shell: str):
    assert "_CUMULO_COMPLETE" in cumulo.ok("completion", shell)


def test_completion_of_run_names(cumulo: Cumulo, stub: Stub):
    stub.on("GET", "/v1/names", Reply({"items": ["train", "trial"]}))
    cumulo.env |= {"_CUMULO_COMPLETE": "bash_complete", "COMP_WORDS": "cumulo logs tr", "COMP_CWORD": "2"}
    assert cumulo.ok().splitlines() == ["plain,train", "plain,trial"]
    assert stub.requests[0].query == {"beginning": "tr"}


def test_internal_faults_are_a_line_and_a_traceback_on_request(cumulo: Cumulo, stub: Stub):
    stub.on("GET", "/v1/runs/x", Reply([1]))
    done = cumulo("status", "x")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    cumulo.env["CUMULO_DEBUG"] = "1"
    assert b"Traceback" in cumulo("status", "x").stderr
