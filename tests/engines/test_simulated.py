"""The simulated engine: what it shares with the local one by the very same tests, and what only it does."""

import json
import re
import signal
import time

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.domain.sharing import whole_devices
from cumulo.engines.protocol import ExecRequest
from cumulo.engines.simulated import SimulatedEngine
from cumulo.engines.simulated.life import SECONDS, STOP_SECONDS
from tests.engines import conftest
from tests.engines.conftest import CLOUD

# The contract: these run here with the engine of this module's `bench`.
from tests.engines.test_lives import (  # noqa: F401
    test_a_look_at_all_is_complete_and_dated,
    test_a_stopped_id_never_starts,
    test_an_old_epoch_is_refused_for_good,
    test_changes_are_hinted,
    test_max_duration_is_enforced,
    test_what_lives_is_not_released,
)

BEGAN = 1_700_000_000.0


class Bench(conftest.Bench):
    """Commands of the contract as their durations: `true` and `sleep N` are all that it needs."""

    def spec(self, name, command, **changes):
        if command == "true":
            command = "sleep 0"
        if sleep := re.match(r"sleep ([0-9.]+)", command):
            changes["env"] = {SECONDS: sleep[1]} | changes.get("env", {})
        return super().spec(name, command, **changes)


@pytest.fixture
def bench(node_root, monkeypatch):
    monkeypatch.setattr(conftest, "open_engine", lambda kind, root, blobs: _engine(root))
    bench = Bench("simulated", node_root)
    yield bench
    bench.engine.close()


@pytest.fixture
def runtime():
    """It has none."""


class Clock:
    def __init__(self):
        self.now = BEGAN

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timed(node_root, clock, monkeypatch):
    """A bench whose time stands still until the test moves it."""
    monkeypatch.setattr(conftest, "open_engine", lambda kind, root, blobs: _engine(root, clock=clock))
    bench = Bench("simulated", node_root)
    yield bench
    bench.engine.close()


def _engine(root, **options):
    return SimulatedEngine(root=root, cloud_id=CLOUD, nodes="2x A100-80GB:8,cpu", **options)


def test_its_nodes_bear_its_name(bench):
    nodes = bench.engine.nodes()
    assert [(node.name, len(node.devices)) for node in nodes] == [
        ("simulated-0", 8),
        ("simulated-1", 8),
        ("simulated-2", 0),
    ]
    assert all(node.emulated for node in nodes)
    assert (bench.engine.name, bench.engine.kind) == ("simulated", "simulated")
    assert "nothing of it is started" in bench.engine.doctor()[0].text
    assert bench.engine.telemetry().devices == ()


def test_more_nodes_than_can_be_emulated(node_root):
    engine = SimulatedEngine(root=node_root, cloud_id=CLOUD, nodes="1213x A10:8")
    assert len(engine.nodes()) == 1213
    engine.close()


def test_a_run_goes_on_until_it_is_stopped(timed, clock):
    name = timed.start("steady", "python train.py", slices=whole_devices(("GPU-1",)))
    clock.now += 1e6
    seen = timed.look(name)
    assert (seen.state, seen.started_at, seen.slices) == (InstanceState.RUNNING, BEGAN, whole_devices(("GPU-1",)))
    timed.engine.stop(name, 30.0, 1)
    seen = timed.look(name)
    assert (seen.state, seen.reason, seen.signal) == (InstanceState.ENDED, EndReason.CANCELLED, signal.SIGTERM)
    assert seen.ended_at == clock.now


def test_it_succeeds_after_its_seconds(timed, clock):
    name = timed.start("short", "x", env={SECONDS: "60"})
    clock.now += 59.9
    assert timed.look(name).state is InstanceState.RUNNING
    clock.now += 5
    seen = timed.look(name)
    assert (seen.reason, seen.exit_code, seen.ended_at) == (EndReason.SUCCEEDED, 0, BEGAN + 60)
    assert "simulated" in seen.message
    assert timed.log(name) == ""


@pytest.mark.parametrize("told", ["soon", "-1", "nan", "inf", ""])
def test_seconds_that_are_none_are_told(timed, told):
    seen = timed.look(timed.start("odd", "x", env={SECONDS: told}))
    assert (seen.reason, seen.started_at) == (EndReason.START_FAILED, None)
    assert seen.message == f"{SECONDS} is {told!r}: it must be a number of seconds, 0 or more"


def test_it_takes_its_time_to_stop_within_the_grace(timed, clock):
    name = timed.start("slow", "x", env={STOP_SECONDS: "8"})
    timed.engine.stop(name, 10.0, 1)
    clock.now += 7
    assert timed.look(name).state is InstanceState.STOPPING
    clock.now += 7
    seen = timed.look(name)
    assert (seen.ended_at, seen.signal) == (BEGAN + 8, signal.SIGTERM)


def test_what_outlasts_the_grace_is_killed(timed, clock):
    name = timed.start("stubborn", "x", env={STOP_SECONDS: "60"})
    timed.engine.stop(name, 10.0, 1)
    clock.now += 2
    timed.engine.stop(name, 3.0, 1)  # told again, with less patience
    clock.now += 60
    seen = timed.look(name)
    assert (seen.reason, seen.ended_at, seen.signal) == (EndReason.CANCELLED, BEGAN + 5, signal.SIGKILL)


def test_who_makes_room_has_until_the_moment_told(timed, clock):
    name = timed.start("leaves", "x", env={STOP_SECONDS: "60"})
    clock.now += 0.5  # it took so long to reach the engine
    timed.engine.stop(name, 10.0, 1, BEGAN + 10.0)
    clock.now += 1
    timed.engine.stop(name, 10.0, 1, BEGAN + 10.0)  # asked again, as after a restart
    clock.now += 60
    assert timed.look(name).ended_at == BEGAN + 10.0


def test_what_ended_in_time_was_not_cancelled(timed, clock):
    name = timed.start("first", "x", env={SECONDS: "5", STOP_SECONDS: "60"})
    clock.now += 4
    timed.engine.stop(name, 30.0, 1)
    clock.now += 60
    assert timed.look(name).reason is EndReason.SUCCEEDED


def test_a_stop_after_the_end_changes_nothing(timed, clock):
    name = timed.start("over", "x", env={SECONDS: "5"})
    clock.now += 10
    timed.engine.stop(name, 30.0, 1)
    timed.restart()
    assert timed.look(name).reason is EndReason.SUCCEEDED


def test_ensure_twice_starts_once(timed, clock):
    name = timed.start("twice", "x")
    clock.now += 10
    timed.start("twice", "x")
    assert timed.look(name).started_at == BEGAN


def test_a_release_makes_it_vanish_and_never_come_back(timed, clock):
    name = timed.start("gone", "x", env={SECONDS: "0"})
    timed.engine.release(name, 1)
    timed.engine.release(name, 1)
    for _ in range(2):
        timed.start("gone", "x")
        timed.engine.stop(name, 1.0, 1)
        assert timed.engine.observe().instances == ()
        assert timed.log(name) == ""
        timed.restart()


def test_a_new_engine_knows_all_that_the_old_one_knew(timed, clock):
    timed.epoch = 3
    runs = timed.start("runs", "x", slices=whole_devices(("GPU-1", "GPU-2")))
    ends = timed.start("ends", "x", env={SECONDS: "0"}, max_duration_s=100.0)
    stops = timed.start("stops", "x", env={STOP_SECONDS: "20"})
    timed.engine.stop(stops, 30.0, 3)
    timed.engine.stop("never-0-0-0", 30.0, 3)
    clock.now += 10
    before = timed.engine.observe()
    timed.restart()
    assert timed.engine.observe() == before
    assert timed.look(runs).state is InstanceState.RUNNING
    assert timed.look(ends).reason is EndReason.SUCCEEDED
    assert timed.look(stops).state is InstanceState.STOPPING
    assert timed.look("never-0-0-0").started_at is None
    clock.now += 10
    assert timed.look(stops).ended_at == BEGAN + 20


def test_a_line_that_was_cut_off_is_left(timed, node_root):
    timed.start("whole", "x")
    timed.engine.close()
    with open(node_root / "journal", "a") as file:
        file.write('{"life":{"instance_id":"torn-0')
    timed.engine = _engine(node_root)
    assert [seen.instance_id for seen in timed.engine.observe().instances] == ["whole-0-0-0"]


def test_another_clouds_instance_is_told_as_such(timed):
    name = timed.start("theirs", "x", cloud_id="othercloud")
    assert timed.look(name).cloud_id == "othercloud"


def test_nothing_can_be_opened_inside(timed):
    name = timed.start("closed", "x")
    with pytest.raises(CumuloError, match="is simulated"):
        timed.engine.stream(name, ExecRequest(argv=("sh",)))
    with pytest.raises(KeyError):
        timed.engine.stream("unknown-0-0-0", ExecRequest(argv=("sh",)))
    with pytest.raises(KeyError):
        timed.engine.read_log("unknown-0-0-0", 0)


def test_what_was_let_go_long_ago_is_swept(timed, clock, node_root):
    for name in ("old", "kept"):
        timed.engine.release(timed.start(name, "x", env={SECONDS: "0"}), 1)
    timed.start("runs", "x")
    clock.now += 86400.0
    sweep = {"keep_s": 7200.0, "environments_s": 0.0, "active_runs": frozenset({"kept"})}
    assert timed.engine.sweep(**sweep, dry_run=True)[0].count == 1
    assert timed.engine.storage()[0].count == 3
    (swept,) = timed.engine.sweep(**sweep)
    assert (swept.what, swept.count) == ("records", 1)
    assert swept.bytes > 0
    names = [json.loads(line).get("release") for line in (node_root / "journal").read_text().splitlines()]
    assert names == [None, "kept-0-0-0"]
    timed.start("new", "x")
    timed.restart()
    assert {seen.instance_id for seen in timed.engine.observe().instances} == {"runs-0-0-0", "new-0-0-0"}


def test_a_disk_that_takes_nothing_is_told(timed, monkeypatch):
    def refuse(line):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(timed.engine._journal, "append", refuse)
    with pytest.raises(CumuloError) as error:
        timed.start("full", "x")
    assert error.value.code == "storage_full"
    assert timed.engine.observe().instances == ()


def test_a_look_at_ten_thousand_is_quick(timed):
    for number in range(10_000):
        timed.start(f"many{number}", "x")
    timed.engine.observe()
    before = time.process_time()
    assert len(timed.engine.observe().instances) == 10_000
    assert time.process_time() - before < 0.2  # about 3 ms; the bound is for a busy machine
