"""Runs with a deadline in a cloud that runs: how they are bought as time passes, and that they are done in time."""

import json
from concurrent.futures import Executor, Future
from dataclasses import replace

import pytest

from cumulo.control.deadlines_policies import Policies
from cumulo.domain.run import PurchaseOption
from cumulo.store import events, tables
from tests.control.fakes import Clock, Cloud, FakeEngine, node, run_spec

H = 3600.0
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND


class Inline(Executor):
    """Solves at once, so that a test knows what was decided by what."""

    def submit(self, fn, /, *args, **kwargs):
        done: Future[object] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Timed(Cloud):
    """One node of 4 GPUs, and what a test asks of the runs there."""

    def boot(self):
        super().boot()
        self.loop.deadlines.policies = Policies(Inline())

    def due(self, hours, *, work=None, name="train", gpus="A100:4", **changes):
        """Submits a run with a deadline so many hours from now."""
        work_s = None if work is None else work * H
        return self.submit(run_spec(gpus, name=name, deadline_at=self.clock() + hours * H, work_s=work_s, **changes))

    def go(self, *, seconds=0.0):
        """Time passes, and whatever waits for its engine starts."""
        self.clock.pass_(seconds)
        self.look()
        for name in self.engine.alive():
            if not self.engine.starts[name]:
                self.engine.start(name)
        self.look()

    def bought(self, run_id):
        """As what it runs; else as what it waits."""
        now = [str(i.purchase) for i in self.seen.instances.values() if i.run_id == run_id and i.stop_reason is None]
        return now[0] if now else f"waits as {self.seen.runs[run_id].purchase_of(0)}"

    def course(self, run_id):
        [charted] = self.seen.runs[run_id].charted.values()
        return charted.course

    def save(self, instance_id):
        """An instance tells that it saved what it has done."""
        body = self.engine.bodies[instance_id]
        body.seen = replace(body.seen, checkpoint=json.dumps({"checkpoint": self.clock()}))

    def rows_of(self, name):
        return self.rows(tables.metadata.tables[name])

    def said(self, run_id, kind):
        with self.db.read() as tx:
            return [one.message for one in events.page(tx, run_id=run_id, kind=kind, limit=500)]


@pytest.fixture
def cloud(quick_db, tmp_path):
    return Timed(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one"),))).ready()


def test_with_slack_it_runs_on_spot_and_at_last_on_demand_where_it_is(cloud):
    run_id = cloud.due(10, work=4)
    cloud.go()
    assert cloud.bought(run_id) == "spot"
    assert cloud.course(run_id).why.startswith("runs on spot: 5h 5")
    [instance] = cloud.instances_of(run_id)
    cloud.go(seconds=H)
    assert cloud.bought(run_id) == "spot"
    for _ in range(6):
        cloud.go(seconds=H)
    assert cloud.course(run_id).feasible
    assert cloud.bought(run_id) == "on-demand", "it has saved nothing, so there is no time for a second try"
    assert cloud.instances_of(run_id) == [instance], "it was not stopped for that"
    [text] = cloud.said(run_id, "run.switched")
    assert text.startswith("train goes on as on-demand: ")
    assert cloud.unit(run_id).purchase == "on-demand"
    cloud.engine.end(instance)
    cloud.look()
    assert cloud.run(run_id).status == "succeeded"
    assert [(row.purchase, row.ended_at is not None) for row in cloud.rows_of("usage")] == [
        ("spot", True),
        ("on-demand", True),
    ]


def test_what_it_saves_gives_it_slack_again(cloud):
    run_id = cloud.due(6, work=4, grace_s=1.0)
    cloud.go()
    [instance] = cloud.instances_of(run_id)
    for _ in range(8):
        cloud.go(seconds=H / 4)
    assert cloud.bought(run_id) == "on-demand", "two hours are not saved, and there were two of slack"
    cloud.save(instance)
    cloud.go(seconds=60)
    assert cloud.bought(run_id) == "spot"


def test_without_slack_it_is_on_demand_from_the_start(cloud):
    run_id = cloud.due(4.005, work=4)
    cloud.go()
    assert cloud.bought(run_id) == "on-demand"
    assert cloud.said(run_id, "run.switched") == []


def test_who_is_preempted_goes_on_as_spot_or_on_demand_as_time_allows(cloud):
    run_id = cloud.due(4.5, work=4, grace_s=1.0)
    cloud.go()
    hog = cloud.submit("A100:4", name="hog", max_duration_s=600.0)
    cloud.go()
    cloud.go()
    assert cloud.run(run_id).status == "recovering"
    assert cloud.bought(run_id) == "waits as spot"
    assert cloud.course(run_id).why.startswith("waits for spot: ")
    cloud.clock.pass_(600)
    cloud.engine.end(cloud.instances_of(hog)[0])
    cloud.go()
    assert cloud.bought(run_id) == "spot"
    assert cloud.unit(run_id).preemptions == 1


def test_where_on_demand_has_no_room_that_is_said_at_once(cloud):
    run_id = cloud.due(20, work=8, grace_s=1.0)
    cloud.go()
    cloud.submit("A100:4", name="hog")
    for _ in range(4):
        cloud.go(seconds=10)
    assert cloud.bought(run_id) == "waits as on-demand", "it must not wait for spot where on-demand is not sure"
    [text] = cloud.said(run_id, "run.unsure")
    assert text.startswith(
        "train may be late: there is no room for it on-demand for a time that nobody can tell; 11h 5"
    )
    cloud.go(seconds=13 * H)
    [text] = cloud.said(run_id, "run.late")
    assert text.startswith("train can't be done in time: 8h 00m of work and 6h 5")
    cloud.boot()
    cloud.ready()
    cloud.go()
    assert len(cloud.said(run_id, "run.late")) == len(cloud.said(run_id, "run.unsure")) == 1, "each is said once"


def test_work_that_nobody_knows_is_on_demand_until_progress_tells(cloud):
    run_id = cloud.due(10)
    cloud.go()
    assert cloud.bought(run_id) == "on-demand"
    assert cloud.course(run_id).why == "runs on-demand until its progress tells how much work is left"
    [instance] = cloud.instances_of(run_id)
    for done in (1, 2):
        cloud.engine.start(instance, progress=f'{{"done": {done}, "total": 100}}')
        cloud.go(seconds=60)
    charted = cloud.seen.runs[run_id].charted[0]
    assert charted.work_left_s == pytest.approx(98 * 71, rel=0.1)
    assert cloud.bought(run_id) == "spot"


def test_a_restart_goes_on_from_the_store(cloud):
    run_id = cloud.due(10, work=4)
    cloud.go()
    for _ in range(24):
        cloud.go(seconds=H / 4)
    assert cloud.bought(run_id) == "on-demand"
    cloud.boot()
    cloud.ready()
    cloud.go()
    assert cloud.bought(run_id) == "on-demand"
    assert cloud.seen == cloud.fresh()
    assert len(cloud.said(run_id, "run.switched")) == 1


def test_saved_work_of_earlier_attempts_is_known_after_a_restart(cloud):
    run_id = cloud.due(20, work=4, grace_s=1.0)
    cloud.go()
    [instance] = cloud.instances_of(run_id)
    cloud.go(seconds=2 * H)
    cloud.save(instance)
    cloud.submit("A100:4", name="hog", max_duration_s=600.0)
    cloud.go()
    cloud.go()
    left = cloud.seen.runs[run_id].charted[0].work_left_s
    assert left == pytest.approx(2 * H, abs=60)
    cloud.boot()
    cloud.ready()
    cloud.go()
    assert cloud.seen.runs[run_id].charted[0].work_left_s == pytest.approx(left)


def test_spot_instances_are_told_how_likely_spot_is_lost(cloud):
    run_id = cloud.due(20, work=4)
    other = cloud.submit(run_spec(None, name="plain"))
    cloud.go()
    [mine], [plain] = cloud.instances_of(run_id), cloud.instances_of(other)
    hazard = cloud.engine.spec(mine).hazard
    assert hazard == cloud.loop.deadlines.history.hazards(("local", "A100-80GB")).steps()
    assert hazard[0][0] == 0.0
    assert cloud.engine.spec(plain).hazard == ()


def test_an_array_is_steered_index_by_index(cloud):
    run_id = cloud.due(10, work=4, gpus="A100", array=(0, 3, None))
    cloud.go()
    assert len(cloud.instances_of(run_id)) == 4
    assert {str(each.purchase) for each in cloud.seen.instances.values()} == {"spot"}
    tight = cloud.due(10, work=4, gpus=None, array=(0, 9, 4), name="tight")
    cloud.look()
    assert cloud.seen.runs[tight].charted[-1].course.feasible is False, "three rounds of four hours take twelve"


def test_a_run_after_another_is_not_steered_before_its_turn(cloud):
    first, instance = cloud.launch("A100:4", name="first")
    run_id = cloud.due(10, work=4, after=(first,))
    cloud.look()
    assert cloud.seen.runs[run_id].charted == {}
    cloud.engine.end(instance)
    cloud.look()
    cloud.look()
    assert cloud.bought(run_id) == "spot"
