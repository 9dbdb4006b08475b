"""How instances are made to end: on request, at their time's end, at any moment, and nothing survives."""

import os
import time

from cumulo.node import instances
from cumulo.node.instances import Standing


def test_stop_lets_a_trap_finish(bench, runtime):
    folder = bench.launch("trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.05; done", runtime=runtime)
    bench.says(folder, b"ready")
    instances.request_stop(folder, grace_s=10, reason="cancelled by test")
    record = bench.end(folder)
    assert (record.reason, record.exit_code, record.message) == ("stopped", 5, "cancelled by test")
    assert bench.log(folder).endswith(b"saved\n")
    assert bench.living(folder) == set()


def test_stop_gives_children_the_grace_after_their_shell_died(bench, runtime):
    child = "trap 'sleep 0.5; echo checkpoint; exit' TERM; echo ready; while :; do sleep 0.05; done"
    folder = bench.launch(f'sh -c "{child}"; echo never', runtime=runtime)
    bench.says(folder, b"ready")
    instances.request_stop(folder, grace_s=10)
    record = bench.end(folder)
    assert (record.reason, record.signal) == ("stopped", 15)
    assert bench.log(folder).endswith(b"checkpoint\n")


def test_stop_kills_what_ignores_sigterm(bench, runtime):
    folder = bench.launch("trap '' TERM; echo ready; while :; do sleep 0.05; done", runtime=runtime)
    bench.says(folder, b"ready")
    asked = time.monotonic()
    instances.request_stop(folder, grace_s=0.5)
    record = bench.end(folder)
    assert (record.reason, record.signal) == ("stopped", 9)
    assert time.monotonic() - asked >= 0.5
    assert bench.living(folder) == set()


def test_a_second_stop_shortens_the_grace(bench, runtime):
    folder = bench.launch("trap '' TERM; echo ready; while :; do sleep 0.05; done", runtime=runtime)
    bench.says(folder, b"ready")
    instances.request_stop(folder, grace_s=600)
    bench.until(lambda: bench.running(folder).state.phase == "stopping")
    instances.request_stop(folder, grace_s=0)
    assert bench.end(folder).signal == 9


def test_stop_during_setup_never_reaches_the_command(bench, runtime):
    folder = bench.launch("echo run", setup=("echo setup; sleep 300",), runtime=runtime)
    bench.says(folder, b"setup")
    instances.request_stop(folder, grace_s=5)
    record = bench.end(folder)
    assert (record.reason, record.stage, record.started_at) == ("stopped", "preparing", None)
    assert bench.log(folder) == b"setup\n"


def test_stop_at_any_moment_of_the_start(bench, runtime):
    """The window between fork and exec, and bubblewrap's own start, lose no signal: nobody waits out the grace."""
    for step in range(12):
        folder = bench.launch("sleep 300", runtime=runtime)
        time.sleep(step * 0.002)
        if instances.request_stop(folder, grace_s=60).standing is Standing.NOT_STARTED:
            bench.spawner.start(folder)
        record = bench.end(folder, seconds=15)
        assert record.reason == "stopped"
        assert bench.living(folder) == set()


def test_a_stopped_id_never_starts(bench):
    folder = bench.prepare("echo run")
    assert instances.request_stop(folder, grace_s=5, reason="too late").standing is Standing.NOT_STARTED
    bench.spawner.start(folder)
    record = bench.end(folder)
    assert (record.reason, record.message, record.started_at) == ("stopped", "too late", None)
    assert not (folder / "log").exists()


def test_sigterm_without_a_request_says_so(bench):
    folder = bench.launch("sleep 300")
    os.kill(bench.running(folder).supervisor_pid, 15)
    record = bench.end(folder)
    assert record.reason == "stopped"
    assert "by no request" in record.message


def test_max_duration(bench, runtime):
    folder = bench.launch(
        "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done", runtime=runtime, max_duration_s=0.5
    )
    record = bench.end(folder)
    assert (record.reason, record.exit_code) == ("timeout", 0)
    assert record.message == "the max_duration of 0.5 s is over"
    assert bench.log(folder).endswith(b"bye\n")


def test_max_duration_kills_after_the_grace(bench):
    record = bench.run("trap '' TERM; while :; do sleep 0.05; done", max_duration_s=0.3, grace_s=0.3)
    assert (record.reason, record.signal) == ("timeout", 9)


def test_a_fork_bomb_ends(bench, enforcing):
    bomb = "trap '' TERM; b() { while :; do (trap '' TERM; sleep 5) & done; }; echo ready; b 2>/dev/null"
    folder = bench.launch(bomb, limits={"pids_max": 60})
    bench.says(folder, b"ready")
    instances.request_stop(folder, grace_s=0.2)
    bench.end(folder)
    assert bench.living(folder) == set()
