"""Inside a run: its log, commands and terminals beside it, files in both directions."""

import json
import os
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.system.cloud import Cloud, eventually

pytestmark = pytest.mark.system


def test_the_log_is_followed_to_its_last_byte(cloud: Cloud):
    cloud.launch('for i in 1 2 3; do echo "line $i"; sleep 0.3; done; printf "no newline"', "--name", "talker")
    assert cloud.ok("logs", "-f", "talker") == "line 1\nline 2\nline 3\nno newline"


def test_tail_and_since(cloud: Cloud):
    """While somebody follows; otherwise `since` is as exact as the log is fetched, every other second."""
    script = 'for i in 1 2 3; do echo "old $i"; done; sleep 2.6; echo new'
    assert cloud.cli("launch", "-y", "--no-workdir", "--name", "ages", "--", "bash", "-c", script).code == 0
    assert cloud.ok("logs", "ages", "--tail", "2") == "old 3\nnew\n"
    assert cloud.ok("logs", "ages", "--tail", "0") == ""
    before = datetime.fromisoformat(cloud.run("ages")["ended_at"]) - timedelta(seconds=0.5)
    assert cloud.ok("logs", "ages", "--since", before.isoformat()) == "new\n"
    assert cloud.ok("logs", "ages", "--since", "1h") == "old 1\nold 2\nold 3\nnew\n"


def test_bytes_that_are_no_text(cloud: Cloud):
    run = cloud.launch(r"printf 'a\xff\xfeb\n'")
    cloud.cli("wait", run["id"])
    assert cloud.ok("logs", run["id"]) == "a��b\n"
    raw = b"".join(cloud.client().raw_log(run["id"]))
    assert raw == b"a\xff\xfeb\n"


def test_a_line_of_five_megabytes(cloud: Cloud):
    done = cloud.cli(
        "launch", "-y", "--no-workdir", "--name", "long-line", "--",
        "bash", "-c", "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo after",
    )  # fmt: skip
    assert done.code == 0
    line, after, _ = done.out.split("\n")
    assert (len(line), set(line), after) == (5_000_000, {"x"}, "after")
    assert cloud.ok("logs", "long-line", "--tail", "1") == "after\n"
    assert len(cloud.ok("logs", "long-line")) == 5_000_007


def test_the_log_survives_a_restart_while_it_is_followed(new_cloud):
    cloud = new_cloud(emulate="T4:1")
    cloud.start()
    run = cloud.launch('for i in $(seq 1 60); do echo "line $i"; sleep 0.1; done; exit 8')
    script = "for i in 1 2 3 4 5 6; do echo $i; sleep 1; done; exit 9"
    with (
        cloud.attached("logs", "-f", run["id"]) as follower,
        cloud.attached("launch", "-y", "--no-workdir", "--", "bash", "-c", script) as attached,
    ):
        firsts = follower.line(), attached.line()
        for _ in range(2):
            cloud.kill()
            cloud.start()
            time.sleep(0.3)
        done = follower.end()
        assert (firsts[0] + done.out).splitlines() == [f"line {i}" for i in range(1, 61)], done.err
        done = attached.end()
        assert done.code == 9, done.err
        assert firsts[1] + done.out == "1\n2\n3\n4\n5\n6\n"
        assert "the server went away" in done.err


def test_exec_passes_bytes_and_codes(cloud: Cloud):
    cloud.launch("sleep 60", "--name", "host", "--gpus", "T4")
    eventually(lambda: cloud.run("host")["status"] == "running")
    done = cloud.cli("exec", "host", "--", "bash", "-c", 'echo "$CUDA_VISIBLE_DEVICES"; cat; exit 4', stdin="typed\n")
    assert done.code == 4, done.err
    assert done.out.split() == [cloud.run("host")["instances"][0]["devices"][0], "typed"]
    assert cloud.cli("exec", "host", "--", "no-such-command").code == 127
    assert cloud.cli("exec", "host", "--", "bash", "-c", "kill -9 $$").code == 137
    cloud.ok("cancel", "host", "--grace", "0")
    cloud.cli("wait", "host")
    done = cloud.cli("exec", "host", "--", "true")
    assert done.code == 1
    assert "not running" in done.err


def test_a_terminal_inside_a_run(cloud: Cloud):
    cloud.launch("sleep 60", "--name", "seat")
    eventually(lambda: cloud.run("seat")["status"] == "running")
    with cloud.terminal("ssh", "seat", rows=30, columns=100) as terminal:
        terminal.type("PS1=; stty size; echo rea''dy\n")
        assert "30 100" in terminal.expect("ready")
        terminal.resize(40, 120)
        os.kill(terminal.process.pid, 28)  # SIGWINCH, as the kernel sends to who is in the foreground
        terminal.type("sleep 0.5; stty size; echo aga''in\n")
        assert "40 120" in terminal.expect("again")
        terminal.type("sleep 60\n")
        time.sleep(0.5)
        terminal.type("\x03")  # interrupts what runs there, and not us
        terminal.type("echo un''harmed\n")
        terminal.expect("unharmed")
        terminal.type("exit 5\n")
        assert terminal.end() == 5
    cloud.ok("cancel", "seat", "--grace", "0")


def test_ssh_with_a_command(cloud: Cloud):
    cloud.launch("sleep 60", "--name", "seat-too")
    eventually(lambda: cloud.run("seat-too")["status"] == "running")
    assert cloud.ok("ssh", "seat-too", "--", "echo", "a b") == "a b\n"
    cloud.ok("cancel", "seat-too", "--grace", "0")


def test_cp_both_ways(cloud: Cloud, tmp_path: Path):
    cloud.launch(
        "mkdir -p $CUMULO_OUTPUT_DIR/deep; echo made > $CUMULO_OUTPUT_DIR/deep/file; sleep 60", "--name", "box"
    )
    eventually(lambda: cloud.run("box")["status"] == "running")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "data").write_text("payload")
    (tmp_path / "in" / "data").chmod(0o755)
    cloud.ok("cp", str(tmp_path / "in"), "box:workdir/")
    assert cloud.ok("exec", "box", "--", "bash", "-c", "cat in/data; test -x in/data") == "payload"
    cloud.ok("cp", str(tmp_path / "in" / "data"), "box:workdir/renamed")
    assert cloud.ok("exec", "box", "--", "cat", "renamed") == "payload"
    eventually(lambda: cloud.cli("cp", "box:outputs/deep/file", str(tmp_path / "got")).code == 0)
    assert (tmp_path / "got").read_text() == "made\n"
    cloud.ok("cancel", "--wait", "--grace", "0", "box")
    cloud.ok("cp", "box:outputs", str(tmp_path / "all"))
    assert (tmp_path / "all" / "deep" / "file").read_text() == "made\n"


@pytest.mark.parametrize("path", ["outputs/../../../etc", "outputs/nothing-here", "workdir/../../note"])
def test_cp_stays_in_its_area(cloud: Cloud, tmp_path: Path, path: str):
    name = f"fenced-{abs(hash(path)) % 1000}"
    cloud.launch("true", "--name", name)
    cloud.cli("wait", name)
    done = cloud.cli("cp", f"{name}:{path}", str(tmp_path))
    assert done.code in (2, 102), done.err
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_outputs_leads_nowhere(cloud: Cloud, tmp_path: Path):
    cloud.launch("ln -s /etc/shadow $CUMULO_OUTPUT_DIR/sly; echo fine > $CUMULO_OUTPUT_DIR/fine", "--name", "linker")
    cloud.cli("wait", "linker")
    done = cloud.cli("cp", "linker:outputs/sly", str(tmp_path / "sly"))
    assert not (tmp_path / "sly").is_file() or "root:" not in (tmp_path / "sly").read_text(), done
    assert cloud.cli("cp", "linker:outputs/fine", str(tmp_path / "fine")).code == 0


def test_logs_as_json_lines(cloud: Cloud):
    cloud.launch("echo one", "--name", "lined")
    cloud.cli("wait", "lined")
    lines = [json.loads(line) for line in cloud.ok("logs", "lined", "--json").splitlines()]
    assert "".join(line["text"] for line in lines) == "one\n"
    assert lines[0]["rank"] == 0
