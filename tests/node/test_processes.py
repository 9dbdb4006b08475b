"""What /proc tells."""

import os
import subprocess

from cumulo.node import processes


def test_ourselves():
    found = processes.stat(os.getpid())
    assert found is not None
    assert found.parent == os.getppid()
    assert found.state in "RS"
    assert found.resident_bytes > 1 << 20


def test_nobody():
    assert processes.stat(2**22 + 1) is None


def test_a_name_with_brackets_and_spaces(tmp_path):
    program = tmp_path / "a) S (b c"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "300"]) as child:
        found = processes.stat(child.pid)
        assert found is not None
        assert found.parent == os.getpid()
        child.kill()


def test_descendants_of_descendants():
    command = "sleep 300 & sleep 300 & echo; wait"
    with subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.PIPE, process_group=0) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        found = processes.descendants(os.getpid())
        sleeps = [pid for pid, process in found.items() if process.parent == shell.pid]
        assert len(sleeps) == 2
        assert processes.tree_usage(shell.pid).pids == tuple(sorted(sleeps))
        os.killpg(shell.pid, 9)


def test_by_environment():
    with subprocess.Popen(["sleep", "300"], env={"PATH": os.defpath, "WHO": "me", "WHOSE": "mine"}) as child:
        assert child.pid in processes.with_environment("WHO", "me")
        assert child.pid not in processes.with_environment("WHO", "m")
        child.kill()
