"""Attempts one after the other: what is remembered of them, what a preemption lost, and loops that are stopped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.control.attempts import MOST_ALIKE, QUICK_S, Attempt, loop_text, past_text
from cumulo.domain.lifecycle import EndReason
from cumulo.domain.run import PurchaseOption, Retry
from tests.control.fakes import Clock, Cloud, FakeEngine, node

RETRY = Retry(on_events=frozenset({"error", "interruption", "lost"}), max_attempts=10, backoff_s=0.0)
SPOT = PurchaseOption.SPOT


@pytest.fixture
def cloud(quick_db, tmp_path):
    return Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one"),))).ready()


def fail(cloud, run_id, *, after=2.0, code=1, progress=None, saved=False):
    """The run's attempt starts, runs for `after` seconds and fails."""
    cloud.look()
    [name] = cloud.instances_of(run_id)
    cloud.engine.start(name, progress)
    if saved:
        cloud.engine._see(name, checkpoint=f'{{"checkpoint": {cloud.clock() + 1.0}}}')
        cloud.look()
    cloud.clock.pass_(after)
    cloud.engine.end(name, code)
    cloud.turn()
    cloud.step()


def standing(cloud, run_id):
    row = cloud.run(run_id)
    return row.status, row.attempts


def test_three_quick_failures_alike_end_a_run_whatever_retry_allows(cloud):
    run_id = cloud.submit(retry=RETRY)
    for _ in range(3):
        fail(cloud, run_id)
    assert standing(cloud, run_id) == ("failed", 3)
    text = "3 attempts in a row ended with code 1 within 2s, and none got further, so it is not tried again"
    assert cloud.run(run_id).message == text
    assert cloud.control.why(run_id).summary == text


@pytest.mark.parametrize("change", [{"code": 2}, {"after": QUICK_S + 1.0}, {"saved": True}])
def test_another_code_time_or_a_checkpoint_breaks_the_row(cloud, change):
    run_id = cloud.submit(retry=RETRY)
    fail(cloud, run_id)
    fail(cloud, run_id)
    fail(cloud, run_id, **change)
    assert standing(cloud, run_id)[0] == "starting"
    fail(cloud, run_id)
    fail(cloud, run_id)
    assert standing(cloud, run_id)[0] == "starting", "the row began anew"
    fail(cloud, run_id)
    assert standing(cloud, run_id) == ("failed", 6)


def test_who_gets_further_each_time_is_tried_as_often_as_allowed(cloud):
    run_id = cloud.submit(retry=RETRY)
    for done in range(1, 10):
        fail(cloud, run_id, progress=f'{{"done": {done}, "total": 100}}')
        assert standing(cloud, run_id) == ("starting", done + 1)
    fail(cloud, run_id)
    assert standing(cloud, run_id) == ("failed", 10)


def test_the_same_steps_over_again_are_not_further(cloud):
    run_id = cloud.submit(retry=RETRY)
    for _ in range(4):
        fail(cloud, run_id, progress='{"done": 5, "total": 100}')
    assert standing(cloud, run_id) == ("failed", 4), "the first came further than nothing, three did not"


def test_a_restart_forgets_no_failure(cloud):
    run_id = cloud.submit(retry=RETRY)
    fail(cloud, run_id)
    fail(cloud, run_id)
    cloud.boot()
    cloud.loop.load()
    cloud.ready()
    assert cloud.seen == cloud.fresh()
    fail(cloud, run_id)
    assert standing(cloud, run_id) == ("failed", 3)


def test_making_room_counts_neither_for_nor_against(cloud):
    run_id = cloud.submit("A100:4", retry=RETRY, purchase=SPOT)
    fail(cloud, run_id)
    fail(cloud, run_id)
    cloud.look()
    [name] = cloud.instances_of(run_id)
    cloud.engine.start(name)
    cloud.look()
    big = cloud.submit("A100:4", name="big")
    cloud.look(2)
    cloud.engine.start(*cloud.instances_of(big))
    cloud.engine.end(*cloud.instances_of(big))
    fail(cloud, run_id)
    assert standing(cloud, run_id) == ("failed", 4)


def test_attempts_are_all_that_retry_allows(cloud):
    run_id = cloud.submit(retry=Retry(on_events=frozenset({"error"}), max_attempts=2, backoff_s=0.0))
    fail(cloud, run_id)
    fail(cloud, run_id)
    assert standing(cloud, run_id) == ("failed", 2)
    assert cloud.run(run_id).message == "its command exited with code 1 after 2s"


def test_a_preempted_run_says_for_whom_when_and_what_was_lost(cloud):
    run_id, name = cloud.launch("A100:4", name="small", purchase=SPOT)
    cloud.engine._see(name, checkpoint=f'{{"checkpoint": {cloud.clock()}}}')
    cloud.look()
    assert cloud.instance(name).checkpointed_at == cloud.clock() - 5.5
    assert cloud.seen.world.holds[name].checkpointed_at == cloud.clock() - 5.5
    big = cloud.submit("A100:4", name="big")
    cloud.engine.obedient = False
    cloud.look()
    told = cloud.instance(name)
    assert (told.stop_reason, told.preempt_at) == ("preempted", cloud.clock() + 30.0)
    assert cloud.engine.notices == {name: told.preempt_at}
    assert "make room for big" in cloud.control.why(run_id).summary
    cloud.engine.end(name, 143, EndReason.CANCELLED)
    cloud.look()
    why = cloud.control.why(run_id)
    assert (
        why.last_attempt
        == f"attempt 1 made room for big ({big}) 5.5s ago; 11s of work since its last checkpoint is lost"
    )
    assert why.expected_text
    cloud.boot()
    cloud.loop.load()
    assert cloud.control.why(run_id).last_attempt == why.last_attempt
    assert cloud.seen == cloud.fresh()
    cloud.ready()
    cloud.control.want(big, "cancelled", grace_s=0.0)
    cloud.look()
    assert f"made room for big ({big})" in cloud.control.why(run_id).last_attempt, "also once that has ended"


def test_what_is_saved_at_the_very_end_is_not_lost(cloud):
    run_id, name = cloud.launch("A100:4", name="small", purchase=SPOT)
    cloud.submit("A100:4", name="big")
    cloud.engine.obedient = False
    cloud.look()
    cloud.engine._see(name, checkpoint=f'{{"checkpoint": {cloud.clock()}}}')
    cloud.engine.end(name, 0, EndReason.CANCELLED)
    cloud.look()
    assert "what it had done is saved" in cloud.control.why(run_id).last_attempt


def test_a_gang_has_one_moment_also_after_a_restart(quick_db, tmp_path):
    cloud = Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one"), node("two")))).ready()
    cloud.engine.obedient = False
    _, *names = cloud.launch("A100:4", nodes=2, name="gang", purchase=SPOT)
    cloud.engine.refuses = {names[1]}
    cloud.submit("A100:4", nodes=2, name="big")
    cloud.look()
    at = cloud.clock()
    cloud.engine.refuses = set()
    cloud.boot()
    cloud.loop.load()
    cloud.look()
    assert cloud.engine.notices == dict.fromkeys(names, at + 30.0)


def test_what_one_rank_saved_is_saved_for_all(quick_db, tmp_path):
    cloud = Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one"), node("two")))).ready()
    _, *names = cloud.launch("A100:4", nodes=2, name="gang", purchase=SPOT)
    cloud.engine._see(names[0], checkpoint=f'{{"checkpoint": {cloud.clock()}}}')
    saved = cloud.clock()
    cloud.look()
    assert [cloud.instance(name).checkpointed_at for name in names] == [saved, saved]
    cloud.engine._see(names[1], checkpoint='{"checkpoint": 5}')  # of an attempt long ago
    cloud.look()
    assert [cloud.instance(name).checkpointed_at for name in names] == [saved, saved]


# ---- the rule itself ------------------------------------------------------------------------------------------------


def attempt(number, reason=EndReason.FAILED, code=1, ran=2.0, saved=False):
    began = number * 100.0
    return Attempt(number, reason, code, began, began + ran, began + 1 if saved else None, None)


ENDS = st.tuples(
    st.sampled_from([EndReason.FAILED, EndReason.PREEMPTED, EndReason.LOST, EndReason.OUT_OF_MEMORY]),
    st.sampled_from([1, 2]),
    st.sampled_from([2.0, 90.0]),
    st.booleans(),
)


@given(st.lists(ENDS, max_size=8), st.none() | st.integers(0, 8))
def test_a_loop_is_always_the_last_few_and_all_alike(ends, further):
    past = [attempt(number, *end) for number, end in enumerate(ends)]
    furthest_at = None if further is None else further * 100.0 + 1.0
    text = loop_text(past, furthest_at)
    tried = [one for one in past if one.reason is not EndReason.PREEMPTED][-MOST_ALIKE:]
    alike = len(tried) == MOST_ALIKE and len({(one.reason, one.exit_code) for one in tried}) == 1
    fruitless = all(
        one.reason in (EndReason.FAILED, EndReason.OUT_OF_MEMORY)
        and one.saved_at is None
        and one.ended_at - one.began_at < QUICK_S
        and not (furthest_at is not None and one.began_at <= furthest_at <= one.ended_at)
        for one in tried
    )
    assert bool(text) == (alike and fruitless)


def test_the_past_is_told_in_a_sentence():
    made_room = Attempt(2, EndReason.PREEMPTED, 143, 10.0, 70.0, None, "r9-0-1")
    text = "attempt 2 made room for big (r9) 1m 30s ago; it told of no checkpoint in the 1m 00s that it ran"
    assert past_text(made_room, "big", 160.0) == text
    saved = made_room._replace(saved_at=67.5)
    text = "attempt 2 made room for r9 1m 30s ago; 2.5s of work since its last checkpoint is lost"
    assert past_text(saved, "", 160.0) == text
    assert past_text(saved._replace(saved_at=69.9), "", 160.0).endswith("what it had done is saved")
    took_its_time = saved._replace(told_at=50.0, saved_at=50.5)
    assert past_text(took_its_time, "", 160.0).endswith("what it had done is saved")
