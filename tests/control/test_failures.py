"""Writes that fail, leaders that come and go, and the driver of an engine that fails: nobody waits for nothing."""

import threading
import time
from concurrent.futures import Future

import pytest

from cumulo.control import Control
from cumulo.control.driver import EngineDriver, Report, Stop
from cumulo.control.requests import Inbox, Mail, Question
from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import Identity, InstanceSpec
from cumulo.store import tables
from cumulo.store.database import Conflict
from cumulo.store.logs import Logs
from cumulo.store.schema import next_epoch
from tests.control.fakes import Clock, FakeEngine, Lost, run_spec
from tests.databases import CLOUD_ID

# ---- writes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_placement_whose_write_fails_is_worked_out_anew(any_cloud, when):
    cloud = any_cloud
    run_id = cloud.submit()
    cloud.fail = when
    assert not cloud.step()
    assert "went away" in cloud.loop.trouble
    assert [check.status for check in cloud.control.doctor() if check.name == "control loop"] == ["fail"]
    cloud.look(2)
    assert cloud.loop.trouble == ""
    assert cloud.instances_of(run_id) == [f"{run_id}-0-1-0"]
    assert cloud.seen == cloud.fresh()
    assert cloud.events(run_id) == ["run.accepted", "run.placed"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_end_whose_write_fails_is_taken_in_again(any_cloud, when):
    cloud = any_cloud
    run_id, name = cloud.launch()
    cloud.engine.end(name, exit_code=4)
    cloud.fail = when
    cloud.look()
    assert cloud.engine.released == [], "an engine may forget only what the store has"
    cloud.look(2)
    assert (cloud.run(run_id).status, cloud.run(run_id).exit_code) == ("failed", 4)
    assert cloud.engine.released == [name]
    assert cloud.events(run_id).count("run.failed") == 1
    assert cloud.seen == cloud.fresh()


@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_wished_for_it_is_told(cloud, when):
    run_id, _ = cloud.launch()
    cloud.fail = when
    with pytest.raises(Lost):
        cloud.control.want(run_id, "cancelled")
    cloud.look(2)
    assert cloud.run(run_id).status == ("running" if when == "before" else "cancelled")


def test_a_submit_whose_answer_was_lost_is_found_all_the_same(cloud):
    cloud.fail = "after"
    with pytest.raises(Lost):
        cloud.submit(key="k")
    cloud.look(2)
    run_id = cloud.submit(key="k")
    assert cloud.run(run_id).status == "starting"
    assert len(cloud.rows(tables.run)) == 1


def test_who_was_overtaken_plans_again(any_cloud):
    """Somebody else placed on the node: nothing of the step is written, and all of it is done on a new picture."""
    cloud = any_cloud
    run_id = cloud.submit()
    other, _ = cloud.launch(gpus="A100:2", name="other")
    waiting = cloud.submit(gpus="A100")
    with cloud.db.write() as tx:
        tx.execute(tables.node.update().values(generation=tables.node.c.generation + 1))
    assert cloud.step(), "being overtaken is no failure"
    assert cloud.run(waiting).status == "queued"
    assert cloud.events(waiting) == ["run.accepted"]
    cloud.control.want(other, "cancelled")
    assert cloud.run(waiting).status == "starting"
    assert cloud.run(run_id).status == "starting"
    assert cloud.seen == cloud.fresh()
    assert cloud.loop.trouble == ""


def test_wishes_and_questions_of_an_overtaken_step_are_answered_once(cloud, monkeypatch):
    run_id, _ = cloud.launch()
    real, failures = cloud.db.write, [Conflict("busy"), Conflict("busy")]

    def busy():
        if failures:
            raise failures.pop()
        return real()

    monkeypatch.setattr(cloud.db, "write", busy)
    question: Question = Question(ask=lambda seen: len(seen.runs), answer=Future())
    cloud.inbox._queue.put(question)
    cloud.control.want(run_id, "cancelled")
    assert cloud.events(run_id).count("run.cancelling") == 1
    assert question.answer.result(timeout=0) == 1


def test_a_picture_that_cannot_be_read_keeps_the_loop_trying(cloud, monkeypatch):
    run_id = cloud.submit()
    cloud.fail = "before"
    assert not cloud.step()
    read = cloud.db.read
    monkeypatch.setattr(cloud.db, "read", lambda: (_ for _ in ()).throw(Lost("no database")))
    assert not cloud.step()
    monkeypatch.setattr(cloud.db, "read", read)
    assert cloud.step()
    assert cloud.run(run_id).status == "starting"


def test_a_question_that_fails_fails_alone(cloud):
    answers: list[Future[int]] = [Future(), Future()]
    for answer, ask in zip(answers, (lambda seen: 1 // 0, lambda seen: 7), strict=True):
        cloud.inbox._queue.put(Question(ask=ask, answer=answer))
    assert cloud.step()
    assert isinstance(answers[0].exception(timeout=0), ZeroDivisionError)
    assert answers[1].result(timeout=0) == 7


# ---- leaders ---------------------------------------------------------------------------------------------------------


def test_who_was_replaced_only_answers_questions(any_cloud):
    cloud = any_cloud
    run_id, name = cloud.launch()
    with cloud.db.write() as tx:
        cloud.engine.epoch = next_epoch(tx)
    cloud.driver.ask(stop={name: Stop(0.0)})
    assert not cloud.turn(), "the engine refuses an old leader"
    with pytest.raises(CumuloError, match="another control plane has taken over"):
        cloud.control.want(run_id, "cancelled")
    assert cloud.control.why(run_id).run_id == run_id
    assert cloud.engine.stops == []
    assert "taken over" in cloud.loop.trouble


def test_where_there_may_be_two_leaders_the_old_one_cannot_even_write(any_cloud):
    """On SQLite there is one server, which a lock sees to."""
    cloud = any_cloud
    run_id, _ = cloud.launch()
    with cloud.db.write() as tx:
        next_epoch(tx)
    if cloud.db.dialect == "sqlite":
        cloud.control.want(run_id, "cancelled")
    else:
        with pytest.raises(CumuloError, match="another control plane has taken over"):
            cloud.control.want(run_id, "cancelled")
    assert cloud.run(run_id).wanted == ("cancelled" if cloud.db.dialect == "sqlite" else "running")


# ---- the inbox -------------------------------------------------------------------------------------------------------


def test_nobody_waits_for_a_loop_that_has_ended():
    inbox = Inbox()
    inbox.close()
    with pytest.raises(CumuloError, match="the server is stopping") as refused:
        inbox.wish("run", "cancelled")
    assert refused.value.code == "unreachable"


def test_what_waits_when_the_server_stops_is_refused(cloud):
    cloud.loop.start()
    answer: Future[None] = Future()
    cloud.loop.fence()
    cloud.loop.close()
    cloud.inbox._queue.put(Question(ask=lambda seen: None, answer=answer))
    assert not cloud.loop._thread.is_alive()
    with pytest.raises(CumuloError, match="stopping"):
        Inbox.wait(cloud.inbox, answer)


def test_who_no_longer_waits_is_not_served(cloud, monkeypatch):
    monkeypatch.setattr("cumulo.control.requests.ANSWER_S", 0.01)
    run_id, _ = cloud.launch()
    plain = Inbox()
    with pytest.raises(CumuloError, match="did not answer"):
        plain.wish(run_id, "cancelled")
    mail = plain.take(0)
    assert mail.wishes[0].answer.cancelled()
    cloud.loop.step(mail)
    assert cloud.run(run_id).wanted == "running"
    question = Question(ask=lambda seen: 1, answer=Future())
    question.answer.cancel()
    assert cloud.loop.step(Mail(questions=[question]))


# ---- the driver ------------------------------------------------------------------------------------------------------


def spec(name):
    return InstanceSpec(
        instance_id=name,
        cloud_id=CLOUD_ID,
        run_id="r",
        run_name="r",
        project="default",
        unit=0,
        attempt=1,
        rank=0,
        node="one",
        slices=(),
        cpus_milli=1,
        memory_bytes=1,
        identity=Identity(name="me"),
        command="true",
    )


class Driven:
    """A driver of a fake engine, with what it reported and shipped."""

    def __init__(self, engine=None):
        self.engine = engine or FakeEngine(Clock())
        self.reports: list[Report] = []
        self.shipped: list[str] = []
        self.fenced = threading.Event()
        self.driver = EngineDriver(
            self.engine,
            epoch=1,
            cloud_id=CLOUD_ID,
            report=self.reports.append,
            ship_log=lambda engine, instance_id: self.shipped.append(instance_id),
            fenced=self.fenced.set,
        )


def test_one_refused_command_holds_up_no_other():
    made = Driven()
    made.engine.refuses = {"a-0-1-0"}
    made.driver.ask(ensure=[spec("a-0-1-0"), spec("b-0-1-0")], stop={"c-0-1-0": Stop(1.0)}, release=["d-0-1-0"])
    made.driver.turn(0.0)
    assert made.engine.alive() == ["b-0-1-0"]
    assert made.engine.stops == [("c-0-1-0", 1.0)]
    assert [report.unreachable for report in made.reports] == ["", ""]


def test_a_refused_stop_is_told_again_after_the_next_look():
    made = Driven()
    made.driver.ask(ensure=[spec("a-0-1-0")])
    made.driver.turn(0.0)
    made.engine.refuses = {"a-0-1-0"}
    made.driver.ask(stop={"a-0-1-0": Stop(1.0)})
    made.driver.turn(1.0)
    made.engine.refuses = set()
    made.driver.turn(3.0)
    made.driver.turn(3.1)
    assert made.engine.stops == [("a-0-1-0", 1.0)]


def test_what_is_to_stop_before_it_was_begun_with_is_not_begun_with():
    made = Driven()
    made.driver.ask(ensure=[spec("a-0-1-0")])
    made.driver.ask(stop={"a-0-1-0": Stop(1.0)})
    made.driver.turn(0.0)
    assert made.engine.bodies == {}


def test_what_is_over_is_not_begun_with_either():
    made = Driven()
    made.driver.ask(ensure=[spec("a-0-1-0")], stop={"b-0-1-0": Stop(1.0)})
    made.driver.ask(release=["a-0-1-0", "b-0-1-0"])
    made.driver.turn(0.0)
    assert (made.engine.bodies, made.engine.stops) == ({}, [])
    made.engine.down = "away"
    made.driver.ask(ensure=[spec("c-0-1-0")], stop={"d-0-1-0": Stop(1.0)})
    made.driver.turn(10.0)
    made.driver.ask(release=["c-0-1-0", "d-0-1-0"])
    made.engine.down = ""
    made.driver.turn(20.0)
    assert (made.engine.bodies, made.engine.stops) == ({}, [])


def test_what_has_started_is_not_asked_for_again():
    made = Driven()
    made.driver.ask(ensure=[spec("a-0-1-0")])
    made.driver.ask(running=frozenset({"a-0-1-0"}))
    made.driver.turn(0.0)
    assert made.engine.bodies == {}, "if it is not there any more it is lost"


def test_nor_is_it_after_the_engine_was_away():
    made = Driven()
    made.engine.down = "away"
    made.driver.ask(ensure=[spec("a-0-1-0"), spec("b-0-1-0")])
    made.driver.turn(0.0)
    made.driver.ask(stop={"a-0-1-0": Stop(1.0)})
    made.driver.turn(2.0)
    made.engine.down = ""
    made.driver.turn(4.0)
    assert made.engine.alive() == ["b-0-1-0"]
    assert made.engine.stops == [("a-0-1-0", 1.0)]


def test_an_engine_that_does_not_answer_is_not_asked_in_a_tight_loop():
    made = Driven()
    made.engine.down = "away"
    made.driver.ask(ensure=[spec("a-0-1-0")])
    made.driver.start()
    time.sleep(0.3)
    made.driver.close()
    assert [report.unreachable for report in made.reports] == ["away"]


def test_work_wakes_the_driver_and_a_hint_is_looked_at():
    made = Driven()
    made.driver.start()
    try:
        until(lambda: made.reports)
        made.driver.ask(ensure=[spec("a-0-1-0")])
        until(lambda: made.engine.bodies)
        before = len(made.reports)
        made.engine.listeners[0]("a-0-1-0")
        until(lambda: len(made.reports) > before)
        observation = made.reports[-1].observation
        assert observation is not None
        assert not observation.complete
    finally:
        made.driver.close()


def until(true, patience_s=5.0):
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_the_log_is_fetched_before_the_end_is_told_and_only_ours():
    made = Driven()
    made.driver.ask(ensure=[spec("a-0-1-0")])
    made.driver.turn(0.0)
    made.engine.end("a-0-1-0")
    made.engine.plant("theirs-0-1-0", cloud_id="another")
    made.engine.end("theirs-0-1-0")
    made.driver._report = lambda report: made.shipped.append("told")
    made.driver.turn(10.0)
    made.driver.turn(20.0)
    assert made.shipped[:3] == ["told", "a-0-1-0", "told"]
    assert made.shipped.count("a-0-1-0") == 1


def test_an_old_leader_is_told_and_ends():
    made = Driven()
    made.engine.epoch = 2
    made.driver.ask(ensure=[spec("a-0-1-0")])
    made.driver.start()
    assert made.fenced.wait(5)
    made.driver.close()
    assert made.engine.bodies == {}


# ---- with threads ----------------------------------------------------------------------------------------------------


def test_the_loops_turn_by_themselves(quick_db, tmp_path):
    """The one test with all threads and real time: from submit to the end without a hand on anything."""
    engine = FakeEngine(Clock(), instant=True)
    engine.clock = time.time
    control = Control(db=quick_db, logs=Logs(tmp_path), engines={"local": engine}, cloud_id=CLOUD_ID)
    control.start()
    try:
        run_id, _ = control.submit(run_spec(), account="ada", idempotency_key=None, fingerprint="", queue=False)
        until(lambda: engine.alive())
        [name] = engine.alive()
        engine.logs[name] = b"step 1\nthe end\n"
        engine.end(name)
        engine.listeners[0](name)
        until(lambda: control.why(run_id).ended)
        assert control.why(run_id).last_log_lines == ("step 1", "the end")
        seq = control.wait_change(0, 0)
        assert control.wait_change(seq, 0.01) == seq
    finally:
        control.close()
