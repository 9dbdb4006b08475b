"""The reservation for the head of the queue: who may slip in front of it, and that nobody starves it."""

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.run import PurchaseOption
from cumulo.placement.fit import choose
from cumulo.placement.order import hold_places, place
from cumulo.placement.policy import Policy, ProjectRules
from cumulo.placement.refuse import Constraint
from cumulo.placement.reserve import held_places, reserve
from tests.placement.worlds import ask, chosen, few, hold, node, queues, waiting, world, worlds

EIGHT = node("n", ("T4",) * 8)
OTHER = node("o", ("T4",) * 8)
SPOT = {"purchase": PurchaseOption.SPOT}


def names(made):
    return [decision.waiting.name for decision in made]


def pass_at(seen, *queue, now=0.0, **more):
    return place(seen, queue, now=now, **more)


def test_the_shadow_time_is_when_enough_has_ended():
    seen = world(
        EIGHT, holds=[hold("a", "n", 0, 1, until=50.0), hold("b", "n", 2, until=70.0), hold("c", "n", 3, until=90.0)]
    )
    kept = reserve(seen, waiting("head", ask("7", cpus=1, gib=1)), ask("7", cpus=1, gib=1), now=0.0, ends={})
    assert kept is not None
    assert kept.reservation.at == 70.0
    assert kept.reservation.waits_for == ("a", "b")


def test_who_ends_in_time_may_slip_in_and_who_does_not_may_not():
    seen = world(EIGHT, holds=[hold("a", "n", *range(4), until=100.0)])
    made = pass_at(
        seen,
        waiting("head", ask("8", cpus=1, gib=1), priority=1),
        waiting("long", ask("2", cpus=1, gib=1), at=1, duration=101.0),
        waiting("unknown", ask("2", cpus=1, gib=1), at=2),
        waiting("short", ask("2", cpus=1, gib=1), at=3, duration=100.0),
    )
    assert names(made) == ["short"]
    assert [(each.waiting.name, each.constraint) for each in made.held_back] == [
        ("long", Constraint.RESERVATION),
        ("unknown", Constraint.RESERVATION),
    ]
    text = "the room is kept for head, which is next in 1m 40s at the latest and asked for 8 GPUs, 1 CPU, 1GB"
    assert made.held_back[0].text == text


def test_what_the_head_does_not_need_is_not_kept():
    seen = world(EIGHT, OTHER, holds=[hold("a", "n", *range(4), until=100.0), hold("b", "o", *range(7), until=900.0)])
    made = pass_at(
        seen,
        waiting("head", ask("6", cpus=1, gib=1), at=0),
        waiting("elsewhere", ask("1", cpus=1, gib=1), at=1),
        waiting("beside", ask("2", cpus=1, gib=1), at=2),
        waiting("cpus", ask(cpus=1, gib=1), at=3),
        waiting("in the way", ask("1", cpus=1, gib=1), at=4),
    )
    assert names(made) == ["elsewhere", "beside", "cpus"]
    assert made.reservations[0].at == 100.0


def test_a_better_fitting_node_that_is_kept_is_passed_over_for_another():
    """Best fit alone would take the node that the head needs."""
    seen = world(EIGHT, OTHER, holds=[hold("a", "n", *range(4), until=100.0), hold("b", "o", 0, until=900.0)])
    made = pass_at(
        seen, waiting("head", ask("8", cpus=1, gib=1), at=0), waiting("small", ask("4", cpus=1, gib=1), at=1)
    )
    assert [(each.waiting.name, each.places[0].node_id) for each in made] == [("small", "o")]


def test_where_nothing_declares_an_end_the_node_with_the_fewest_is_kept():
    seen = world(EIGHT, OTHER, holds=[*(hold(f"a{n}", "n", n) for n in range(3)), hold("b", "o", *range(5))])
    small = [waiting(f"s{n}", ask("1", cpus=1, gib=1), at=1.0 + n) for n in range(12)]
    made = pass_at(seen, waiting("head", ask("8", cpus=1, gib=1), at=0), *small)
    assert made.reservations[0].at is None
    assert made.reservations[0].node_ids == {"o"}
    assert made.reservations[0].waits_for == ("b",)
    assert {each.places[0].node_id for each in made} == {"n"}
    assert len(made.decisions) == 5


def test_where_the_end_is_unknown_a_declared_one_may_take_as_long_as_the_head_has_waited():
    seen = world(EIGHT, holds=[hold("a", "n", 0)])
    head = waiting("head", ask("8", cpus=1, gib=1), priority=1)
    queue = [head, waiting("s", ask("1", cpus=1, gib=1), at=1, duration=60.0)]
    assert names(place(seen, queue, now=59.0)) == []
    assert names(place(seen, queue, now=60.0)) == ["s"]


def test_estimated_ends_serve_where_none_was_declared():
    seen = world(EIGHT, holds=[hold("a", "n", 0)])
    queue = [
        waiting("head", ask("8", cpus=1, gib=1), priority=1),
        waiting("s", ask("1", cpus=1, gib=1), at=1, duration=60.0),
    ]
    made = place(seen, queue, now=0.0, ends={"a": 60.0})
    assert made.reservations[0].at == 60.0
    assert names(made) == ["s"]
    assert names(place(seen, queue, now=0.0, ends={"a": 59.0})) == []


def test_what_can_never_start_keeps_nothing():
    seen = world(EIGHT, holds=[hold("a", "n", 0)])
    made = pass_at(seen, waiting("never", ask("T4:9"), at=0), waiting("s", ask("1", cpus=1, gib=1), at=1))
    assert names(made) == ["s"]
    assert made.reservations == ()


def test_a_spot_run_keeps_nothing_from_work_that_could_stop_it():
    seen = world(EIGHT, holds=[hold("a", "n", 0)])
    head = waiting("head", ask("8", cpus=1, gib=1), at=0, **SPOT)
    spot, firm = waiting("spot", ask("1", cpus=1, gib=1), at=1, **SPOT), waiting("firm", ask("2", cpus=1, gib=1), at=2)
    assert names(pass_at(seen, head, spot, firm)) == ["firm"]


def test_a_spot_run_may_start_in_the_room_of_who_may_stop_it():
    seen = world(EIGHT, holds=[hold("a", "n", 0, until=50.0)])
    head = waiting("head", ask("8", cpus=1, gib=1), at=0)
    spot, firm = waiting("spot", ask("1", cpus=1, gib=1), at=1, **SPOT), waiting("firm", ask("2", cpus=1, gib=1), at=2)
    made = pass_at(seen, head, spot, firm)
    assert names(made) == ["spot"]
    assert made.reservations[0].waiting.name == "head"
    assert made.reservations[0].at == 50.0
    assert names(pass_at(seen, head, spot, firm, policy=Policy(preemption=False))) == []


def test_without_backfill_nothing_passes_the_head():
    seen = world(EIGHT, holds=[hold("a", "n", 0, until=9.0)])
    queue = [waiting("head", ask("8"), priority=1), waiting("s", ask("1", cpus=1, gib=1), at=1, duration=1.0)]
    assert names(place(seen, queue, now=0.0, policy=Policy(backfill=False))) == []


def test_backfill_looks_only_so_deep():
    seen = world(EIGHT, holds=[hold("a", "n", 0, until=9.0)])
    queue = [waiting("head", ask("8"), priority=1)]
    queue += [waiting(f"s{n}", ask("1", cpus=1, gib=1), at=1.0 + n, duration=1.0) for n in range(4)]
    assert names(place(seen, queue, now=0.0, policy=Policy(backfill_depth=2))) == ["s0", "s1"]


def test_a_gang_is_kept_all_its_nodes():
    seen = world(EIGHT, OTHER, holds=[hold("a", "n", 0, until=50.0), hold("b", "o", 0, until=60.0)])
    made = pass_at(seen, waiting("gang", ask("8", nodes=2), at=0), waiting("s", ask("1", cpus=1, gib=1), at=1))
    assert names(made) == []
    assert made.reservations[0].node_ids == {"n", "o"}
    assert made.reservations[0].at == 60.0


def test_room_is_kept_for_several_that_wait():
    """Two heads of unlike asks: what would not delay the first may still delay the second."""
    seen = world(EIGHT, OTHER, holds=[hold("a", "n", *range(5)), hold("b", "o", 0)])
    first, second = waiting("first", ask("8", cpus=1, gib=1), at=0), waiting("all", ask("8", nodes=2, cpus=1), at=1)
    small = waiting("small", ask("2", cpus=1, gib=1), at=2)
    assert names(place(seen, [first, second, small], now=9.0, policy=Policy(reservations=1))) == ["small"]
    made = place(seen, [first, second, small], now=9.0, policy=Policy(reservations=2))
    assert names(made) == []
    assert [each.waiting.name for each in made.reservations] == ["first", "all"]
    assert made.reservation == made.reservations[0]


@few
@given(worlds(), queues())
def test_a_pass_with_a_clock_takes_no_more_than_there_is_and_decides_the_same(seen, queue):
    before = seen.copy()
    made = place(seen, queue, now=5.0)
    assert seen == before
    assert place(seen.copy(), list(reversed(queue)), now=5.0) == made
    for decision in made:
        hold_places(seen, decision.waiting, decision.places)  # raises OverHeld


@few
@given(worlds(), queues())
def test_what_starts_behind_the_heads_delays_none_of_them(seen, queue):
    """At the shadow time of each it fits beside all that has not ended by then."""
    now = 5.0
    made = place(seen, queue, now=now)
    for decision in made:
        length = decision.waiting.duration_s
        hold_places(seen, decision.waiting, decision.places, None if length is None else now + length)
    for kept in made.reservations:
        if kept.at is None:
            continue
        then = seen.copy()
        for each in list(then.holds.values()):
            if each.until is not None and max(each.until, now) <= kept.at:
                then.release(each.instance_id)
        assert choose(then, kept.waiting.ask) is not None


sizes = st.lists(st.sampled_from(("1", "2", "4")), min_size=4, max_size=24)


@pytest.mark.parametrize(("length", "large", "later"), [(None, None, 0), (10.0, 10.0, 0), (10.0, 12.0, 20 + 16)])
@few
@given(small=sizes)
def test_an_endless_stream_of_small_runs_does_not_starve_a_large_one(length, large, later, small):
    """Two nodes full of small runs that end in turn, one a second, and always more that wait.

    Those that ran when it came keep it out, those that were due before it (those of 10 * (12 - 10) seconds), and those
    of them that still run.
    """
    seen, running, now, steps = world(EIGHT, OTHER), [], 0.0, count()
    head = waiting("head", ask("8", cpus=1, gib=1), at=0, duration=large)

    def step(*first):
        number = next(steps)
        stream = [
            waiting(f"s{number}.{n}", ask(size, cpus=1, gib=1), at=1.0 + number, duration=length)
            for n, size in enumerate(small)
        ]
        made = place(seen, [*first, *stream], now=now)
        for decision in made:
            until = None if length is None else now + length
            running.append(hold_places(seen, decision.waiting, decision.places, until))
        return names(made)

    while step():
        pass
    before = len(running)
    completions = 0
    while "head" not in step(head):
        now += 1.0
        [ended] = running.pop(0)
        seen.release(ended)
        completions += 1
        assert completions <= before + later


def test_nothing_is_kept_where_only_what_is_there_to_stay_would_have_to_end():
    seen = world(node("one", ("A100-80GB", "A100-80GB")))
    [stays] = held_places(waiting("stays", ask("A100")), chosen(seen, ask("A100")))
    seen.hold(replace(stays, lasting=True))
    large, small = waiting("large", ask("A100:2")), waiting("small", ask("A100"), at=1.0)
    assert reserve(seen, large, large.ask, now=10.0, ends={stays.instance_id: 20.0}) is None
    decided = place(seen, [large, small], now=10.0, policy=Policy(others=ProjectRules(guaranteed={"A100-80GB": 2})))
    assert [decision.waiting.name for decision in decided.decisions] == ["small"]
    assert (decided.preemptions, decided.reservations) == ((), ())
