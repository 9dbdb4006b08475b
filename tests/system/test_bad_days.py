"""Bad days: what a person is told when the machine, the disk, the state or the server fails them, and what survives."""

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from tests.system.cloud import CUMULO, Cloud, eventually
from tests.system.evidence import holds_are_sound, with_argument
from tests.system.load import outputs

pytestmark = pytest.mark.system

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts a small disk")
COUNT = 'for i in $(seq 100); do echo "$i"; sleep 0.1; done'


def mounted(cloud: Cloud, options: str) -> Callable[..., object]:
    """Puts a small disk where the state folder lies; remounts it when called."""
    cloud.home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(cloud.home)], check=True)
    cloud.undo.append(lambda: subprocess.run(["umount", "-l", str(cloud.home)], check=True))
    return lambda given: subprocess.run(["mount", "-o", f"remount,{given}", str(cloud.home)], check=True)


def test_an_ask_that_no_node_can_take(cloud: Cloud):
    for gpus in ("H100", "A100:8", "A100-40GB"):
        done = cloud.cli("launch", "-y", "--no-workdir", "--gpus", gpus, "--", "true")
        assert done.code == 4, done.err
        assert "--queue" in done.err
    run = cloud.launch("true", "--gpus", "H100", "--queue")
    assert cloud.run(run["id"])["status"] == "queued"
    assert "never" in cloud.ok("why", run["id"])
    cloud.ok("cancel", run["id"])
    assert cloud.cli("wait", run["id"]).code == 103


def test_an_unknown_gpu(cloud: Cloud):
    done = cloud.cli("launch", "-y", "--no-workdir", "--gpus", "A10O-80GB", "--", "true")
    assert done.code == 2
    assert "did you mean A100-80GB" in done.err


def test_a_workdir_of_ten_gigabytes_asks(cloud: Cloud):
    """Sparse: it holds no byte, and nobody reads it before the answer."""
    folder = cloud.folder / "huge"
    folder.mkdir()
    with (folder / "data").open("wb") as file:
        file.truncate(10 << 30)
    with cloud.terminal("launch", "--name", "huge", "--", "true", cwd=folder) as terminal:
        terminal.expect("Send it all?")
        assert "10" in terminal.shown
        terminal.type("n\n")
        assert terminal.end() == 130
    assert cloud.cli("status", "huge").code == 102


def test_a_second_up_on_the_same_state(cloud: Cloud):
    assert cloud.server is not None
    before = (cloud.home / "server.json").read_text()
    done = cloud.cli("up", "-d", "--port", "0")
    assert done.code == 1
    assert str(cloud.server.pid) in done.err
    words = [sys.executable, "-m", "cumulo.server", "--port", "0"]  # and where the file says nothing
    other = subprocess.run(words, env=cloud.env, cwd="/", capture_output=True, text=True, timeout=30, check=False)
    assert other.returncode == 1
    assert other.stderr.startswith("error: a server already runs on")
    assert (cloud.home / "server.json").read_text() == before
    assert cloud.cli("status").code == 0


def test_a_port_in_use(new_cloud):
    cloud = new_cloud()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = cloud.cli("up", "-d", "--port", str(port))
    assert done.code == 1
    assert str(port) in done.err.split("\n")[0]
    assert not (cloud.home / "cumulo.db").exists()


def test_what_up_can_not_read(new_cloud):
    cloud = new_cloud()
    done = cloud.cli("up", "-d", "--port", "0", "--emulate", "A100-80GB:lots")
    assert done.code == 2
    assert done.err.startswith("error: --emulate")
    done = cloud.cli("up", "-d", "--port", "0", "--database", "mysql://root:hidden@x/y")
    assert done.code == 2
    assert "hidden" not in done.err
    done = cloud.cli("up", "-d", "--port", "0", "--database", "postgresql://nobody:hidden@127.0.0.1:1/none")
    assert done.code == 1
    assert "hidden" not in done.err
    assert "Traceback" not in cloud.said()


def test_no_server(new_cloud):
    cloud = new_cloud()
    done = cloud.cli("status")
    assert done.code == 1
    assert "cumulo up -d" in done.err
    cloud.home.mkdir()
    (cloud.home / "server.json").write_text("{garbage")
    assert cloud.cli("status").code == 1
    assert cloud.cli("down").code == 0


def test_a_database_from_a_newer_version(new_cloud):
    cloud = new_cloud(emulate="T4:1")
    cloud.start()
    cloud.stop()
    with sqlite3.connect(cloud.home / "cumulo.db") as db:
        version = db.execute("SELECT version_num FROM alembic_version").fetchone()[0]
        db.execute("UPDATE alembic_version SET version_num = '9999_from_the_future'")
    done = cloud.cli("up", "-d", "--port", "0")
    assert done.code == 1
    assert "newer" in done.err.split("\n")[0]
    with sqlite3.connect(cloud.home / "cumulo.db") as db:
        db.execute("UPDATE alembic_version SET version_num = ?", (version,))
    db.close()
    cloud.start()


def test_a_damaged_database(new_cloud):
    cloud = new_cloud()
    cloud.home.mkdir()
    (cloud.home / "cumulo.db").write_bytes(b"this is no database" * 1000)
    done = cloud.cli("up", "-d", "--port", "0")
    assert done.code == 1
    assert "cumulo.db" in done.err
    assert "Traceback" not in cloud.said()


@needs_root
def test_a_read_only_state_folder(new_cloud):
    cloud = new_cloud()
    mounted(cloud, "ro")
    done = cloud.cli("up", "-d", "--port", "0")
    assert done.code == 1
    assert "can't be written" in done.err
    assert "hint:" in done.err


def test_a_state_folder_of_somebody_else(new_cloud):
    if os.geteuid() == 0:
        pytest.skip("needs an ordinary user")
    cloud = new_cloud()
    done = cloud.cli("up", "-d", "--port", "0", env={"CUMULO_HOME": "/proc/cumulo"})
    assert done.code == 1
    assert "can't be written" in done.err


@needs_root
def test_a_full_disk(new_cloud):
    """What runs goes on and its end is known; what is asked is refused in a sentence; room makes all well again."""
    cloud = new_cloud(emulate="T4:2")
    remount = mounted(cloud, "size=24m")
    cloud.start()
    run = cloud.launch("until [ -e /tmp/never ] || [ $((i += 1)) = 30 ]; do sleep 0.1; done; exit 7", "--gpus", "T4")
    eventually(lambda: cloud.run(run["id"])["status"] == "running")
    filler = cloud.home / "filler"
    fd = os.open(filler, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(fd, bytes(4096))
    os.close(fd)
    done = cloud.cli("launch", "-y", "-d", "--no-workdir", "--name", "refused", "--", "true")
    if done.code != 0:  # the database may have had a page left
        assert done.code == 1
        assert "full" in done.err, done.err
    assert cloud.cli("status", run["id"]).code == 0, "looking needs no room"
    time.sleep(3.5)
    filler.unlink()
    remount("size=64m")
    assert cloud.cli("wait", run["id"]).code == 100
    assert cloud.run(run["id"])["exit_code"] == 7
    again = cloud.cli("launch", "-y", "--no-workdir", "--", "echo", "room")
    assert (again.code, again.out) == (0, "room\n"), again.err


def test_other_devices_while_something_runs(new_cloud):
    """The devices it holds are gone from the list, and it is not touched; nothing takes its place twice."""
    cloud = new_cloud(emulate="A100-80GB:2")
    cloud.start()
    run = cloud.launch(COUNT + "; exit 4", "--gpus", "A100:2")
    eventually(lambda: cloud.run(run["id"])["status"] == "running")
    cloud.stop()
    cloud.emulate = "2x T4:1"
    cloud.start()
    row = cloud.run(run["id"])
    assert row["status"] == "running"
    holds_are_sound(cloud)
    assert cloud.cli("launch", "-y", "--no-workdir", "--gpus", "T4", "--", "true").code == 0
    assert cloud.cli("launch", "-y", "--no-workdir", "--gpus", "A100", "--", "true").code == 4
    assert cloud.cli("wait", run["id"]).code == 100
    assert cloud.run(run["id"])["exit_code"] == 4
    assert cloud.ok("logs", run["id"]).split() == [str(i) for i in range(1, 101)]


def test_an_upgrade_while_something_runs(new_cloud):
    """The old version's files vanish under a run, and the new one, with another supervisor, takes it over."""
    cloud = new_cloud(emulate="T4:2")
    old = cloud.folder / "old"
    source = Path(sys.modules["cumulo"].__file__ or "").parent
    shutil.copytree(source, old / "cumulo", ignore=shutil.ignore_patterns("__pycache__"))
    with (old / "cumulo" / "node" / "supervisor.py").open("a") as file:
        file.write("\n# an older version\n")
    path = cloud.env.get("PYTHONPATH")
    cloud.env["PYTHONPATH"] = str(old)
    cloud.start()
    run = cloud.launch(COUNT + "; exit 4", "--gpus", "T4")
    eventually(lambda: cloud.run(run["id"])["status"] == "running")
    cloud.stop()
    shutil.rmtree(old)
    del cloud.env["PYTHONPATH"]
    cloud.env |= {"PYTHONPATH": path} if path else {}
    cloud.start()
    assert len(list((cloud.home / "node").glob("supervisor-*.py"))) == 2
    assert cloud.ok("exec", run["id"], "--", "echo", "reached") == "reached\n"
    other = cloud.launch("true", "--gpus", "T4")
    assert cloud.cli("wait", other["id"]).code == 0
    assert cloud.cli("wait", run["id"]).code == 100
    assert cloud.ok("logs", run["id"]).split() == [str(i) for i in range(1, 101)]


def test_a_server_that_is_stopped_while_somebody_launches(new_cloud):
    """A launch that meets a restart waits for the server and is accepted once."""
    cloud = new_cloud(emulate="T4:1")
    cloud.start()
    cloud.launch("true")
    cloud.kill()
    with cloud.attached("launch", "-y", "--no-workdir", "--name", "patient", "--", "echo", "served") as attached:
        time.sleep(0.3)
        cloud.start()
        done = attached.end()
    assert done.code in (0, 1), done.err
    if done.code == 0:
        assert done.out == "served\n"
    runs = [row for row in json.loads(cloud.ok("status", "--json")) if row["name"] == "patient"]
    assert len(runs) == (1 if done.code == 0 else 0)


def test_a_backup_is_restored(new_cloud):
    """The store has forgotten a run that lives: it is reported, held for the admin, and its GPU not given away."""
    cloud = new_cloud(emulate="T4:1")
    cloud.start()
    cloud.stop()
    backup = cloud.folder / "backup.db"
    shutil.copy(cloud.home / "cumulo.db", backup)
    cloud.start()
    run = cloud.launch("sleep 7534", "--gpus", "T4")
    eventually(lambda: with_argument("7534"))
    cloud.stop()
    for name in ("cumulo.db-wal", "cumulo.db-shm"):
        (cloud.home / name).unlink(missing_ok=True)
    shutil.copy(backup, cloud.home / "cumulo.db")
    cloud.start()
    try:
        assert cloud.cli("status", run["id"]).code == 102
        eventually(lambda: "instance.leaked" in cloud.ok("events"))
        assert run["id"] in cloud.cli("doctor").out
        waits = cloud.launch("true", "--gpus", "T4")
        why = cloud.ok("why", waits["id"])
        assert cloud.run(waits["id"])["status"] == "queued", why
        assert with_argument("7534"), "healthy work was killed"
    finally:
        for pid in with_argument("7534"):
            os.kill(pid, signal.SIGKILL)
    assert cloud.cli("wait", waits["id"]).code == 0, "its device is free once it has ended"


def test_outputs_outlive_the_server(new_cloud):
    cloud = new_cloud(emulate="T4:1")
    cloud.start()
    run = cloud.launch("sleep 0.7; echo late > $CUMULO_OUTPUT_DIR/late; exit 3")
    eventually(lambda: cloud.run(run["id"])["status"] == "running")
    cloud.kill()
    eventually(lambda: (outputs(cloud, run["id"]) / "late").exists())
    time.sleep(0.3)
    cloud.start()
    eventually(lambda: cloud.run(run["id"])["status"] == "failed")
    (instance,) = cloud.run(run["id"])["instances"]
    assert instance["exit_code"] == 3
    assert 0.5 < seconds(instance["ended_at"]) - seconds(instance["started_at"]) < 3, "when it ended, not when we saw"


def seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


def test_the_command_line_tells_in_a_line(cloud: Cloud):
    """No traceback reaches a person, whatever they type."""
    for words in (["logs"], ["status", "\x1b[31m"], ["cancel"], ["cp", "a", "b"], ["exec", "x"], ["wait", ""],
                  ["launch"], ["launch", "nothing.yaml"], ["events", "--run", "no\nbody"], ["--nothing"]):  # fmt: skip
        done = subprocess.run(
            [CUMULO, *words], env=cloud.env, capture_output=True, text=True, timeout=30, check=False, cwd=cloud.work
        )
        assert done.returncode in (1, 2, 102), (words, done)
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stderr
        assert done.stderr.startswith("error: ")


def test_what_was_emulated_stays_so_until_it_is_ended(new_cloud):
    """A launch that starts the server by itself finds the devices that the last one had."""
    cloud = new_cloud(emulate="T4:2")
    cloud.start()
    cloud.stop()
    cloud.emulate = None
    cloud.start()
    offers = cloud.cli("offers", "--json").json
    assert [(row["gpu"], row["total"]) for row in offers if row["mode"] == "exclusive"] == [("T4", 2)]
    cloud.stop()
    cloud.emulate = "off"
    cloud.start()
    assert "T4" not in cloud.ok("offers")
