"""A queue played forward on a coarse picture: what starts when, beside a real pass over a real world."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.node import NodeState
from cumulo.placement.floor import Floor
from cumulo.placement.order import hold_places, place
from cumulo.placement.play import Play, Unit
from cumulo.placement.policy import Policy
from cumulo.placement.world import in_order
from tests.placement.worlds import ask, few, hold, mig, node, part, waiting, world

BY_AGE = Policy(stretch=0.0, reservations=1)
ALL = range(8)
EIGHT = ("A100-80GB",) * 8


def played(seen, queue, now=0.0, most_heads=1):
    """When each of the queue starts, if all takes just as long as it declared."""
    floor = Floor(seen)
    shapes = [floor.shape(each.ask, each.duration_s) for each in queue]
    play = Play(floor, shapes, now, most_heads=most_heads)
    for each in seen.holds.values():
        play.runs(floor.held(each), each.until, each.until)
    for number, each in enumerate(queue):
        took = None if each.duration_s is None else lambda _, took=each.duration_s: took
        play.waits(Unit(number, (-each.priority, 0.0, number), each.accepted_at, took), fresh=True)
    found = {}
    while True:
        for *_, number in play.start(lambda: 0.5):
            found[queue[number].name] = play.now
        if play.next_end() == inf:
            return found
        play.to(play.next_end())


def test_what_waits_starts_as_room_appears():
    seen = world(node("n", EIGHT), holds=[hold("a", "n", *range(6), until=100.0), hold("b", "n", 6, 7, until=50.0)])
    queue = [waiting("two", ask("A100:2"), duration=30.0), waiting("eight", ask("A100:8"), duration=10.0)]
    assert played(seen, queue) == {"two": 50.0, "eight": 100.0}


def test_small_ones_slip_in_before_the_head_only_if_they_do_not_delay_it():
    seen = world(node("n", EIGHT), holds=[hold("a", "n", *range(6), until=100.0)])
    head = waiting("head", ask("A100:8"), at=1, duration=50.0)
    short, long = waiting("short", ask("A100"), at=2, duration=90.0), waiting("long", ask("A100"), at=3, duration=110.0)
    assert played(seen, [head, short, long]) == {"short": 0.0, "head": 100.0, "long": 150.0}


def test_what_the_head_can_spare_is_given_away():
    seen = world(node("n", EIGHT), holds=[hold("a", "n", *range(6), until=100.0)])
    head, long = (
        waiting("head", ask("A100:6"), at=1, duration=50.0),
        waiting("long", ask("A100:2"), at=2, duration=999.0),
    )
    assert played(seen, [head, long]) == {"long": 0.0, "head": 100.0}


def test_rooms_are_kept_for_as_many_as_the_policy_says():
    """`second` fits a node as soon as `a` has ended; unless it is a head too, `long` takes that room first."""
    seen = world(
        node("n", EIGHT),
        node("m", EIGHT),
        holds=[hold("a", "n", *range(6), until=50.0), hold("b", "m", *ALL, until=90.0)],
    )
    queue = [
        waiting("first", ask("A100:8", nodes=2), at=1, duration=50.0),
        waiting("second", ask("A100:7"), at=2, duration=40.0),
        waiting("long", ask("A100:2"), at=3, duration=80.0),
    ]
    assert played(seen, queue, most_heads=1) == {"long": 0.0, "first": 90.0, "second": 140.0}
    assert played(seen, queue, most_heads=2) == {"second": 50.0, "first": 90.0, "long": 140.0}
    assert played(seen, queue, most_heads=0) == {"long": 0.0, "second": 80.0, "first": 120.0}


def test_a_head_whose_time_nobody_can_tell_is_not_starved():
    seen = world(node("n", EIGHT), holds=[hold("a", "n", *range(7))])
    head, endless = waiting("head", ask("A100:8"), at=1), waiting("endless", ask("A100"), at=2)
    assert played(seen, [head, endless]) == {}


def test_a_gang_takes_nodes_of_one_kind_at_once():
    seen = world(
        node("a", EIGHT), node("b", EIGHT), node("h", ("H100-80GB",) * 8), holds=[hold("x", "b", 0, until=7.0)]
    )
    assert played(seen, [waiting("gang", ask("A100,H100:8", nodes=2), duration=5.0)]) == {"gang": 7.0}


def test_fractions_and_mig_slices_fill_a_device_and_leave_it():
    seen = world(
        node("n", ("A100-80GB",) * 2),
        holds=[
            hold("half", "n", part("n-0", 500), until=10.0),
            hold("third", "n", part("n-0", 300), until=20.0),
            hold("mig", "n", mig("n-1", "1g.10gb", 0), until=30.0),
        ],
    )
    queue = [
        waiting("quarter", ask("A100:0.25"), at=1, duration=100.0),
        waiting("whole", ask("A100"), at=2, duration=5.0),
    ]
    assert played(seen, queue) == {"quarter": 10.0, "whole": 30.0}


def test_nodes_that_are_not_ready_or_do_not_match_are_no_rooms():
    seen = world(node("down", EIGHT, state=NodeState.DOWN), node("t", ("T4",)), node("small", EIGHT, cpus=2))
    assert not Floor(seen).shape(ask("A100:2", cpus=4), None).takings
    assert played(seen, [waiting("w", ask("A100:2", cpus=4), duration=1.0)]) == {}


def test_cpus_and_memory_count_too():
    seen = world(node("n", cpus=8, gib=32), holds=[hold("a", "n", cpus=6, gib=8, until=9.0)])
    queue = [
        waiting("cpus", ask(cpus=4, gib=8), duration=5.0),
        waiting("memory", ask(cpus=1, gib=28), at=1, duration=5.0),
    ]
    assert played(seen, queue) == {"cpus": 9.0, "memory": 14.0}


# ---- beside the real thing -------------------------------------------------------------------------------------------

sizes = st.sampled_from((1, 1, 2, 4, 8))
times = st.integers(1, 20).map(float)


@st.composite
def queues(draw):
    return [
        waiting(f"r{number}", ask(f"A100:{draw(sizes)}"), at=number, duration=draw(times))
        for number in range(draw(st.integers(1, 12)))
    ]


@few
@given(queues())
def test_on_one_node_of_whole_gpus_a_play_is_what_really_happens(queue):
    """With everything known and one node there is nothing coarse about it: pass after pass gives the same starts."""
    assert played(world(node("n", EIGHT)), queue) == really(world(node("n", EIGHT)), queue)


def really(seen, queue):
    found, ends, left, now = {}, {}, list(queue), 0.0
    while True:
        for decision in place(seen, left, now=now, policy=BY_AGE).decisions:
            each = decision.waiting
            assert each.duration_s is not None
            for name in hold_places(seen, each, decision.places, now + each.duration_s):
                seen.holds[name] = replace(seen.holds[name], started_at=now)
                ends[name] = now + each.duration_s
            found[each.name] = now
            left.remove(each)
        if not ends:
            return found
        now = min(ends.values())
        for name in [name for name, end in ends.items() if end <= now]:
            seen.release(name)
            del ends[name]


def test_the_order_is_that_of_the_queue():
    seen = world(node("n", ("T4",)), holds=[hold("a", "n", 0, until=5.0)])
    queue = [
        waiting("old", ask("T4"), at=1, duration=5.0),
        waiting("urgent", ask("T4"), at=2, priority=1, duration=5.0),
    ]
    assert played(seen, in_order(queue)) == {"urgent": 5.0, "old": 10.0}


@pytest.mark.parametrize("ends", [[3.0, 3.0], [3.0, 4.0]])
def test_what_ends_together_frees_together(ends):
    seen = world(node("n", ("T4",) * 2), holds=[hold("a", "n", 0, until=ends[0]), hold("b", "n", 1, until=ends[1])])
    assert played(seen, [waiting("w", ask("T4:2"), duration=1.0)]) == {"w": max(ends)}
