"""Why a run waits, given what the pass decided: the nodes, a quota, or room that is kept for somebody else."""

from hypothesis import given

from cumulo.placement.explain import explain, reasons
from cumulo.placement.order import place
from cumulo.placement.policy import Policy, ProjectRules, Quota
from cumulo.placement.refuse import Constraint
from tests.placement.worlds import ask, few, hold, node, queues, waiting, world, worlds

FOUR = node("n", ("T4",) * 4)


def explained(seen, *queue, **how):
    """Of the last of the queue."""
    return explain(seen, queue[-1], place(seen, queue, **how))


def test_what_starts_is_held_back_by_nothing():
    why = explained(world(FOUR), waiting("me", ask("T4:2")))
    assert (why.starts, why.binding, why.held_back) == (True, None, None)


def test_what_the_nodes_refuse_is_told_as_before():
    seen = world(FOUR, holds=[hold("a", "n", 0)])
    why = explained(seen, waiting("me", ask("T4:4")))
    assert (why.starts, why.binding) == (False, Constraint.GPU_HELD)
    assert why.summary() == reasons(seen, ask("T4:4")).summary() == "1 of 4 T4 held, 3 free, 4 asked"


def test_a_quota_binds_whatever_the_nodes_have():
    policy = Policy(projects={"default": ProjectRules(quota=Quota(gpus=2))})
    why = explained(world(FOUR, holds=[hold("a", "n", 0, 1)]), waiting("me", ask("T4:1")), policy=policy)
    assert why.binding is Constraint.QUOTA
    assert why.summary() == "project default holds 2 of its quota of 2 GPUs, 1 asked"


def test_room_that_is_kept_for_the_head_binds():
    seen = world(FOUR, holds=[hold("a", "n", 0, until=3600.0)])
    why = explained(seen, waiting("head", ask("T4:4"), at=1.0), waiting("me", ask("T4:2"), at=2.0), now=10.0)
    assert why.binding is Constraint.RESERVATION
    assert why.summary() == "the room is kept for head, which is next in 59m 50s at the latest and asked for T4:4"


def test_who_comes_first_may_take_the_room():
    why = explained(world(FOUR), waiting("first", ask("T4:3"), at=1.0), waiting("me", ask("T4:2"), at=2.0))
    assert (why.starts, why.binding) == (False, None)


@few
@given(worlds(), queues())
def test_what_does_not_start_is_told_why_or_was_too_late(seen, queue):
    decided = place(seen, queue, now=5.0)
    taken = len(decided.decisions)
    for target in queue:
        why = explain(seen, target, decided)
        assert why.starts == (target.key in {decision.waiting.key for decision in decided.decisions})
        assert why.starts or why.binding is not None or taken or not seen.nodes
