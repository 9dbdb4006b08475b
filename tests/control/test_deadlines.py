"""Runs with a deadline in a cloud that runs: how they are bought as time passes, and that they are done in time."""

import json
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.event import listen

from cumulo.control.deadlines_policies import Policies
from cumulo.control.live import FRESH
from cumulo.control.moves import stop_instance
from cumulo.control.prices import Pool
from cumulo.control.reserving import Wanted
from cumulo.domain.ask import parse_gpu_ask
from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import EndReason
from cumulo.domain.run import PurchaseOption
from cumulo.market.deadline import ORDER, Choice, Job
from cumulo.store import events, people, schema, tables
from cumulo.store.batch import Batch
from cumulo.store.database import Database
from tests.control.fakes import PRICE, Clock, Cloud, FakeEngine, node, run_spec
from tests.databases import CLOUD_ID, NOW

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

    def preempt(self, instance):
        """Takes it away, whoever it is for."""
        batch = Batch()
        stop_instance(batch, self.seen.runs[instance.run_id], instance, EndReason.PREEMPTED, None, self.clock())
        with self.db.write() as tx:
            batch.flush(tx)
        self.engine.stop(instance.id, 2.0, self.engine.epoch)

    def settle(self):
        """What there is to see is taken in, and the engine is told what follows."""
        self.turn()
        self.step()
        self.turn()
        for name in self.engine.alive():  # a rival runs at once
            if not self.engine.starts[name] and "rival" in self.engine.spec(name).run_name:
                self.engine.start(name)

    def rows_of(self, name):
        return self.rows(tables.metadata.tables[name])

    def said(self, run_id, kind):
        with self.db.read() as tx:
            return [one.message for one in events.page(tx, run_id=run_id, kind=kind, limit=500)]


class Whim:
    """A policy that wants one thing, whatever it costs."""

    job = Job(work_s=4 * H, deadline_s=10 * H, changeover_s=60.0, spot=0.3, on_demand=1.0, tick_s=3.0)

    def __init__(self, wanted):
        self.wanted = wanted

    def costs(self, state):
        found = np.array([0.0 if each is self.wanted else 1.0 for each in ORDER])
        return found if state.available else np.where([True, True, False], found, np.inf)


@contextmanager
def fresh_cloud(folder):
    """For a test that makes many."""
    db = Database.open(None, home=folder)
    listen(db.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    schema.prepare(db, cloud_id=CLOUD_ID, now=NOW)
    try:
        yield Timed(db, folder, engine=FakeEngine(Clock(), (node("one"),))).ready()
    finally:
        db.close()


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
    first, second = cloud.rows_of("usage")
    assert (first.purchase, second.purchase, second.price_nano_h) == ("spot", "on-demand", 4 * PRICE)
    assert first.ended_at == second.started_at
    cost = sum((row.ended_at - row.started_at) * row.price_nano_h / 3600 for row in (first, second))
    assert cloud.run(run_id).cost_nano == pytest.approx(cost, abs=2)
    assert 0 < first.price_nano_h < second.price_nano_h


def test_a_run_whose_turn_comes_too_late_is_told_so_before(cloud):
    first, _ = cloud.launch("A100:4", name="first")
    run_id = cloud.due(10, work=4, after=(first,))
    cloud.go(seconds=7 * H)
    [text] = cloud.said(run_id, "run.late")
    assert text.startswith("train can't be done in time: 4h 00m of work and 2h 59m of time are left")
    assert cloud.control.why(run_id).deadline.feasible is False


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
    for _ in range(6):
        cloud.go(seconds=H)
    assert cloud.bought(run_id) == "on-demand"
    cloud.boot()
    cloud.ready()
    cloud.go()
    assert cloud.bought(run_id) == "on-demand"
    assert cloud.seen == cloud.fresh()
    assert len(cloud.said(run_id, "run.switched")) == 1


def test_saved_work_of_earlier_attempts_is_known_after_a_restart(db, tmp_path):
    """On SQLite and on PostgreSQL."""
    cloud = Timed(db, tmp_path, engine=FakeEngine(Clock(), (node("one"),))).ready()
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
    assert hazard == cloud.loop.deadlines.history.hazards(Pool("local", "A100-80GB")).steps()
    assert hazard[0][0] == 0.0
    assert cloud.engine.spec(plain).hazard == ()


def test_an_array_is_steered_index_by_index(cloud):
    run_id = cloud.due(10, work=4, gpus="A100", array=(0, 3, None))
    cloud.go()
    assert len(cloud.instances_of(run_id)) == 4
    assert {str(each.purchase) for each in cloud.seen.instances.values()} == {"spot"}


def test_of_an_array_with_few_at_once_all_rounds_must_be_done_in_time(cloud):
    with pytest.raises(CumuloError, match="12h 00m of work can't be done in 10h 00m"):
        cloud.due(10, work=4, gpus=None, array=(0, 9, 4))
    run_id = cloud.due(13, work=4, gpus="A100", array=(0, 2, 1))
    cloud.look()
    assert cloud.bought(run_id) == "spot"
    assert cloud.seen.runs[run_id].charted[FRESH].work_left_s == 4 * H


def test_a_run_after_another_is_not_steered_before_its_turn(cloud):
    first, instance = cloud.launch("A100:4", name="first")
    run_id = cloud.due(10, work=4, after=(first,))
    cloud.look()
    assert cloud.seen.runs[run_id].charted == {}
    told = cloud.control.deadline(run_id)
    assert (told.choice, told.text[:38]) == ("", "is not decided before the runs that it")
    cloud.engine.end(instance)
    cloud.look()
    cloud.look()
    assert cloud.bought(run_id) == "spot"


# ---- reserved for others --------------------------------------------------------------------------------------------


def reserve(cloud, gpus):
    """Others reserve so many of the four GPUs."""
    with cloud.db.write() as tx:
        people.ensure_project(tx, "x", created_by="ada", now=NOW)
    wanted = Wanted(
        project="x",
        account="ada",
        gpu=parse_gpu_ask(gpus),
        term_s=30 * 24 * H,
        starts_at=None,
        upfront=False,
        name=None,
    )
    return cloud.control.reserve(wanted)


def test_on_what_is_reserved_for_others_it_stays_spot_and_that_is_said(cloud):
    reserve(cloud, "A100:2")
    run_id = cloud.due(10, work=4, grace_s=1.0)
    cloud.go()
    assert cloud.bought(run_id) == "spot", "it takes what the reservation does not use"
    assert cloud.course(run_id).why.startswith("may be late: it runs on GPUs that are reserved for others")
    assert len(cloud.said(run_id, "run.unsure")) == 1
    for _ in range(4):
        cloud.go(seconds=2 * H)
    assert cloud.bought(run_id) == "spot", "on-demand it could not make room for them"
    cloud.submit("A100:2", name="theirs", purchase=PurchaseOption.RESERVED, project="x")
    for _ in range(3):
        cloud.go()
    assert cloud.run(run_id).status == "recovering"
    assert cloud.bought(run_id) == "waits as spot"


def test_beside_what_is_reserved_it_goes_on_demand(cloud):
    reserve(cloud, "A100:2")
    run_id = cloud.due(5, work=4, gpus="A100:2", grace_s=1.0)
    for _ in range(4):
        cloud.go(seconds=H)
    assert cloud.bought(run_id) == "on-demand"
    assert cloud.said(run_id, "run.unsure") == []


# ---- what is refused, and what is told ------------------------------------------------------------------------------


def refused(cloud, **given):
    with pytest.raises(CumuloError) as caught:
        cloud.due(**given)
    assert caught.value.code == "invalid_run_file"
    assert caught.value.details["path"] == ["deadline"]
    return caught.value


def test_a_deadline_that_is_past_or_too_near_is_refused(cloud):
    assert refused(cloud, hours=-2).message == "deadline: it was 2h 00m ago"
    error = refused(cloud, hours=3, work=4)
    assert error.message == "deadline: 4h 00m of work can't be done in 3h 00m, even on-demand from now on"
    assert error.hint == "the earliest is in 4h 00m: give --deadline 14402s or later"
    assert error.details["earliest"] == "2025-10-09T12:53:22+00:00"
    with pytest.raises(CumuloError, match="it was 1h 00m ago"):
        cloud.control.plan(run_spec("A100", deadline_at=cloud.clock() - H), account="ada")


def test_a_repeated_submission_is_answered_though_its_deadline_has_passed(cloud):
    spec = run_spec("A100", deadline_at=cloud.clock() + H, work_s=60.0)
    run_id = cloud.submit(spec, key="k")
    cloud.clock.pass_(2 * H)
    assert cloud.submit(spec, key="k") == run_id


def test_a_plan_tells_how_it_would_be_bought_and_for_how_much(cloud):
    spec = run_spec("A100:4", deadline_at=cloud.clock() + 10 * H, work_s=4 * H)
    told = cloud.control.plan(spec, account="ada").deadline
    assert told is not None
    assert (told.choice, told.feasible, told.work_left_s) == ("spot", True, 4 * H)
    assert told.text.startswith("is to run on spot: 5h 5")
    assert cloud.clock() < told.on_demand_at < cloud.clock() + 6 * H
    assert told.on_demand_cost_nano == pytest.approx(4 * 4 * PRICE, rel=1e-3)
    assert 0.1 * told.on_demand_cost_nano < told.expected_cost_nano < 0.9 * told.on_demand_cost_nano
    assert cloud.control.plan(run_spec("A100"), account="ada").deadline is None


def test_why_and_status_tell_what_it_does(cloud):
    run_id = cloud.due(10, work=4)
    cloud.go()
    told = cloud.control.why(run_id).deadline
    assert told == cloud.control.deadline(run_id)
    assert (told.choice, told.text[:16]) == ("spot", "runs on spot: 5h")
    assert told.done_at == pytest.approx(cloud.clock() + 4 * H, abs=60)
    assert cloud.control.deadline(cloud.submit("A100")) is None


def test_who_leaves_alone_the_spot_that_is_there_does_not_stand_in_the_queue(cloud):
    run_id = cloud.due(10, work=4)
    cloud.loop.deadlines.policies.get = lambda *_: Whim(Choice.WAIT)
    cloud.look()
    assert cloud.run(run_id).status == "queued"
    assert cloud.seen.waiting(cloud.clock(), 1) == []
    why = cloud.control.why(run_id)
    assert (why.binding, why.summary[:12]) == ("deadline", "it holds off")
    [row] = cloud.control.queue()
    assert row.waiting_for == why.summary
    for _ in range(40):
        cloud.go(seconds=600)
    assert cloud.bought(run_id) == "on-demand", "but it starts in time"


# ---- never late -----------------------------------------------------------------------------------------------------


class Program:
    """What a run does: it works from its last save on, and ends when all is done. Moved by `tick`."""

    def __init__(self, cloud, run_id, work_s, saves_every_s):
        self.cloud, self.run_id, self.work_s, self.every = cloud, run_id, work_s, saves_every_s
        self.saved, self.at = 0.0, {}

    @property
    def over(self):
        return self.run_id not in self.cloud.seen.runs

    def tick(self):
        """Starts what was asked for; saves; ends."""
        for name in self.cloud.instances_of(self.run_id):
            body = self.cloud.engine.bodies[name].seen
            if body.started_at is None:
                self.cloud.engine.start(name)
                self.at[name] = (self.cloud.clock(), self.saved)
                continue
            began, had = self.at[name]
            done = had + self.cloud.clock() - began
            if done >= self.work_s:
                self.cloud.engine.end(name)
            elif self.every and done - self.saved >= self.every:
                self.saved = done
                self.cloud.save(name)


class Adversary:
    """Takes spot from the run for another spot run, which comes before it, and keeps it for a while: (after, for)."""

    def __init__(self, cloud, run_id, attacks):
        self.cloud, self.run_id, self.attacks = cloud, run_id, list(attacks)
        self.rival, self.wait = None, 0

    def tick(self):
        if self.wait > 0:
            self.wait -= 1
        elif self.rival is not None:
            self.cloud.control.want(self.rival, "cancelled", grace_s=0.0)
            self.rival = None
        elif self.attacks:
            after, lasts = self.attacks[0]
            self.attacks[0] = after - 1, lasts
            if after <= 0 and self.strikes():
                self.attacks.pop(0)
                self.wait = lasts

    def strikes(self):
        """Whether there was spot to take."""
        cloud = self.cloud
        mine = [i for i in cloud.seen.instances.values() if i.run_id == self.run_id and i.stop_reason is None]
        if not mine or mine[0].purchase is not SPOT:
            return False
        self.rival = cloud.submit(run_spec("A100:4", name="rival", purchase=SPOT, priority=50, grace_s=2.0))
        cloud.preempt(mine[0])
        return True


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    work_s=st.floats(20, 200),
    spare_s=st.floats(20, 300),
    saves_every_s=st.sampled_from([0.0, 15.0]),
    attacks=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=8),
    whim=st.sampled_from([None, *Choice]),
    restarts=st.sets(st.integers(1, 100), max_size=2),
)
def test_a_feasible_deadline_is_met_whatever_spot_does(
    tmp_path_factory, work_s, spare_s, saves_every_s, attacks, whim, restarts
):
    """Spot is taken at any moment, and for as long as it hurts; on-demand always has room, for spot runs make it."""
    with fresh_cloud(tmp_path_factory.mktemp("cloud")) as cloud:
        deadline_at = cloud.clock() + work_s + spare_s
        run_id = cloud.submit(run_spec("A100:4", deadline_at=deadline_at, work_s=work_s, grace_s=2.0))
        program, adversary = Program(cloud, run_id, work_s, saves_every_s), Adversary(cloud, run_id, attacks)
        for second in range(1000):
            if second in restarts:
                cloud.boot()
                cloud.ready()
            if whim:
                cloud.loop.deadlines.policies.get = lambda *_: Whim(whim)
            adversary.tick()
            cloud.clock.pass_(1.0)
            cloud.settle()
            if program.over:
                break
            program.tick()
        assert cloud.run(run_id).status == "succeeded"
        said = cloud.said(run_id, "run")
        assert cloud.run(run_id).ended_at <= deadline_at + 1.0, said
        assert not [text for text in said if "late" in text or "in time" in text]
