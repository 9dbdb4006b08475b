"""What people want of runs: cancelling at every stage, stopping, starting, and asking twice."""

from concurrent.futures import Future

import pytest

from cumulo.control.requests import Wish
from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import InstanceState
from cumulo.domain.run import Retry, RunKind
from cumulo.store import tables
from tests.control.fakes import run_spec


def refusal(wish, *arguments, **named):
    with pytest.raises(CumuloError) as refused:
        wish(*arguments, **named)
    return refused.value.code, str(refused.value)


def test_what_is_queued_never_starts(any_cloud):
    cloud = any_cloud
    cloud.launch(gpus="A100:4", nodes=2)
    run_id = cloud.submit(gpus="A100")
    cloud.look()
    cloud.control.want(run_id, "cancelled")
    run = cloud.run(run_id)
    assert (run.status, run.reason, run.message) == ("cancelled", "cancelled", "cancelled before it started")
    assert cloud.events(run_id) == ["run.accepted", "run.cancelling", "run.cancelled"]
    cloud.look()
    assert cloud.instances_of(run_id) == []


def test_what_is_placed_but_not_asked_for_yet_never_starts(cloud):
    run_id = cloud.submit()
    cloud.step()
    assert cloud.run(run_id).status == "starting"
    cloud.control.want(run_id, "cancelled")
    cloud.turn()
    cloud.look(2)
    assert cloud.engine.bodies == {}
    run = cloud.run(run_id)
    assert (run.status, run.message) == ("cancelled", "it was stopped before it started")
    assert cloud.rows(tables.hold) == []


@pytest.mark.parametrize(
    "state", [InstanceState.PROVISIONING, InstanceState.PULLING, InstanceState.PREPARING, InstanceState.RUNNING]
)
def test_cancelling_at_every_stage(cloud, state):
    run_id = cloud.submit()
    cloud.look()
    [name] = cloud.instances_of(run_id)
    cloud.engine.move(name, state)
    if state is InstanceState.RUNNING:
        cloud.engine.start(name)
    cloud.look()
    cloud.control.want(run_id, "cancelled")
    assert (cloud.run(run_id).status, cloud.unit(run_id).status) == ("stopping", "stopping")
    cloud.turn()
    cloud.look()
    run = cloud.run(run_id)
    assert (run.status, run.reason) == ("cancelled", "cancelled")
    assert run.message.startswith("cancelled after" if state is InstanceState.RUNNING else "cancelled before")
    assert cloud.engine.stops == [(name, 30.0)]
    assert cloud.seen.runs == {}


def test_what_ends_by_itself_while_it_is_cancelled_keeps_its_own_end(cloud):
    cloud.engine.obedient = False
    run_id, name = cloud.launch()
    cloud.control.want(run_id, "cancelled")
    cloud.turn()
    cloud.engine.end(name, exit_code=0)
    cloud.look()
    assert cloud.run(run_id).status == "succeeded"


def test_cancelling_twice_with_less_patience(any_cloud):
    cloud = any_cloud
    cloud.engine.obedient = False
    run_id, name = cloud.launch()
    cloud.control.want(run_id, "cancelled")
    cloud.turn()
    cloud.control.want(run_id, "cancelled")
    cloud.turn()
    assert cloud.engine.stops == [(name, 30.0)], "wanting the same again changes nothing"
    cloud.control.want(run_id, "cancelled", grace_s=1.0)
    cloud.turn()
    assert cloud.engine.stops == [(name, 30.0), (name, 1.0)]
    assert cloud.events(run_id).count("run.cancelling") == 1
    assert cloud.seen == cloud.fresh()


def test_a_stop_that_the_engine_lost_is_told_again_once_the_grace_is_over(cloud):
    cloud.engine.obedient = False
    run_id, name = cloud.launch()
    cloud.control.want(run_id, "cancelled", grace_s=20.0)
    cloud.turn()
    cloud.engine.move(name, InstanceState.RUNNING)
    cloud.look(4)
    assert len(cloud.engine.stops) == 1
    cloud.clock.pass_(10)
    cloud.look(2)
    assert cloud.engine.stops == [(name, 20.0)] * 2
    assert cloud.engine.bodies[name].seen.state is InstanceState.STOPPING
    cloud.clock.pass_(500)
    cloud.look(2)
    assert len(cloud.engine.stops) == 2, "it knows of it"


def test_wishes_in_one_letter_see_one_another(cloud):
    """A run that ended in this very step must not be read back from the store, where it has not ended yet."""
    cloud.launch(gpus="A100:4", nodes=2)
    run_id = cloud.submit(kind=RunKind.DEV)
    cloud.look()
    answers = [Answered(cloud, run_id, wanted) for wanted in ("cancelled", "stopped", "cancelled")]
    cloud.step()
    assert [answer.told() for answer in answers] == ["", "conflict", "conflict"]
    assert cloud.run(run_id).status == "cancelled"
    assert cloud.events(run_id) == ["run.accepted", "run.cancelling", "run.cancelled"]


class Answered:
    """A wish that was put into the box, and its answer."""

    def __init__(self, cloud, run_id, wanted, index=None):
        self.answer: Future[None] = Future()
        cloud.inbox._queue.put(Wish(run_id=run_id, wanted=wanted, grace_s=None, index=index, answer=self.answer))

    def told(self):
        """The code it was refused with, "" if it was granted."""
        error = self.answer.exception(timeout=0)
        return error.code if isinstance(error, CumuloError) else str(error or "")


def test_a_run_cancelled_before_the_loop_has_seen_it(cloud):
    run_id = cloud.submit()
    answer = Answered(cloud, run_id, "cancelled")
    cloud.inbox.take(0)  # what told the loop of the run is lost
    answer = Answered(cloud, run_id, "cancelled")
    cloud.step()
    assert answer.told() == ""
    assert cloud.run(run_id).status == "cancelled"
    cloud.inbox.new_run(run_id)
    cloud.look()
    assert cloud.engine.bodies == {}


def test_a_run_first_seen_by_a_wish_knows_what_it_comes_after(cloud):
    first, name = cloud.launch()
    run_id = cloud.submit(array=(0, 3, None), after=(first,))
    mail = cloud.inbox.take(0)
    cloud.engine.end(name)
    cloud.look()
    Answered(cloud, run_id, "cancelled", index=2)
    cloud.step()
    assert cloud.seen.runs[run_id].waits_for == set()
    cloud.inbox.put_back(mail)
    cloud.look()
    assert len(cloud.instances_of(run_id)) == 3


def test_what_has_ended_can_be_wanted_no_more(cloud):
    run_id, name = cloud.launch()
    cloud.engine.end(name)
    cloud.look()
    assert refusal(cloud.control.want, run_id, "cancelled") == (
        "conflict",
        "the run has ended, so it can't be cancelled",
    )


def test_only_a_dev_run_stops_and_starts(cloud):
    run_id, _ = cloud.launch()
    assert refusal(cloud.control.want, run_id, "stopped")[1] == (
        "train is a task; only a dev run stops and starts (cancel it instead)"
    )
    assert refusal(cloud.control.want, run_id, "running")[1].endswith("(launch it again)")


def test_a_dev_run_that_is_cancelled_does_not_stop_or_start_any_more(cloud):
    cloud.engine.obedient = False
    run_id, name = cloud.launch(kind=RunKind.DEV)
    cloud.control.want(run_id, "cancelled")
    for wanted, done in (("stopped", "stopped"), ("running", "started")):
        assert refusal(cloud.control.want, run_id, wanted)[1] == f"train is being cancelled, so it can't be {done}"
    cloud.engine.end(name, 143, "cancelled")
    cloud.look()
    assert cloud.run(run_id).status == "cancelled"


def test_cancelling_what_is_stopping_ends_it_for_good(any_cloud):
    cloud = any_cloud
    cloud.engine.obedient = False
    run_id, name = cloud.launch(kind=RunKind.DEV)
    cloud.control.want(run_id, "stopped")
    assert refusal(cloud.control.want, run_id, "running")[1] == ("train is still stopping (start it again in a moment)")
    cloud.control.want(run_id, "cancelled")
    cloud.turn()
    cloud.engine.end(name, 143, "cancelled")
    cloud.look()
    assert (cloud.run(run_id).status, cloud.run(run_id).reason) == ("cancelled", "cancelled")
    assert cloud.unit(run_id).status == "cancelled"


def test_cancelling_what_is_stopped(cloud):
    run_id, _ = cloud.launch(kind=RunKind.DEV)
    cloud.control.want(run_id, "stopped")
    cloud.turn()
    cloud.look()
    cloud.control.want(run_id, "stopped")
    assert cloud.events(run_id).count("run.stopping") == 1
    cloud.control.want(run_id, "cancelled")
    assert (cloud.run(run_id).status, cloud.unit(run_id).status) == ("cancelled", "cancelled")


def test_a_dev_run_stopped_before_its_first_start(cloud):
    cloud.launch(gpus="A100:4", nodes=2, name="holder")
    run_id = cloud.submit(kind=RunKind.DEV)
    cloud.look()
    cloud.control.want(run_id, "stopped")
    assert cloud.run(run_id).status == "stopped"
    cloud.control.want(run_id, "running")
    assert cloud.run(run_id).status == "queued"
    assert cloud.seen == cloud.fresh()


def test_a_dev_run_stopped_between_two_attempts_starts_again(any_cloud):
    cloud = any_cloud
    retry = Retry(on_events=frozenset({"error"}), backoff_s=100.0)
    run_id, name = cloud.launch(kind=RunKind.DEV, retry=retry)
    cloud.engine.end(name, 1)
    cloud.look()
    cloud.control.want(run_id, "stopped")
    assert (cloud.run(run_id).status, cloud.unit(run_id).status) == ("stopped", "stopped")
    assert cloud.seen == cloud.fresh()
    cloud.control.want(run_id, "running")
    cloud.look()
    assert cloud.instances_of(run_id) == [f"{run_id}-0-2-0"], "at once: the pause was the failure's, not the wish's"


# ---- arrays ----------------------------------------------------------------------------------------------------------


def test_an_index_is_cancelled_before_its_turn_while_it_runs_and_not_after(any_cloud):
    cloud = any_cloud
    run_id = cloud.submit(array=(10, 14, 2))
    cloud.look()
    cloud.control.want(run_id, "cancelled", unit=12)
    cloud.control.want(run_id, "cancelled", unit=11)
    assert cloud.unit(run_id, 2).status == "cancelled"
    assert cloud.unit(run_id, 1).status == "stopping"
    assert cloud.seen == cloud.fresh()
    cloud.turn()
    cloud.look()
    assert cloud.unit(run_id, 1).status == "cancelled"
    assert cloud.instances_of(run_id) == [f"{run_id}-0-1-0", f"{run_id}-3-1-0"]
    assert refusal(cloud.control.want, run_id, "cancelled", unit=12) == (
        "conflict",
        "index 12 of train has ended already",
    )
    assert refusal(cloud.control.want, run_id, "cancelled", unit=15)[0] == "not_found"
    assert refusal(cloud.control.want, run_id, "stopped", unit=13)[0] == "conflict"
    for _ in range(2):
        for name in cloud.instances_of(run_id):
            cloud.engine.end(name)
        cloud.look()
    run = cloud.run(run_id)
    assert (run.status, run.message, run.exit_code, run.reason) == (
        "succeeded",
        "3 succeeded, 2 cancelled",
        0,
        "succeeded",
    )


def test_a_cancelled_index_is_not_tried_again(cloud):
    cloud.engine.obedient = False
    run_id = cloud.submit(array=(0, 1, None), retry=Retry(on_events=frozenset({"error", "lost"})))
    cloud.look()
    cloud.control.want(run_id, "cancelled", unit=0)
    cloud.turn()
    cloud.engine.end(f"{run_id}-0-1-0", 1, "lost")
    cloud.look()
    assert cloud.unit(run_id, 0).status == "lost"


def test_the_first_failure_tells_the_exit_code_whatever_is_cancelled_later(cloud):
    run_id = cloud.submit(array=(0, 2, None))
    cloud.look()
    cloud.engine.end(f"{run_id}-1-1-0", 3)
    cloud.look()
    cloud.control.want(run_id, "cancelled", unit=0)
    cloud.turn()
    cloud.look()
    cloud.engine.end(f"{run_id}-2-1-0")
    cloud.look()
    run = cloud.run(run_id)
    assert (run.status, run.exit_code, run.reason) == ("failed", 3, "failed")
    assert run.message == "1 succeeded, 1 failed, 1 cancelled"


def test_a_cancelled_array_is_cancelled_although_some_failed(cloud):
    run_id = cloud.submit(array=(0, 9, 2))
    cloud.look()
    cloud.engine.end(f"{run_id}-0-1-0", 3)
    cloud.look()
    cloud.control.want(run_id, "cancelled")
    cloud.turn()
    cloud.look()
    run = cloud.run(run_id)
    assert (run.status, run.exit_code, run.reason) == ("cancelled", None, "cancelled")
    assert run.message == "2 cancelled, 1 failed, 7 never started"


def test_an_array_all_of_whose_indices_are_cancelled_one_by_one(cloud):
    cloud.launch(gpus="A100:4", nodes=2, name="holder")
    run_id = cloud.submit(array=(0, 3, None))
    cloud.look()
    for index in (1, 3, 0, 2):
        cloud.control.want(run_id, "cancelled", unit=index)
        if run_id in cloud.seen.runs:
            assert cloud.seen == cloud.fresh()
    assert (cloud.run(run_id).status, cloud.run(run_id).message) == ("cancelled", "4 cancelled")


def test_places_cancelled_long_before_their_turn_are_passed_over_once(cloud):
    run = run_spec(array=(0, 999_999, 1))
    run_id = cloud.submit(run)
    cloud.look()
    live = cloud.seen.runs[run_id]
    live.skipped = set(range(1, 999_999))
    cloud.engine.end(f"{run_id}-0-1-0")
    cloud.look()
    assert cloud.instances_of(run_id) == [f"{run_id}-999999-1-0"]
    assert (live.skipped, live.units_started) == (set(), 1_000_000)
