"""Instances from ensure to their end, as any engine must show them. Real processes."""

import os
import signal
import threading
import time

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.engines.protocol import StaleEpoch
from cumulo.node import instances
from cumulo.node.supervisor import read_json, write_atomic
from tests.engines.conftest import CLOUD, WAIT, Bench


def test_a_run_succeeds_and_its_output_is_there(bench, runtime):
    seen, log = bench.run("ok", "echo hello; echo there >&2")
    assert (seen.state, seen.reason, seen.exit_code) == (InstanceState.ENDED, EndReason.SUCCEEDED, 0)
    assert log == "hello\nthere\n"
    assert seen.log_bytes == len(log)
    assert seen.started_at <= seen.ended_at <= time.time()
    assert (seen.cloud_id, seen.node) == (CLOUD, "emulated-0")


def test_its_exit_code_is_told(bench, runtime):
    seen, _ = bench.run("seven", "exit 7")
    assert (seen.reason, seen.exit_code, seen.message) == (EndReason.FAILED, 7, "it exited with code 7")


def test_the_first_command_that_fails_ends_it(bench, runtime):
    seen, log = bench.run("dash-e", "echo one\nfalse\necho two")
    assert (seen.exit_code, log) == (1, "one\n")


def test_its_signal_is_told(bench, runtime):
    seen, _ = bench.run("killed", "kill -9 $$")
    assert (seen.reason, seen.signal) == (EndReason.FAILED, signal.SIGKILL)
    assert seen.message == "it was killed by SIGKILL"


def test_ensure_twice_starts_once(bench, runtime):
    spec = bench.spec("twice", "echo $$ >> $CUMULO_OUTPUT_DIR/starts; sleep 0.2")
    for _ in range(3):
        bench.engine.ensure(spec, 1)
    bench.end(spec.instance_id)
    bench.engine.ensure(spec, 1)
    time.sleep(0.2)
    assert len((bench.root / "runs/twice/0/outputs/starts").read_text().split()) == 1


def test_stop_ends_it_within_its_grace(bench, runtime):
    name = bench.start("trap", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    bench.until(name, lambda seen: seen.log_bytes > 0)
    bench.engine.stop(name, 10.0, 1)
    seen = bench.end(name)
    assert seen.reason is EndReason.CANCELLED
    assert bench.log(name).endswith("bye\n")


def test_stop_kills_what_will_not_end(bench, runtime):
    name = bench.start("stubborn", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    bench.until(name, lambda seen: seen.log_bytes > 0)
    bench.engine.stop(name, 0.2, 1)
    assert bench.end(name).signal == signal.SIGKILL


def test_a_stopped_id_never_starts(bench):
    bench.engine.stop("never-0-0-0", 1.0, 1)
    seen = bench.end("never-0-0-0")
    assert (seen.reason, seen.started_at, seen.cloud_id) == (EndReason.CANCELLED, None, CLOUD)
    bench.start("never", "touch $CUMULO_OUTPUT_DIR/started")
    time.sleep(0.3)
    assert bench.look("never-0-0-0").reason is EndReason.CANCELLED
    assert not (bench.root / "runs/never/0/outputs/started").exists()


def test_an_old_epoch_is_refused_for_good(bench, node_root):
    bench.epoch = 5
    name = bench.start("epoch")
    bench.end(name)
    for call in (
        lambda: bench.engine.ensure(bench.spec("other", "true"), 4),
        lambda: bench.engine.stop(name, 1.0, 4),
        lambda: bench.engine.release(name, 4),
    ):
        with pytest.raises(StaleEpoch):
            call()
    assert (node_root / "epoch").read_text() == "5"
    assert bench.look("other-0-0-0") is None


def test_max_duration_is_enforced(bench, runtime):
    seen, _ = bench.run("long", "sleep 60", max_duration_s=0.3)
    assert seen.reason is EndReason.TIMEOUT
    assert "max_duration" in seen.message


def test_a_release_makes_it_vanish_and_never_come_back(bench):
    seen, _ = bench.run("gone", "echo words > $CUMULO_OUTPUT_DIR/file; echo said")
    bench.engine.release(seen.instance_id, 1)
    bench.engine.release(seen.instance_id, 1)
    assert bench.look(seen.instance_id) is None
    assert bench.engine.observe().instances == ()
    bench.engine.ensure(bench.spec("gone", "echo again"), 1)
    assert bench.look(seen.instance_id) is None
    assert bench.log(seen.instance_id) == "said\n"


def test_what_lives_is_not_released(bench):
    name = bench.start("alive", "sleep 30")
    bench.until(name, InstanceState.RUNNING)
    with pytest.raises(CumuloError, match="has not ended"):
        bench.engine.release(name, 1)


def test_a_look_at_all_is_complete_and_dated(bench):
    names = {bench.start(f"many{number}") for number in range(5)}
    for name in names:
        bench.end(name)
    before = time.time()
    look = bench.engine.observe()
    assert {seen.instance_id for seen in look.instances} == names
    assert look.complete
    assert before <= look.as_of <= time.time()
    assert not bench.engine.observe(frozenset(names)).complete
    assert bench.engine.observe(frozenset({"unknown"})).instances == ()


def test_changes_are_hinted(bench):
    heard: list[str] = []
    bench.engine.on_change(heard.append)
    name = bench.start("hint", "sleep 0.1")
    bench.end(name)
    time.sleep(0.05)
    assert heard.count(name) >= 2


def test_logs_are_read_from_any_offset(bench):
    seen, _ = bench.run("log", "printf '0123456789\\xff'")
    read = bench.engine.read_log
    assert read(seen.instance_id, 0) == b"0123456789\xff"
    assert read(seen.instance_id, 4, 3) == b"456"
    assert read(seen.instance_id, 11) == b""
    with pytest.raises(KeyError):
        read("unknown", 0)


def test_progress_is_the_last_whole_line(bench, runtime):
    lines = '{"done": 1}\n{"done": 2, "total": 3}\n{"do'
    seen, _ = bench.run("progress", f"printf '%s' '{lines}' > $CUMULO_PROGRESS; sleep 0.1")
    assert seen.progress == '{"done": 2, "total": 3}'


@pytest.mark.parametrize("trick", ["ln -s /etc/shadow", "mkfifo", "mkdir"])
def test_a_strange_progress_file_is_left_alone(bench, trick):
    seen, _ = bench.run("trick", f"{trick} $CUMULO_PROGRESS; sleep 0.1")
    assert (seen.reason, seen.progress) == (EndReason.SUCCEEDED, None)


def test_a_new_engine_adopts_what_runs(bench, runtime):
    name = bench.start("adopted", f"{WAIT}; exit 9")
    bench.until(name, InstanceState.RUNNING)
    bench.restart()
    assert bench.look(name).state is InstanceState.RUNNING
    bench.open_gate(name)
    assert bench.end(name).exit_code == 9


def test_what_an_engine_left_undone_is_taken_up(bench, node_root):
    """The server was killed after it had written down what is wanted."""
    spec = bench.spec("undone", "echo done")
    folder = node_root / "instances" / spec.instance_id
    folder.mkdir(mode=0o700)
    write_atomic(str(folder), "instance.json", spec.to_wire())
    bench.restart()
    bench.engine.observe()
    assert bench.end(spec.instance_id).reason is EndReason.SUCCEEDED


def test_a_server_killed_while_it_wrote_it_down_can_be_asked_again(bench, node_root):
    (node_root / "instances" / "half-0-0-0").mkdir(mode=0o700)
    assert bench.engine.observe().instances == ()
    seen, _ = bench.run("half", "true")
    assert seen.reason is EndReason.SUCCEEDED


def test_a_stop_while_files_are_copied_starts_nothing(bench):
    """The blob comes only once the wish to stop is there, so the copying is under way when it is made."""
    go = threading.Event()
    bench.blobs.before_read = lambda: go.wait(20)
    name = bench.start("pulled", "touch $CUMULO_OUTPUT_DIR/started", files=((".", bench.blobs.tree({"a": "x"})),))
    bench.until(name, InstanceState.PULLING)
    bench.engine.stop(name, 1.0, 1)
    go.set()
    seen = bench.end(name)
    assert (seen.reason, seen.started_at) == (EndReason.CANCELLED, None)
    assert not (bench.root / "runs/pulled/0/outputs/started").exists()


def test_files_that_take_long_hold_up_nobody_else(bench):
    go = threading.Event()
    bench.blobs.before_read = lambda: go.wait(20)
    tree = bench.blobs.tree({"a": "x"})
    slow = [bench.start(f"slow{number}", files=((".", tree),)) for number in range(6)]
    assert bench.run("quick", "true")[0].reason is EndReason.SUCCEEDED
    go.set()
    assert [bench.end(name).reason for name in slow] == [EndReason.SUCCEEDED] * 6


def test_a_closed_engine_leaves_the_copying_to_the_next(node_root):
    bench = Bench("direct", node_root)
    reading, go = threading.Event(), threading.Event()

    def wait():
        reading.set()
        go.wait(20)

    bench.blobs.before_read = wait
    tree = bench.blobs.tree({"a": "x", "b": "y"})
    name = bench.start("long", "cat a b", files=((".", tree),))
    assert reading.wait(20)
    closer = threading.Thread(target=bench.engine.close)
    closer.start()
    while not bench.engine._starter._closing:
        time.sleep(0.005)
    go.set()
    closer.join(20)
    assert not (node_root / "areas" / name / "workdir").exists()
    bench.restart()
    bench.engine.observe()
    assert (bench.end(name).reason, bench.log(name)) == (EndReason.SUCCEEDED, "xy")
    bench.engine.close()


def alive(bench, name):
    """(the instance's folder, the pid of its supervisor, that of its own process)."""
    folder = bench.root / "instances" / name
    view = instances.look(folder)
    assert view.state
    assert view.state.payload_pid
    assert view.supervisor_pid
    return folder, view.supervisor_pid, view.state.payload_pid


def test_a_killed_supervisor_means_lost_and_leaves_nothing(bench, runtime):
    name = bench.start("orphan", "echo $$; sleep 1000")
    bench.until(name, InstanceState.RUNNING)
    _, supervisor, payload = alive(bench, name)
    os.kill(supervisor, signal.SIGKILL)
    seen = bench.end(name)
    assert (seen.reason, seen.message) == (EndReason.LOST, "its supervisor was killed")
    # Killed it is already; whoever inherited it may take a moment to collect it.
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{payload}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{payload}")


def test_another_boot_means_lost(bench):
    name = bench.start("boot", "exec sleep 1000")
    bench.until(name, InstanceState.RUNNING)
    folder, supervisor, payload = alive(bench, name)
    os.kill(supervisor, signal.SIGKILL)
    os.kill(payload, signal.SIGKILL)
    state = read_json(str(folder / "state.json"))
    assert state
    write_atomic(str(folder), "state.json", state | {"boot_id": "another"})
    seen = bench.end(name)
    assert (seen.reason, seen.message) == (EndReason.LOST, "the machine was restarted")


def test_another_clouds_instances_are_told_and_left_alone(bench, node_root):
    name = bench.start("theirs", f"{WAIT}; exit 4", cloud_id="othercloud")
    assert bench.until(name, InstanceState.RUNNING).cloud_id == "othercloud"
    bench.open_gate(name)
    assert bench.end(name).exit_code == 4


def test_a_thousand_ended_ones_do_not_slow_a_look(bench, node_root):
    for number in range(1000):
        folder = node_root / "instances" / f"old{number}-0-0-0"
        folder.mkdir()
        (folder / "instance.json").write_text(f'{{"cloud_id": "{CLOUD}"}}')
        (folder / "exit.json").write_text('{"version": 1, "ended_at": 1.0, "reason": "finished", "exit_code": 0}')
    assert len(bench.engine.observe().instances) == 1000
    before = time.process_time()
    bench.engine.observe()
    assert time.process_time() - before < 0.1  # about 3 ms; the bound is for a busy machine
