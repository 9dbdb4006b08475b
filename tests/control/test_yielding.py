"""Who makes room for whom in a cloud that runs: room that is kept, preemption, moves, and restarts amid all that."""

import pytest

from cumulo.control.rules import Policy, ProjectRules, Quota, Rules
from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import EndReason
from cumulo.domain.run import PurchaseOption, Retry, RunKind
from cumulo.store import people, tables
from tests.control.fakes import GPU, Clock, Cloud, FakeEngine, node, run_spec
from tests.databases import NOW

SPOT = PurchaseOption.SPOT


@pytest.fixture
def make(quick_db, tmp_path):
    """A cloud of some nodes under a policy, with the projects that it names."""

    def make(*nodes, change_sharing_mode=True, **policy):
        rules = Rules(policy=Policy(**policy), change_sharing_mode=change_sharing_mode)
        with quick_db.write() as tx:
            for name in (*rules.policy.projects, "theirs", "third"):
                people.ensure_project(tx, name, created_by="ada", now=NOW)
        return Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), nodes or (node("one"),)), rules=rules).ready()

    return make


@pytest.fixture
def slow(make):
    """One node of 4 GPUs; what is told to stop takes its time."""
    cloud = make()
    cloud.engine.obedient = False
    return cloud


def end(cloud, *names):
    """They end as what was told to stop does."""
    for name in names:
        cloud.engine.end(name, 143, EndReason.CANCELLED)
    cloud.look()


def status(cloud, run_id):
    return cloud.run(run_id).status


# ---- room is kept for who waits -------------------------------------------------------------------------------------


def test_a_large_run_is_not_starved_by_small_ones(make):
    cloud = make()
    _, first = cloud.launch("A100:3", name="first", max_duration_s=600.0)
    large = cloud.submit("A100:4", name="large")
    cloud.clock.pass_(1.0)
    small = [cloud.submit("A100", name=f"small{number}") for number in range(3)]
    cloud.look()
    assert [status(cloud, run_id) for run_id in (large, *small)] == ["queued"] * 4
    why = cloud.control.why(small[0])
    assert why.binding == "reservation"
    assert why.summary.startswith("the room is kept for large, which is next in 9m")
    assert {row.name: row.waiting_for for row in cloud.control.queue()}["small0"] == why.summary
    cloud.engine.end(first)
    cloud.look()
    assert [status(cloud, run_id) for run_id in (large, *small)] == ["starting", "queued", "queued", "queued"]


def test_what_ends_before_the_head_is_due_starts_beside_it(make):
    cloud = make()
    cloud.launch("A100:3", name="first", max_duration_s=600.0)
    large = cloud.submit("A100:4", name="large")
    cloud.clock.pass_(1.0)
    quick = cloud.submit("A100", name="quick", max_duration_s=300.0)
    long = cloud.submit("A100", name="long", max_duration_s=900.0)
    cloud.look()
    assert [status(cloud, run_id) for run_id in (large, quick, long)] == ["queued", "starting", "queued"]
    assert not cloud.control.plan(run_spec("A100", name="another"), account="ada").starts_now


def test_what_was_learnt_tells_when_room_for_the_head_is_there(make):
    cloud = make(node("one"), node("two"))
    for _ in range(6):
        _, name = cloud.launch("A100:3", name="first")
        cloud.clock.pass_(1000.0)
        cloud.engine.end(name)
        cloud.look()
    cloud.launch("A100:3", name="first")
    cloud.launch("A100:3", name="second", max_duration_s=9000.0)
    cloud.submit("A100:4", name="large")
    cloud.clock.pass_(1.0)
    short = cloud.submit("A100", name="short", max_duration_s=60.0)
    cloud.look()
    assert status(cloud, short) == "starting", "it has ended long before a run like `first` has"


# ---- preemption -----------------------------------------------------------------------------------------------------


def test_a_spot_run_makes_room_and_comes_back(slow):
    cloud = slow
    spot, victim = cloud.launch("A100:4", name="spot", purchase=SPOT, grace_s=20.0)
    mine = cloud.submit("A100:2", name="mine")
    cloud.look()
    assert cloud.engine.stops == [(victim, 20.0)]
    assert (status(cloud, spot), status(cloud, mine)) == ("running", "queued")
    why = cloud.control.why(mine)
    assert (why.summary, why.binding) == (f"spot ({spot}) is stopping to make room for it", "preemption")
    beside = cloud.control.plan(run_spec("A100:2"), account="ada")
    assert not beside.starts_now, "the room beside it is not free before `spot` has left"
    assert cloud.control.why(spot).summary == f"it is being stopped to make room for mine ({mine}); it has 20s to leave"
    cloud.look(3)
    assert cloud.engine.stops == [(victim, 20.0)], "it has its grace, and nobody is stopped twice for the same"

    end(cloud, victim)
    assert (status(cloud, spot), status(cloud, mine)) == ("recovering", "starting")
    assert cloud.instance(victim).reason == "preempted"
    assert cloud.unit(spot).preemptions == 1
    assert cloud.events(spot)[-2:] == ["run.preempted", "run.recovering"]
    assert cloud.seen == cloud.fresh()
    [name] = cloud.instances_of(mine)
    cloud.engine.end(name)
    cloud.look()
    assert status(cloud, spot) == "starting"
    assert cloud.instances_of(spot) == [f"{spot}-0-2-0"]


def test_being_preempted_is_no_failure(make):
    cloud = make()
    spot, _ = cloud.launch("A100:4", purchase=SPOT, retry=Retry(on_events=frozenset({"error"}), max_attempts=2))
    for number in range(3):
        mine = cloud.submit("A100:4", name=f"mine{number}")
        cloud.look(2)
        [name] = cloud.instances_of(mine)
        cloud.engine.start(name)
        cloud.look()
        cloud.engine.end(name)
        cloud.look()
    assert cloud.unit(spot).preemptions == 3
    cloud.engine.end(cloud.instances_of(spot)[0], 1)
    cloud.look(4)
    assert (cloud.unit(spot).attempts, status(cloud, spot)) == (5, "starting"), "the first failure of two"
    cloud.engine.end(cloud.instances_of(spot)[0], 1)
    cloud.look(4)
    assert status(cloud, spot) == "failed"


def test_no_more_is_stopped_than_must_be_and_a_gang_goes_whole(slow):
    cloud = slow
    cloud.engine.there = (node("one"), node("two"))
    cloud.look()
    gang, *ranks = cloud.launch("A100:3", nodes=2, name="gang", purchase=SPOT)
    other, _ = cloud.launch("A100", name="other", purchase=SPOT)
    cloud.submit("A100:3", name="mine")
    cloud.look()
    assert sorted(name for name, _ in cloud.engine.stops) == sorted(ranks)
    end(cloud, *ranks)
    assert (status(cloud, gang), status(cloud, other)) == ("recovering", "running")


def test_what_ends_well_in_its_grace_is_done(slow):
    spot, victim = slow.launch("A100:4", purchase=SPOT)
    mine = slow.submit("A100:4")
    slow.look()
    slow.engine.end(victim)
    slow.look()
    assert (status(slow, spot), status(slow, mine)) == ("succeeded", "starting")


@pytest.mark.parametrize("kind", [RunKind.TASK, RunKind.DEV])
def test_who_is_cancelled_while_making_room_does_not_come_back(slow, kind):
    spot, victim = slow.launch("A100:4", purchase=SPOT, kind=kind)
    slow.submit("A100:4")
    slow.look()
    slow.control.want(spot, "cancelled")
    end(slow, victim)
    assert status(slow, spot) == "cancelled"


def test_a_dev_run_that_is_stopped_while_making_room_stays_stopped(slow):
    spot, victim = slow.launch("A100:4", purchase=SPOT, kind=RunKind.DEV)
    slow.submit("A100:4")
    slow.look()
    slow.control.want(spot, "stopped")
    end(slow, victim)
    assert status(slow, spot) == "stopped"


def test_room_that_nobody_wants_any_more_is_free(slow):
    spot, victim = slow.launch("A100:4", purchase=SPOT)
    mine = slow.submit("A100:4")
    slow.look()
    slow.control.want(mine, "cancelled")
    end(slow, victim)
    assert status(slow, spot) == "starting"


def test_others_that_wait_do_not_take_the_room(slow):
    """Indices of a spot array have waited for longer than who they make room for."""
    spot = slow.submit("A100", name="spot", purchase=SPOT, array=(0, 9, None))
    slow.look()
    names = slow.instances_of(spot)
    for name in names:
        slow.engine.start(name)
    slow.look()
    mine = slow.submit("A100:2", name="mine")
    slow.look()
    gone = [name for name, _ in slow.engine.stops]
    assert len(gone) == 2
    end(slow, gone[0])
    assert status(slow, mine) == "queued"
    end(slow, gone[1])
    assert status(slow, mine) == "starting"
    assert len(slow.engine.stops) == 2


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_restart_amid_a_preemption_loses_and_doubles_nothing(slow, left):
    cloud = slow
    victims = [cloud.launch("A100", name=f"spot{number}", purchase=SPOT)[1] for number in range(4)]
    mine = cloud.submit("A100:2", name="mine", max_duration_s=600.0)
    cloud.look()
    stopped = sorted(name for name, _ in cloud.engine.stops)
    assert len(stopped) == 2
    for name in stopped[:left]:
        cloud.engine.end(name, 143, EndReason.CANCELLED)
    before = list(cloud.seen.promises)
    cloud.boot()
    cloud.loop.load()
    assert [found.waiting for found in cloud.seen.promises] == [found.waiting for found in before]
    cloud.ready()
    cloud.look(2)
    assert {name for name, _ in cloud.engine.stops} == set(stopped), "no others are stopped"
    end(cloud, *stopped[left:])
    assert status(cloud, mine) == "starting"
    assert len([name for name in cloud.engine.alive() if name in victims]) == 2
    assert cloud.seen == cloud.fresh()


def test_a_write_that_fails_stops_nobody(slow):
    _, victim = slow.launch("A100:4", purchase=SPOT)
    slow.submit("A100:4")
    slow.fail = "before"
    assert not slow.step()
    slow.turn()
    assert slow.engine.stops == []
    slow.look()
    assert [name for name, _ in slow.engine.stops] == [victim]


def test_nobody_is_preempted_where_the_admin_forbids_it(make):
    cloud = make(preemption=False)
    spot, _ = cloud.launch("A100:4", purchase=SPOT)
    mine = cloud.submit("A100:4")
    cloud.look(2)
    assert (status(cloud, spot), status(cloud, mine)) == ("running", "queued")


# ---- projects -------------------------------------------------------------------------------------------------------


def test_what_a_project_is_sure_of_is_taken_back_from_who_borrowed_it(make):
    cloud = make(projects={"mine": ProjectRules(guaranteed={GPU: 2})})
    first, _ = cloud.launch("A100:2", name="first", project="theirs")
    last, name = cloud.launch("A100:2", name="last", project="theirs")
    mine = cloud.submit("A100:2", name="mine", project="mine")
    cloud.look(2)
    assert cloud.instance(name).reason == "preempted" or cloud.instance(name).stop_reason == "preempted"
    assert (status(cloud, first), status(cloud, last), status(cloud, mine)) == ("running", "recovering", "starting")


def test_a_quota_holds_and_is_told(make):
    cloud = make(projects={"mine": ProjectRules(quota=Quota(gpus=2))})
    cloud.launch("A100:2", project="mine")
    run_id = cloud.submit("A100", name="late", project="mine")
    other = cloud.submit("A100", name="other")
    cloud.look()
    assert (status(cloud, run_id), status(cloud, other)) == ("queued", "starting")
    why = cloud.control.why(run_id)
    assert (why.summary, why.binding) == ("project mine holds 2 of its quota of 2 GPUs, 1 asked", "quota")
    assert [row.waiting_for for row in cloud.control.queue()] == [why.summary]


def test_more_than_a_quota_can_ever_admit_is_refused(make):
    cloud = make(projects={"mine": ProjectRules(quota=Quota(kinds={GPU: 2}))})
    with pytest.raises(CumuloError, match="project mine holds 0 of its quota of 2 A100-80GB, 3 asked") as caught:
        cloud.submit("A100:3", project="mine")
    assert caught.value.code == "quota_exceeded"
    assert cloud.submit("A100:3", project="mine", queue=True)


def test_who_has_used_less_comes_first_and_that_outlasts_a_restart(make):
    cloud = make(half_life_s=3600.0)
    _, name = cloud.launch("A100:4", project="theirs")
    cloud.clock.pass_(3000.0)
    cloud.engine.end(name)
    cloud.look()
    used = cloud.seen.ledger.usage.average("theirs", cloud.clock())
    assert 4000 * 0.4 < used.gpus_milli < 4000 * 0.5
    cloud.boot()
    cloud.ready()
    again = cloud.seen.ledger.usage.average("theirs", cloud.clock())
    assert again == pytest.approx(used, rel=0.02)
    _, name = cloud.launch("A100:4", name="blocker", project="third")
    theirs = cloud.submit("A100:4", name="theirs", project="theirs")
    cloud.clock.pass_(1.0)
    mine = cloud.submit("A100:4", name="mine")
    cloud.look()
    assert [row.run_id for row in cloud.control.queue()] == [mine, theirs]
    cloud.engine.end(name)
    cloud.look()
    assert (status(cloud, mine), status(cloud, theirs)) == ("starting", "queued")


# ---- making room ----------------------------------------------------------------------------------------------------


def test_small_runs_move_out_of_the_way(make):
    cloud = make(node("one", 2), node("two", 2), make_room=True)
    ids = [cloud.launch("A100", name=f"small{number}", migratable=True) for number in range(3)]
    cloud.engine.end(ids[1][1])
    cloud.look()
    assert {cloud.instance(name).node_id for _, name in (ids[0], ids[2])} == {"local/one", "local/two"}
    large = cloud.submit("A100:2", name="large")
    cloud.look(3)
    assert status(cloud, large) == "starting"
    moved = [run_id for run_id, _ in (ids[0], ids[2]) if cloud.unit(run_id).preemptions]
    assert len(moved) == 1
    assert status(cloud, moved[0]) == "starting"
    with cloud.db.read() as tx:
        [event] = [row for row in tx.execute(tables.event.select()) if row.kind == "run.preempted"]
    assert event.message.endswith(f"is moved to make room for large ({large})")


def test_nobody_moves_unless_the_admin_allows_it(make):
    cloud = make(node("one", 2), node("two", 2))
    ids = [cloud.launch("A100", name=f"small{number}", migratable=True) for number in range(3)]
    cloud.engine.end(ids[1][1])
    cloud.look()
    large = cloud.submit("A100:2", name="large")
    cloud.look(2)
    assert status(cloud, large) == "queued"


def test_a_gpu_stays_in_its_mode_where_the_admin_wants_that(make):
    cloud = make(change_sharing_mode=False)
    run_id = cloud.submit("A100:0.5", queue=True)
    cloud.look()
    assert status(cloud, run_id) == "queued", "a fraction needs another mode than the first of the node's"
