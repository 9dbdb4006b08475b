"""exec: one more command, where the run's own command lives and as it lives."""

import contextlib
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from cumulo.node import instances
from cumulo.node.entering import enter

HOME = {"PATH": "/usr/bin:/bin", "GREETING": "it's me"}
AS_ROOT = os.geteuid() == 0


def start(bench, folder, *argv, env=HOME, cwd="/", terminal=None):
    """In the instance; output and errors come through one pipe, or all through the terminal."""
    end, errors = (subprocess.PIPE, subprocess.STDOUT) if terminal is None else (terminal, terminal)
    stdin = subprocess.DEVNULL if terminal is None else terminal
    streams = {"stdin": stdin, "stdout": end, "stderr": errors}
    return enter(bench.root, folder, argv=argv, env=env, cwd=cwd, pty=terminal is not None, **streams)


def ask(bench, folder, command, **options):
    """Output and exit code of a shell command in the instance."""
    entered = start(bench, folder, "/bin/sh", "-c", command, **options)
    output = entered.process.communicate(timeout=30)[0]
    entered.close()
    return output.decode(), entered.process.returncode


@pytest.fixture
def folder(bench, runtime):
    folder = bench.launch("sleep", "300", runtime=runtime)
    bench.running(folder)
    return folder


def test_it_is_where_and_who_the_run_is(bench, folder):
    payload = bench.running(folder).state.payload_pid
    output, code = ask(
        bench, folder, "echo $GREETING; id -u; pwd; readlink /proc/self/ns/mnt /proc/self/ns/pid; exit 3", cwd="/usr"
    )
    greeting, uid, cwd, *namespaces = output.splitlines()
    assert (greeting, cwd, code) == ("it's me", "/usr", 3)
    assert uid == str(os.stat(f"/proc/{payload}").st_uid)
    assert namespaces == [os.readlink(f"/proc/{payload}/ns/{name}") for name in ("mnt", "pid")]


def test_it_has_no_more_rights_than_the_run(bench, folder):
    rights = "grep -E '^(Cap|NoNewPrivs|Groups)' /proc/self/status"
    output, _ = ask(bench, folder, rights)
    with open(f"/proc/{bench.running(folder).state.payload_pid}/status") as file:
        wanted = [line.strip() for line in file if line.startswith(("Cap", "NoNewPrivs", "Groups"))]
    assert [line.strip() for line in output.splitlines()] == wanted


def test_it_counts_against_the_runs_limits(bench, folder, enforcing):
    output, _ = ask(bench, folder, "cat /proc/self/cgroup")
    assert folder.name in output


def test_a_signal_is_told(bench, folder):
    assert ask(bench, folder, "kill -9 $$")[1] == 137


def test_a_missing_command_is_told(bench, folder):
    entered = start(bench, folder, "no-such")
    assert entered.process.communicate(timeout=30)[0] == b"cumulo: command not found: no-such\n"
    assert entered.process.returncode == 127
    entered.close()


def test_what_it_leaves_behind_is_killed(bench, folder):
    before = bench.living(folder)
    ask(bench, folder, "nohup sleep 300 >/dev/null 2>&1 & sleep 0.1", env=HOME | {"CUMULO_INSTANCE_ID": folder.name})
    assert bench.living(folder) == before


def test_closing_kills_it(bench, folder):
    before = bench.living(folder)
    entered = start(bench, folder, "sleep", "300", env=HOME | {"CUMULO_INSTANCE_ID": folder.name})
    bench.until(lambda: "sleep" in {comm(pid) for pid in bench.living(folder) - before})
    entered.close()
    assert entered.process.wait(timeout=10) == 128 + signal.SIGKILL
    bench.until(lambda: bench.living(folder) == before)
    entered.process.stdout.close()


def comm(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return None


def test_its_end_is_part_of_the_instances_end(bench, folder, enforcing):
    entered = start(bench, folder, "sleep", "300")
    bench.until(lambda: entered.process.pid in instances.usage(folder, instances.look(folder)).pids)
    instances.request_stop(folder, grace_s=5)
    bench.end(folder)
    assert entered.process.wait(timeout=10) != 0
    entered.close()
    entered.process.stdout.close()


def test_a_terminal(bench, folder):
    ours, theirs = pty.openpty()
    entered = start(bench, folder, "cat", terminal=theirs)
    os.close(theirs)
    os.write(ours, b"hello\n")
    seen = b""
    while seen.count(b"hello") < 2:  # the terminal's echo, and cat's
        seen += os.read(ours, 1000)
    os.write(ours, b"\x03")  # Ctrl-C is a signal only on a controlling terminal
    assert entered.process.wait(timeout=10) == 128 + signal.SIGINT
    os.close(ours)
    entered.close()


def test_there_must_be_somebody_to_join(bench):
    folder = bench.launch("true")
    bench.end(folder)
    with pytest.raises(ValueError, match="is not running"):
        ask(bench, folder, "true")
