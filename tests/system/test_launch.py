"""Launching, as a person meets it: the plan, the question, staying with a run, its own exit code."""

import json
import signal

import pytest

from tests.system.cloud import Cloud, eventually

pytestmark = pytest.mark.system

BASH = ("--no-workdir", "--", "bash", "-c")


def test_stays_attached_and_shows_the_log(cloud: Cloud):
    done = cloud.cli("launch", "-y", "--gpus", "A100:2", *BASH, "echo one; sleep 0.2; echo two")
    assert done.code == 0
    assert done.out == "one\ntwo\n"  # the log alone, so that it can be piped
    assert "2x A100-80GB (emulated)" in done.err
    assert "succeeded after" in done.err
    assert "cost $0.00" in done.err


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("no-such", 127)]
)
def test_passes_the_exit_code_through(cloud: Cloud, script: str, code: int):
    assert cloud.cli("launch", "-y", *BASH, script).code == code


def test_a_cancelled_run_is_103_to_who_is_attached(cloud: Cloud):
    with cloud.attached("launch", "-y", "--name", "to-cancel", *BASH, "echo there; sleep 60") as attached:
        assert attached.line() == "there\n"
        cloud.ok("cancel", "to-cancel")
        done = attached.end()
    assert done.code == 103, done.err
    assert "cancelled" in done.err
    assert done.out == ""


def test_detached_returns_at_once(cloud: Cloud):
    said = cloud.ok("launch", "-y", "-d", "--name", "later", *BASH, "sleep 0.3; exit 3")
    assert "cumulo logs -f" in said
    assert cloud.cli("wait", "later").code == 100
    assert cloud.run("later")["exit_code"] == 3


def test_json_gives_the_run_as_it_ended_and_the_log_on_stderr(cloud: Cloud):
    done = cloud.cli("launch", "-y", "--json", *BASH, "echo said; exit 4")
    assert done.code == 4
    assert done.json["status"] == "failed"
    assert done.json["exit_code"] == 4
    assert done.err.endswith("said\n")


def test_without_a_terminal_it_wants_yes(cloud: Cloud):
    done = cloud.cli("launch", "--name", "unasked", *BASH, "true")
    assert done.code == 2
    assert "give -y" in done.err
    assert cloud.cli("status", "unasked").code == 102


def test_the_plan_is_shown_and_no_means_no(cloud: Cloud):
    with cloud.terminal("launch", "--gpus", "T4", "--name", "refused", *BASH, "true") as terminal:
        terminal.expect("1x T4 (emulated)")
        terminal.expect("Launch?")
        terminal.type("n\n")
        assert terminal.end() == 130
    assert cloud.cli("status", "refused").code == 102


def test_yes_launches_and_a_bar_is_drawn(cloud: Cloud):
    line = '{\\"done\\": $i, \\"total\\": 4, \\"unit\\": \\"epoch\\"}'
    script = f'for i in 1 2 3 4; do echo "{line}" >> $CUMULO_PROGRESS; sleep 0.4; done'
    with cloud.terminal("launch", "--name", "agreed", *BASH, script) as terminal:
        terminal.expect("Launch?")
        terminal.type("\n")
        terminal.expect("█")
        terminal.expect("epoch")
        assert terminal.end() == 0
    progress = cloud.run("agreed")["progress"]
    assert (progress["done"], progress["total"], progress["unit"]) == (4, 4, "epoch")


def test_ctrl_c_leaves_the_run_running(cloud: Cloud):
    with cloud.terminal("launch", "-y", "--name", "left", *BASH, "echo arri''ved; sleep 2; echo still") as terminal:
        terminal.expect("arrived")  # and not in the plan, which shows the command
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "goes on" in terminal.shown
    assert cloud.cli("wait", "left").code == 0
    assert cloud.ok("logs", "left") == "arrived\nstill\n"


def test_sigint_without_a_terminal_too(cloud: Cloud):
    with cloud.attached("launch", "-y", "--name", "left-too", *BASH, "echo here; sleep 1") as attached:
        assert attached.line() == "here\n"
        attached.process.send_signal(signal.SIGINT)
        done = attached.end()
    assert done.code == 130
    assert "cumulo logs -f" in done.err
    assert cloud.cli("wait", "left-too").code == 0


def test_progress_by_a_pattern_over_the_log(cloud: Cloud):
    script = 'for i in 1 2 3; do echo "step $i/3"; sleep 0.3; done'
    (cloud.work / "steps.yaml").write_text(f"name: steps\nprogress: 'step (\\d+)/(\\d+)'\nrun: |\n  {script}\n")
    done = cloud.cli("launch", "-y", "steps.yaml")
    assert done.code == 0, done.err
    progress = cloud.run("steps")["progress"]
    assert (progress["done"], progress["total"], progress["fraction"]) == (3, 3, 1.0)


def test_what_a_run_sees(cloud: Cloud):
    done = cloud.cli("launch", "-y", "--gpus", "A100:2", "-e", "MINE=a b", *BASH, "env")
    seen = dict(line.split("=", 1) for line in done.out.splitlines() if "=" in line)
    run = json.loads(cloud.ok("status", seen["CUMULO_RUN_ID"], "--json"))
    assert seen["CUDA_VISIBLE_DEVICES"].split(",") == run["instances"][0]["devices"]
    assert len(run["instances"][0]["devices"]) == 2
    assert seen["MINE"] == "a b"
    assert seen["CUMULO_ATTEMPT"] == "1"
    assert (seen["CUMULO_RANK"], seen["CUMULO_NUM_NODES"], seen["CUMULO_GPUS_PER_NODE"]) == ("0", "1", "2")
    assert (seen["RANK"], seen["WORLD_SIZE"]) == ("0", "1")
    assert not {"CUMULO_HOME", "CUMULO_TOKEN", "CUMULO_DATABASE", "CUMULO_SOCKET"} & seen.keys()


def test_home_tmp_and_outputs_are_writable(cloud: Cloud):
    folders = '"$HOME" /tmp "$TMPDIR" "$CUMULO_OUTPUT_DIR" "$CUMULO_CHECKPOINT_DIR" .'
    script = f'for d in {folders}; do touch "$d/x" || exit 9; done'
    assert cloud.cli("launch", "-y", *BASH, script).code == 0


def test_a_run_without_gpus_sees_none(cloud: Cloud):
    done = cloud.cli("launch", "-y", *BASH, 'echo "[$CUDA_VISIBLE_DEVICES]"')
    assert done.out == "[]\n"
    run = json.loads(cloud.ok("status", "--json"))[0]
    instance = cloud.run(run["id"])["instances"][0]
    assert (instance["cpus"], instance["memory_gb"]) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("ask", "model", "count"),
    [
        ("A100", "A100-80GB", 1), ("A100-80GB:4", "A100-80GB", 4), ("2:A100", "A100-80GB", 2), ("4", "A100-80GB", 4),
        ("24GB..", "A100-80GB", 1), ("16GB", "T4", 1), ("T4,A100:40GB..:2..3", "A100-80GB", 3), ("H100,T4", "T4", 1),
    ],
)  # fmt: skip
def test_asks(cloud: Cloud, ask: str, model: str, count: int):
    run = cloud.launch("true", "--gpus", ask)
    assert cloud.cli("wait", run["id"]).code == 0
    (instance,) = cloud.run(run["id"])["instances"]
    assert (instance["device_model"], len(instance["devices"])) == (model, count)


def test_launch_with_no_server_starts_one(new_cloud):
    cloud = new_cloud()
    done = cloud.cli("launch", "-y", *BASH, "echo hello")
    assert (done.code, done.out) == (0, "hello\n")
    assert "starting a cloud on this machine" in done.err
    cloud.adopt()
    assert "nothing was running" in cloud.ok("down")
    assert cloud.cli("status").code == 1


def test_up_and_down_say_what_goes_on(new_cloud):
    cloud = new_cloud()
    said = cloud.ok("up", "-d", "--port", "0", "--emulate", "T4:2")
    assert "2x T4 (EMULATED" in said
    cloud.adopt()
    cloud.launch("sleep 4; exit 6", "--name", "survivor")
    eventually(lambda: cloud.run("survivor")["status"] == "running")
    said = cloud.ok("down")
    assert "1 run goes on" in said
    assert "survivor" in said
    cloud.ok("up", "-d", "--port", "0", "--emulate", "T4:2")
    cloud.adopt()
    assert cloud.cli("wait", "survivor").code == 100
    assert cloud.run("survivor")["exit_code"] == 6
    cloud.launch("sleep 100", "--name", "cut-short")
    assert "nothing was running" in cloud.ok("down", "--cancel")


def test_up_in_the_foreground_ends_with_ctrl_c(new_cloud):
    cloud = new_cloud()
    with cloud.terminal("up", "--port", "0", "--emulate", "T4:1") as terminal:
        terminal.expect("Ctrl-C (runs go on)")
        cloud.adopt()
        cloud.launch("sleep 0.5", "--name", "brief")
        terminal.type("\x03")
        assert terminal.end() == 0
        assert "goes on" in terminal.shown or "nothing was running" in terminal.shown
