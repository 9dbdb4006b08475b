"""Accepting runs: keys, dependencies, and what no node could ever take."""

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import TERMINAL
from cumulo.domain.run import RunKind
from cumulo.store import tables
from tests.control.fakes import Clock, Cloud, FakeEngine, node, run_spec


def refusal(submit, *arguments, **named):
    with pytest.raises(CumuloError) as refused:
        submit(*arguments, **named)
    return refused.value


# ---- once -----------------------------------------------------------------------------------------------------------


def test_a_key_answers_for_one_request(any_cloud):
    cloud = any_cloud
    first = cloud.submit(key="k", fingerprint="same")
    assert cloud.submit(key="k", fingerprint="same") == first
    assert refusal(cloud.submit, key="k", fingerprint="other").code == "idempotency_mismatch"
    assert cloud.submit(key="k", fingerprint="other", account="grace") != first, "keys are of an account"
    assert cloud.submit(key="l", fingerprint="same") != first
    assert len(cloud.rows(tables.run)) == 3
    assert cloud.events(first).count("run.accepted") == 1


def test_a_twin_of_the_same_second_gets_an_id_of_its_own(cloud, monkeypatch):
    drawn = iter([b"\0\0\0\1"] * 3 + [b"\0\0\0\2"])
    monkeypatch.setattr("cumulo.control.submitting.secrets.token_bytes", lambda count: next(drawn))
    assert cloud.submit() != cloud.submit()


def test_an_unknown_project_is_refused(cloud):
    assert refusal(cloud.submit, run_spec(project="nowhere")).code == "not_found"


# ---- what could never run -------------------------------------------------------------------------------------------


def test_what_no_node_could_take_is_refused_unless_it_is_to_wait(cloud):
    error = refusal(cloud.submit, gpus="A100:8")
    assert error.code == "unsatisfiable"
    assert str(error) == (
        "no node here can ever take it: 2 of 2 nodes: has 4 A100-80GB, 8 asked on one node "
        "(ask for 4 GPUs instead of 8, or pass --queue to wait for such a node)"
    )
    run_id = cloud.submit(gpus="A100:8", queue=True)
    cloud.look()
    assert cloud.run(run_id).status == "queued"
    assert cloud.control.why(run_id).summary.startswith("no node here can ever take it: ")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("A1000", "did you mean"), ("Voodoo", "`cumulo gpus` lists what is known"), ("A100-96GB", "A100-80GB")],
)
def test_an_unknown_gpu_is_refused_with_the_nearest_that_there_is(cloud, name, hint):
    error = refusal(cloud.submit, gpus=name)
    assert error.code == "unknown_gpu"
    assert hint in error.hint


def test_a_gpu_that_only_this_cloud_knows_may_be_asked_for(quick_db, tmp_path):
    cloud = Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one", model="Homemade-X1-8GB"),))).ready()
    for name in ("Homemade-X1-8GB", "homemade x1"):
        assert cloud.run(cloud.submit(gpus=name)).status == "queued"


# ---- dependencies ---------------------------------------------------------------------------------------------------


def test_one_after_the_other(any_cloud):
    cloud = any_cloud
    first, name = cloud.launch(name="first")
    second = cloud.submit(name="second", after=("first",))
    third = cloud.submit(name="third", after=(second, first))
    cloud.look()
    assert cloud.control.why(second).summary == f"it comes after first ({first}), which has not ended"
    assert cloud.instances_of(second) == []
    cloud.boot()
    cloud.ready()
    assert cloud.seen == cloud.fresh()
    cloud.engine.end(name)
    cloud.look()
    [name] = cloud.instances_of(second)
    assert cloud.instances_of(third) == []
    cloud.engine.end(name)
    cloud.look()
    assert cloud.run(third).status == "starting"
    assert cloud.seen == cloud.fresh()


@pytest.mark.parametrize(
    ("end", "told"),
    [("fails", "failed"), ("is cancelled", "was cancelled"), ("is lost", "was lost")],
)
def test_a_chain_fails_with_its_first(any_cloud, end, told):
    cloud = any_cloud
    first, name = cloud.launch(name="first")
    second = cloud.submit(name="second", after=(first,))
    third = cloud.submit(name="third", after=(second,))
    beside = cloud.submit(name="beside", after=(first, third))
    cloud.look()
    if end == "fails":
        cloud.engine.end(name, 1)
    elif end == "is lost":
        cloud.engine.forget(name)
    else:
        cloud.control.want(first, "cancelled")
        cloud.turn()
    cloud.look()
    for run_id, of in ((second, f"first ({first}), which {told}"), (third, f"second ({second}), which failed")):
        run = cloud.run(run_id)
        assert (run.status, run.reason) == ("failed", "dependency_failed")
        assert run.message == f"it comes after {of}"
        assert cloud.events(run_id) == ["run.accepted", "run.failed"]
        assert run.ended_at is not None
    assert cloud.run(beside).status == "failed"
    assert cloud.events(beside) == ["run.accepted", "run.failed"], "told once, although both failed"
    assert cloud.seen.runs == {}


def test_what_a_run_comes_after_may_have_ended_already(cloud):
    good, name = cloud.launch(name="good")
    cloud.engine.end(name)
    cloud.look()
    bad, name = cloud.launch(name="bad")
    cloud.engine.end(name, 1)
    cloud.look()
    run_id = cloud.submit(after=(good,))
    cloud.look()
    assert cloud.run(run_id).status == "starting"
    error = refusal(cloud.submit, after=(bad,))
    assert (error.code, error.message) == ("conflict", f"after: bad ({bad}) has ended: failed")
    assert refusal(cloud.submit, after=("nobody",)).code == "run_not_found"


@pytest.mark.parametrize(("exit_code", "status"), [(0, "starting"), (1, "failed")])
def test_what_ends_between_the_submit_and_the_loops_first_sight(cloud, exit_code, status):
    first, name = cloud.launch(name="first")
    run_id = cloud.submit(after=(first,))
    mail = cloud.inbox.take(0)
    cloud.engine.end(name, exit_code)
    cloud.look()
    cloud.inbox.put_back(mail)
    cloud.look()
    assert cloud.run(run_id).status == status
    assert cloud.seen == cloud.fresh()


def test_a_waiting_run_can_be_cancelled(cloud):
    first, name = cloud.launch()
    run_id = cloud.submit(after=(first,))
    cloud.control.want(run_id, "cancelled")
    assert cloud.run(run_id).status == "cancelled"
    cloud.engine.end(name)
    cloud.look()
    assert cloud.run(run_id).status == "cancelled"


def test_a_dev_run_stopped_while_it_waits_fails_with_what_it_comes_after(any_cloud):
    cloud = any_cloud
    first, name = cloud.launch()
    run_id = cloud.submit(kind=RunKind.DEV, after=(first,))
    cloud.control.want(run_id, "stopped")
    cloud.engine.end(name, 1)
    cloud.look()
    assert cloud.loop.trouble == ""
    assert cloud.run(run_id).status == "failed"
    assert cloud.run(first).status in TERMINAL
