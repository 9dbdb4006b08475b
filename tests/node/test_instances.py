"""The engine's view of instance folders, also of those whose supervisor is no more."""

import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.node import instances
from cumulo.node.cgroups import CgroupPlan
from cumulo.node.instances import Standing
from cumulo.node.supervisor import read_json, write_atomic


def kill_supervisor(bench, folder):
    os.kill(bench.running(folder).supervisor_pid, signal.SIGKILL)
    bench.until(lambda: instances.lock_holder(folder) is None)


def test_standing_follows_the_life_of_an_instance(bench, runtime):
    folder = bench.prepare("sleep 0.3", runtime=runtime)
    assert instances.look(folder).standing is Standing.NOT_STARTED
    bench.spawner.start(folder)
    assert bench.running(folder).standing is Standing.ALIVE
    bench.end(folder)
    assert instances.look(folder).standing is Standing.ENDED
    assert list(instances.folders(bench.root)) == [folder]
    instances.remove(folder)
    assert list(instances.folders(bench.root)) == []


def test_an_orphan_is_killed_and_recorded(bench, runtime):
    folder = bench.launch("(setsid sleep 300 &); trap '' TERM; while :; do sleep 0.1; done", runtime=runtime)
    kill_supervisor(bench, folder)
    assert instances.look(folder).standing is Standing.ORPHANED
    assert bench.living(folder)
    record = instances.reap_orphan(folder)
    assert record.reason == "supervisor_lost"
    assert bench.end(folder).started_at <= record.ended_at
    assert bench.living(folder) == set()
    assert instances.look(folder).standing is Standing.ENDED
    assert not any(os.path.exists(path) for path in instances.read_cgroup(folder).dirs)


def test_an_orphan_is_found_without_cgroups(bench):
    folder = bench.prepare("(setsid sleep 300 &); sleep 300")
    spec = read_json(str(folder / "spec.json")) or {}
    write_atomic(str(folder), "spec.json", spec | {"cgroup": CgroupPlan().to_json()})
    bench.spawner.start(folder)
    kill_supervisor(bench, folder)
    assert instances.reap_orphan(folder).reason == "supervisor_lost"
    assert bench.living(folder) == set()


def test_an_orphan_is_never_run_again(bench):
    folder = bench.launch("echo run; sleep 300")
    bench.says(folder, b"run")
    kill_supervisor(bench, folder)
    bench.spawner.start(folder)
    bench.run("true")
    assert instances.look(folder).standing is Standing.ORPHANED
    instances.reap_orphan(folder)
    bench.spawner.start(folder)
    bench.run("true")
    assert bench.log(folder) == b"run\n"


def test_after_a_reboot_it_is_lost(bench):
    folder = bench.launch("sleep 300")
    kill_supervisor(bench, folder)
    state = read_json(str(folder / "state.json")) or {}
    instances._kill_remains(folder)
    write_atomic(str(folder), "state.json", state | {"boot_id": "another"})
    assert instances.look(folder).standing is Standing.LOST_BY_REBOOT
    record = instances.reap_orphan(folder)
    assert record.reason == "lost_by_reboot"
    assert record.started_at == state["started_at"]


def test_a_state_that_a_loss_of_power_left_empty_is_lost_too(bench):
    folder = bench.prepare("true")
    (folder / "state.json").write_text("")
    assert instances.look(folder).standing is Standing.LOST_BY_REBOOT
    assert instances.reap_orphan(folder).reason == "lost_by_reboot"
    bench.spawner.start(folder)
    bench.run("true")
    assert not (folder / "log").exists()


def test_the_living_are_not_reaped_nor_removed(bench):
    folder = bench.launch("sleep 300")
    bench.running(folder)
    with pytest.raises(ValueError, match="no orphan to reap"):
        instances.reap_orphan(folder)
    with pytest.raises(ValueError, match="has not ended"):
        instances.remove(folder)


def test_looking_disturbs_no_start(bench):
    """A probe that took the lock, if only for a moment, would make the supervisor leave."""
    for _ in range(10):
        folder = bench.launch("true")
        while instances.look(folder).standing is not Standing.ENDED:
            pass


def test_stop_of_an_unknown_instance_is_remembered(bench):
    folder = instances.folder_of(bench.root, "unknown")
    assert instances.request_stop(folder, grace_s=1).standing is Standing.NOT_STARTED
    bench.spawner.start(folder)
    assert bench.end(folder).reason == "stopped"


def test_usage_counts_what_runs(bench, runtime):
    hog = "x=$(head -c 30000000 /dev/zero | tr '\\0' 'a'); echo ready; while :; do :; done"
    folder = bench.launch(hog, runtime=runtime)
    bench.says(folder, b"ready")
    first = instances.usage(folder, instances.look(folder))
    assert 25_000_000 < first.memory_bytes < 200_000_000
    assert bench.running(folder).state.payload_pid in first.pids
    bench.until(lambda: instances.usage(folder, instances.look(folder)).cpu_seconds > first.cpu_seconds + 0.05)


def test_usage_without_cgroups(bench):
    folder = bench.prepare("x=$(head -c 30000000 /dev/zero | tr '\\0' 'a'); echo ready; sleep 300")
    spec = read_json(str(folder / "spec.json")) or {}
    write_atomic(str(folder), "spec.json", spec | {"cgroup": CgroupPlan().to_json()})
    bench.spawner.start(folder)
    bench.says(folder, b"ready")
    assert instances.usage(folder, instances.look(folder)).memory_bytes > 25_000_000


records = st.lists(st.tuples(st.integers(1, 1000), st.floats(1, 100)), max_size=20)


@given(records, st.floats(-10, 2100))
def test_since_never_cuts_what_is_asked_for(tmp_path_factory, steps, when):
    """Whatever the index holds: every byte written at or after `when` is at or after the offset."""
    folder = tmp_path_factory.mktemp("log")
    offset, now, index = 0, 0.0, []
    for size, pause in steps:
        now += pause
        index.append((offset, now))
        offset += size
    (folder / "log").write_bytes(b"x" * offset)
    (folder / "log.index").write_bytes(b"".join(instances._INDEX.pack(*record) for record in index))
    answer = instances.log_offset_since(folder, when)
    wanted = next((start for start, written in index if written >= when), offset)
    assert 0 <= answer <= wanted
    assert [written for start, written in index if answer <= start and written < when - 1] == []
