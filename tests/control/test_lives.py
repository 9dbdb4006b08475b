"""Lives of runs from submit to their end, on both databases: what happened, what it cost, what was told."""

import pytest

from cumulo.control.submitting import accept
from cumulo.domain.lifecycle import EndReason, InstanceState, RunStatus
from cumulo.domain.run import Retry, RunKind
from cumulo.placement import order
from cumulo.placement.fit import choose
from cumulo.store import tables
from tests.control.fakes import PRICE, Clock, Cloud, FakeEngine, node, run_spec


def test_a_task_succeeds(any_cloud):
    cloud = any_cloud
    run_id = cloud.submit(gpus="A100:2")
    assert cloud.run(run_id).status == "queued"
    cloud.step()
    assert cloud.run(run_id).status == "starting"
    cloud.turn()
    [name] = cloud.engine.alive()
    assert name == f"{run_id}-0-1-0"
    assert [cloud.engine.spec(name).node, cloud.engine.spec(name).device_uuids] == ["one", ("one-0", "one-1")]

    for state in (InstanceState.PULLING, InstanceState.PREPARING):
        cloud.engine.move(name, state)
        cloud.look()
    cloud.engine.start(name)
    began = cloud.clock()
    cloud.look()
    assert cloud.run(run_id).status == "running"
    cloud.clock.pass_(1000)
    cloud.engine.end(name, cpu_seconds=7.5, max_memory_bytes=1 << 20)
    ended = cloud.clock()
    cloud.look()

    run = cloud.run(run_id)
    assert (run.status, run.exit_code, run.reason, run.message) == ("succeeded", 0, "succeeded", "")
    assert (run.started_at, run.ended_at) == (began, ended)
    assert run.cost_nano == round((ended - began) * 2 * PRICE / 3600)
    assert run.rental_nano > run.cost_nano
    assert cloud.events(run_id) == [
        "run.accepted",
        "run.placed",
        "instance.pulling",
        "instance.preparing",
        "run.running",
        "run.succeeded",
    ]
    [segment] = cloud.rows(tables.usage)
    assert (segment.started_at, segment.ended_at, segment.device_count) == (began, ended, 2)
    assert (cloud.instance(name).cpu_seconds, cloud.instance(name).max_memory_bytes) == (7.5, 1 << 20)
    assert cloud.rows(tables.hold) == []
    assert cloud.engine.released == [name]
    assert cloud.seen == cloud.fresh()


@pytest.mark.parametrize(
    ("end", "reason", "message"),
    [
        ({"exit_code": 3}, "failed", "its command exited with code 3 after 5.5s"),
        ({"exit_code": 137, "reason": EndReason.OUT_OF_MEMORY}, "out_of_memory", ""),
        ({"exit_code": 143, "reason": EndReason.TIMEOUT}, "timeout", "max_duration of 1h 00m was over"),
        (
            {"exit_code": 1, "reason": EndReason.SETUP_FAILED, "message": "pip:\x1b[1m no\nsuch\0 thing"},
            "setup_failed",
            "pip:?[1m no such? thing",
        ),
    ],
    ids=["failure", "out of memory", "timeout", "setup"],
)
def test_a_task_fails(any_cloud, end, reason, message):
    cloud = any_cloud
    run_id, name = cloud.launch(max_duration_s=3600.0)
    cloud.engine.end(name, **end)
    cloud.look()
    run = cloud.run(run_id)
    assert (run.status, run.reason, run.message, run.exit_code) == ("failed", reason, message, end["exit_code"])
    assert cloud.events(run_id)[-1] == "run.failed"


def test_what_could_not_be_started_costs_nothing(any_cloud):
    cloud = any_cloud
    run_id = cloud.submit()
    cloud.look()
    [name] = cloud.instances_of(run_id)
    cloud.engine.end(name, None, EndReason.START_FAILED, "no such command")
    cloud.look()
    run = cloud.run(run_id)
    assert (run.status, run.reason, run.message) == ("failed", "start_failed", "no such command")
    assert (run.started_at, run.cost_nano, cloud.rows(tables.usage)) == (None, 0, [])


def test_a_life_seen_only_at_its_end_is_whole_all_the_same(any_cloud):
    cloud = any_cloud
    run_id = cloud.submit()
    cloud.look()
    [name] = cloud.instances_of(run_id)
    cloud.engine.start(name)
    cloud.clock.pass_(0.25)
    cloud.engine.end(name)
    cloud.look()
    assert cloud.run(run_id).status == "succeeded"
    assert cloud.events(run_id) == ["run.accepted", "run.placed", "run.running", "run.succeeded"]
    assert cloud.run(run_id).cost_nano == round(0.25 * PRICE / 3600)


def test_a_dev_run_stops_starts_and_ends(any_cloud):
    cloud = any_cloud
    run_id, first = cloud.launch(kind=RunKind.DEV)
    cloud.control.want(run_id, "stopped")
    cloud.turn()
    cloud.look()
    run = cloud.run(run_id)
    assert (run.status, run.ended_at, run.reason) == ("stopped", None, "stopped")
    assert cloud.rows(tables.hold) == []

    cloud.boot()
    cloud.ready()
    assert cloud.seen == cloud.fresh()
    cloud.look()
    assert cloud.engine.alive() == [], "a stopped run stays stopped over a restart"

    cloud.control.want(run_id, "running")
    assert (cloud.run(run_id).reason, cloud.run(run_id).exit_code) == (None, None)
    cloud.look()
    [second] = cloud.instances_of(run_id)
    assert second == f"{run_id}-0-2-0"
    cloud.engine.start(second)
    cloud.look()
    assert cloud.run(run_id).status == "running"
    assert cloud.seen == cloud.fresh()

    cloud.control.want(run_id, "cancelled")
    cloud.turn()
    cloud.look()
    assert cloud.run(run_id).status == "cancelled"
    assert cloud.events(run_id) == [
        *("run.accepted", "run.placed", "run.running", "run.stopping", "run.stopped"),
        *("run.queued", "run.placed", "run.running", "run.cancelling", "run.cancelled"),
    ]
    segments = cloud.rows(tables.usage)
    assert {segment.instance_id for segment in segments} == {first, second}
    assert cloud.run(run_id).cost_nano == sum(
        round((each.ended_at - each.started_at) * PRICE / 3600) for each in segments
    )


def test_an_array_runs_so_many_at_once(any_cloud):
    cloud = any_cloud
    run_id = cloud.submit(array=(10, 14, 2))
    cloud.look()
    assert cloud.instances_of(run_id) == [f"{run_id}-0-1-0", f"{run_id}-1-1-0"]
    assert [cloud.engine.spec(name).array_index for name in cloud.instances_of(run_id)] == [10, 11]
    for place in range(5):
        name = f"{run_id}-{place}-1-0"
        cloud.engine.start(name)
        cloud.look()
        cloud.engine.end(name, exit_code=0 if place != 3 else 9)
        cloud.look()
        assert len(cloud.instances_of(run_id)) <= 2
        assert cloud.seen == cloud.fresh()
    run = cloud.run(run_id)
    assert (run.status, run.exit_code, run.reason) == ("failed", 9, "failed")
    assert (run.units_succeeded, run.units_failed, run.units_active) == (4, 1, 0)
    assert run.message == "4 succeeded, 1 failed"
    assert cloud.events(run_id).count("unit.succeeded") == 4
    assert cloud.events(run_id).count("unit.failed") == 1


def test_a_gang_lives_and_dies_together(any_cloud):
    cloud = any_cloud
    cloud.engine.obedient = False
    run_id, first, second = cloud.launch(gpus="A100:4", nodes=2)
    specs = [cloud.engine.spec(name) for name in (first, second)]
    assert [spec.rank for spec in specs] == [0, 1]
    assert [spec.node for spec in specs] == ["one", "two"]
    assert specs[0].master_port == specs[1].master_port
    assert len(specs[0].peers) == 2

    cloud.engine.end(second, exit_code=2)
    cloud.look()
    assert cloud.run(run_id).status == "running", "not before the last of them has ended"
    assert [stopped for stopped, _ in cloud.engine.stops] == [first]
    assert cloud.seen == cloud.fresh()
    cloud.engine.end(first, 143, EndReason.CANCELLED)
    cloud.look()
    run = cloud.run(run_id)
    assert (run.status, run.exit_code) == ("failed", 2)
    assert run.message == "rank 1: its command exited with code 2 after 5.5s"
    assert cloud.instance(first).reason == "peer_ended"
    assert cloud.seen == cloud.fresh()


def test_a_gang_whose_ranks_end_one_after_the_other_succeeds(cloud):
    run_id, first, second = cloud.launch(gpus="A100:4", nodes=2)
    cloud.engine.end(first)
    cloud.look()
    assert cloud.run(run_id).status == "running"
    cloud.boot()
    cloud.ready()
    cloud.look()
    assert cloud.seen == cloud.fresh()
    cloud.engine.end(second)
    cloud.look()
    assert cloud.run(run_id).status == "succeeded"
    assert cloud.seen.instances == {}
    assert cloud.engine.stops == []


def test_a_run_tries_again_with_longer_and_longer_pauses(any_cloud):
    cloud = any_cloud
    run_id = cloud.submit(retry=Retry(on_events=frozenset({"error"}), max_attempts=3, backoff_s=60.0))
    for attempt, pause in ((1, 60.0), (2, 120.0)):
        cloud.look()
        name = f"{run_id}-0-{attempt}-0"
        cloud.engine.start(name)
        cloud.engine.end(name, exit_code=1)
        cloud.look()
        assert cloud.run(run_id).status == "recovering"
        assert cloud.unit(run_id).not_before == cloud.clock() + pause
        assert cloud.seen == cloud.fresh()
        cloud.clock.pass_(pause - 10)
        cloud.look()
        assert cloud.engine.alive() == []
        cloud.clock.pass_(10)
    cloud.look()
    cloud.engine.end(f"{run_id}-0-3-0", exit_code=7)
    cloud.look()
    run = cloud.run(run_id)
    assert (run.status, run.attempts, run.exit_code) == ("failed", 3, 7)
    assert cloud.events(run_id).count("run.recovering") == 2


@pytest.mark.parametrize(
    ("on", "reason", "again"),
    [
        ("error", EndReason.FAILED, True),
        ("error", EndReason.OUT_OF_MEMORY, True),
        ("error", EndReason.LOST, False),
        ("lost", EndReason.LOST, True),
        ("interruption", EndReason.PREEMPTED, True),
        ("error", EndReason.TIMEOUT, False),
        ("error", EndReason.START_FAILED, False),
    ],
)
def test_what_is_tried_again(cloud, on, reason, again):
    run_id, name = cloud.launch(retry=Retry(on_events=frozenset({on}), backoff_s=1.0))
    cloud.engine.end(name, 1, reason)
    cloud.look()
    assert (cloud.run(run_id).status == "recovering") is again


def test_progress_from_the_file_and_from_the_log(cloud):
    run_id, name = cloud.launch(progress_regex=r"epoch (\d+)/(\d+)")
    cloud.engine.start(name, progress='{"done": 1, "total": 4, "unit": "epoch"}')
    cloud.look()
    first = cloud.clock()
    cloud.engine.start(name)
    cloud.inbox.progress(name, '{"done": 2, "total": 4}')
    cloud.step()
    progress = cloud.seen.runs[run_id].last_progress
    assert (progress.done, progress.total) == (2, 4)
    assert f'"since_done": 1.0, "since_at": {first}' in cloud.run(run_id).progress
    commits = cloud.db.commits
    cloud.inbox.progress(name, '{"done": 2, "total": 4}')
    cloud.inbox.progress("nobody-0-1-0", '{"done": 2}')
    cloud.step()
    assert cloud.db.commits == commits, "the same progress is not written twice"
    cloud.boot()
    cloud.ready()
    assert cloud.seen.runs[run_id].last_progress == progress
    assert cloud.seen.runs[run_id].first_progress.at == first


def test_priority_then_age(cloud):
    holder, *_ = cloud.launch(gpus="A100:4", nodes=2, name="holder")
    low = cloud.submit(gpus="A100:4", nodes=2, name="low")
    cloud.clock.pass_(1)
    high = cloud.submit(gpus="A100:4", nodes=2, name="high", priority=5)
    cloud.look()
    for name in cloud.instances_of(holder):
        cloud.engine.end(name)
    cloud.look()
    assert [cloud.run(run_id).status for run_id in (low, high)] == ["queued", "starting"]


def test_the_declared_end_moves_when_the_process_starts(cloud):
    run_id = cloud.submit(max_duration_s=100.0)
    cloud.look()
    [name] = cloud.instances_of(run_id)
    placed = cloud.instance(name).placed_at
    assert cloud.seen.world.holds[name].until == placed + 100
    cloud.look(3)
    cloud.engine.start(name)
    cloud.look()
    assert cloud.seen.world.holds[name].until == cloud.instance(name).started_at + 100


def test_emulated_hardware_has_no_price(quick_db, tmp_path):
    cloud = Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one", emulated=True),))).ready()
    run_id, name = cloud.launch()
    cloud.engine.end(name)
    cloud.look()
    run = cloud.run(run_id)
    assert (run.cost_nano, run.rental_nano, run.placed_on) == (0, 0, "one: 1x A100-80GB (emulated)")


def test_500_waiting_runs_are_refused_by_one_look(cloud, monkeypatch):
    cloud.launch(gpus="A100:4", nodes=2)
    for number in range(500):
        spec = run_spec(gpus="A100:4", name=f"w{number}")
        run_id, _ = accept(cloud.db, spec, account="ada", key=None, fingerprint="", now=cloud.clock())
        cloud.inbox.new_run(run_id)
    cloud.step()
    tried = []
    real = choose

    def noting(world, ask):
        tried.append(ask)
        return real(world, ask)

    monkeypatch.setattr(order, "choose", noting)
    cloud.step()
    assert len(tried) == 1
    assert sum(run.status is RunStatus.QUEUED for run in cloud.seen.runs.values()) == 500
