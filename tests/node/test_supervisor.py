"""How instances begin and end, with real processes in each runtime."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cumulo.node import instances, processes
from cumulo.node.supervisor import read_json, start_ticks, write_atomic


def test_exit_code(bench, runtime):
    record = bench.run("exit 3", runtime=runtime)
    assert (record.reason, record.exit_code, record.signal, record.stage) == ("finished", 3, None, "running")


def test_success_tells_when_and_how_long(bench, runtime):
    before = time.time()
    record = bench.run("sleep 0.2", runtime=runtime)
    assert record.exit_code == 0
    assert record.message is None
    assert before <= record.started_at <= record.ended_at <= time.time()
    assert record.ended_at - record.started_at >= 0.19  # the start is told once the program has begun


@pytest.mark.parametrize("number", [6, 9, 15])
def test_signal(bench, runtime, number):
    record = bench.run(f"kill -{number} $$", runtime=runtime)
    assert (record.reason, record.exit_code, record.signal) == ("finished", None, number)


def test_exit_code_above_128_that_is_no_signal(bench, runtime):
    assert bench.run("exit 200", runtime=runtime).exit_code == 200


def test_command_that_does_not_exist(bench, runtime):
    record = bench.run("no-such-command", "--flag", runtime=runtime)
    assert (record.reason, record.exit_code, record.started_at) == ("start_failed", None, None)
    assert record.message == "command not found: no-such-command"


def test_working_folder_that_does_not_exist(bench, runtime):
    record = bench.run("true", cwd="/no/such/folder", runtime=runtime)
    assert record.reason == "start_failed"
    assert "/no/such/folder" in record.message


def test_program_that_may_not_be_executed(bench):
    record = bench.run("/etc/passwd", "x")
    assert record.reason == "start_failed"
    assert record.message == "cannot run /etc/passwd: Permission denied"


def test_script_without_interpreter(bench, node_root):
    script = node_root / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    record = bench.run(str(script), "x")
    assert record.message == f"cannot run {script}: the interpreter that its first line names is missing"


def test_stages_run_in_order(bench, runtime):
    folder = bench.launch("echo run", setup=("echo setup",), runtime=runtime)
    record = bench.end(folder)
    assert record.exit_code == 0
    assert bench.log(folder) == b"setup\nrun\n"
    stages = bench.running(folder).state.stages
    assert stages["preparing"] < stages["running"] <= record.started_at


def test_failed_setup_runs_nothing_more(bench, runtime):
    folder = bench.launch("echo run", setup=("echo setup; exit 4",), runtime=runtime)
    record = bench.end(folder)
    assert (record.reason, record.stage, record.exit_code) == ("setup_failed", "preparing", 4)
    assert record.message == "setup ended with exit code 4"
    assert record.started_at is None
    assert bench.log(folder) == b"setup\n"


def test_missing_setup_command(bench):
    record = bench.run("true", setup=("no-such-command", "x"))
    assert (record.reason, record.message) == ("setup_failed", "command not found: no-such-command")


def test_nothing_of_ours_is_inherited(bench):
    folder = bench.launch(
        "ls /proc/self/fd | tr '\\n' ' '; grep SigBlk /proc/self/status; grep SigIgn /proc/self/status"
    )
    bench.end(folder)
    lines = bench.log(folder).decode().splitlines()
    assert lines[0].startswith("0 1 2 3 SigBlk")  # 3 is ls's own
    assert lines[0].split()[-1] == "0" * 16
    # Signals 32 and 33 are the C library's own and can't be set by anybody: what started us may have left them ignored.
    assert int(lines[1].split()[-1], 16) & ~(3 << 31) == 0


def test_daemonised_descendants_die_with_the_command(bench, runtime):
    folder = bench.launch("(setsid sleep 300 & setsid sh -c 'sleep 301 & sleep 302' &) ; sleep 0.2", runtime=runtime)
    bench.running(folder)
    bench.until(lambda: len(bench.living(folder)) >= 3)
    record = bench.end(folder)
    assert (record.reason, record.exit_code) == ("finished", 0)
    assert bench.living(folder) == set()


def test_descendants_that_ignore_sigterm_die_too(bench, runtime):
    folder = bench.launch(
        "(trap '' TERM; setsid sh -c 'while :; do sleep 0.1; done' &) ; exit 0", runtime=runtime, grace_s=0.2
    )
    assert bench.end(folder).exit_code == 0
    assert bench.living(folder) == set()


def test_a_background_writer_has_a_moment_to_finish(bench, runtime):
    folder = bench.launch("(sleep 0.1; echo tail) & echo head", runtime=runtime)
    bench.end(folder)
    assert bench.log(folder) == b"head\ntail\n"


def test_starting_twice_runs_once(bench, runtime):
    folder = bench.launch("echo once; sleep 0.3", runtime=runtime)
    for _ in range(5):
        bench.spawner.start(folder)
    bench.end(folder)
    bench.spawner.start(folder)
    bench.run("true")  # that request has been served when a later one has
    assert bench.log(folder) == b"once\n"


def test_out_of_memory(bench, enforcing, runtime):
    command = ("dd", "if=/dev/zero", "of=/dev/null", "bs=300M", "count=1")
    record = bench.run(*command, limits={"memory_bytes": 64 << 20}, runtime=runtime)
    assert record.oom
    assert (record.reason, record.signal) == ("finished", 9)
    assert 32 << 20 < record.max_memory_bytes <= 64 << 20


def test_pids_limit(bench, enforcing):
    folder = bench.launch("for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; wait", limits={"pids_max": 4})
    bench.end(folder)
    assert b"fork" in bench.log(folder)


def test_cgroups_are_gone_afterwards(bench, cgroups, runtime):
    folder = bench.launch(
        "true", limits={"memory_bytes": 64 << 20, "cpus_milli": 1000, "pids_max": 50}, runtime=runtime
    )
    bench.end(folder)
    assert [parent for parent in cgroups.parents.values() if (parent / folder.name).exists()] == []


def test_a_cgroup_that_cannot_be_had_is_told(bench):
    folder = bench.prepare("true")
    spec = read_json(str(folder / "spec.json")) or {}
    spec["cgroup"]["dirs"] = ["/proc/no/such/cgroup"]
    write_atomic(str(folder), "spec.json", spec)
    bench.spawner.start(folder)
    record = bench.end(folder)
    assert record.reason == "start_failed"
    assert record.message.startswith("cannot make the cgroup /proc/no/such/cgroup")


def test_a_spec_of_another_format_is_refused(bench):
    folder = bench.prepare("true")
    write_atomic(str(folder), "spec.json", {"version": 99})
    bench.spawner.start(folder)
    record = bench.end(folder)
    assert record.reason == "error"
    assert "format is 99" in record.message


def test_the_payloads_pid_is_that_of_the_command(bench, runtime):
    folder = bench.launch("exec sleep 300", runtime=runtime)
    state = bench.running(folder).state
    bench.until(lambda: Path(f"/proc/{state.payload_pid}/cmdline").read_bytes().startswith(b"sleep"))
    assert start_ticks(state.payload_pid) == state.payload_start
    assert state.phase == "running"


def test_a_clock_that_jumps_bends_no_duration(bench):
    """The wall clock is read once; from then on boot time counts."""
    folder = bench.prepare("sleep 0.3")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import supervisor, itertools;"
        "walls = itertools.chain([2e9], itertools.repeat(5.0));"
        "supervisor.Signals.handle();"
        "supervisor.supervise(sys.argv[2], supervisor.Clock(wall=lambda: next(walls)))"
    )
    place = os.path.dirname(instances.__file__)
    subprocess.run([sys.executable, "-I", "-c", script, place, str(folder)], check=True, timeout=30)
    record = bench.end(folder)
    assert 2e9 <= record.started_at < 2e9 + 10
    assert 0.3 <= record.ended_at - record.started_at < 10


def test_two_hundred_in_a_row_leave_nothing(bench):
    bench.run("true")
    spawner = f"/proc/{bench.spawner.pid}/fd"
    before = len(os.listdir(spawner))
    folders = [bench.launch("/bin/true", "x") for _ in range(200)]
    assert {bench.end(folder, seconds=60).exit_code for folder in folders} == {0}
    bench.until(lambda: not processes.descendants(bench.spawner.pid))
    assert len(os.listdir(spawner)) == before
    assert (bench.root / "spawner.log").read_text() == ""
