"""One pass over the queue: who comes first, who may slip in behind, and that no pass gives away more than there is."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.ask import Ask
from cumulo.placement.fit import choose
from cumulo.placement.order import hold_places, place
from cumulo.placement.policy import Policy
from cumulo.placement.world import Waiting, in_order
from tests.placement.worlds import ask, few, node, noting, queues, waiting, world, worlds

FOUR = node("n", ("T4",) * 4)


def names(decisions):
    return [decision.waiting.name for decision in decisions]


def test_priority_first_then_age_then_id():
    queue = [
        waiting("late", ask("T4"), at=2),
        waiting("urgent", ask("T4"), priority=1, at=3),
        waiting("b", ask("T4"), at=1),
        waiting("a", ask("T4"), at=1),
    ]
    assert names(place(world(FOUR), queue)) == ["urgent", "a", "b", "late"]


def test_what_fits_starts_behind_what_does_not():
    queue = [waiting("big", ask("T4:8"), at=1), waiting("small", ask("T4:2"), at=2)]
    assert names(place(world(FOUR), queue)) == ["small"]


def test_units_and_attempts_are_in_order():
    queue = [
        Waiting(key=("r", unit, attempt), name=f"{unit}.{attempt}", ask=ask("T4"), priority=0, accepted_at=0)
        for unit, attempt in ((10, 1), (2, 1), (0, 3))
    ]
    assert names(place(world(FOUR), queue)) == ["0.3", "2.1", "10.1"]


def test_one_refusal_speaks_for_all_equal_asks(monkeypatch):
    tried: list[Ask] = []
    monkeypatch.setattr("cumulo.placement.order.choose", noting(tried))
    place(world(FOUR), [waiting(f"w{n}", ask("T4:8")) for n in range(500)])
    assert len(tried) == 1


def test_a_pass_has_a_limit():
    queue = [waiting(f"w{n:03}", ask(cpus=0.01, gib=0.001)) for n in range(100)]
    assert len(place(world(FOUR), queue, limit=7).decisions) == 7


@few
@given(worlds(), queues())
def test_no_pass_gives_away_more_than_there_is_and_the_same_every_time(seen, queue):
    before = seen.copy()
    decisions = place(seen, queue)
    assert seen == before, "it decides on a copy"
    assert place(seen.copy(), list(reversed(queue))) == decisions
    for decision in decisions:
        hold_places(seen, decision.waiting, decision.places)  # raises OverHeld
    for use in seen.nodes.values():
        assert use.cpus_free >= 0
        assert use.memory_free >= 0


@few
@given(worlds(), queues())
def test_nobody_who_was_passed_over_would_have_fitted(seen, queue):
    placed = {decision.waiting.key: decision for decision in place(seen, queue)}
    trial = seen.copy()
    for each in in_order(queue):
        decision = placed.get(each.key)
        assert choose(trial, each.ask) == (decision.places if decision else None)
        if decision:
            hold_places(trial, each, decision.places)


@given(st.lists(st.tuples(st.integers(-1, 1), st.integers(0, 2)), max_size=6))
def test_the_queue_is_in_one_order_only(ranks):
    queue = [waiting(f"w{n}", ask(), priority=p, at=at) for n, (p, at) in enumerate(ranks)]
    ordered = in_order(queue)
    assert in_order(reversed(queue)) == ordered
    for earlier, later in pairwise(ordered):
        assert (-earlier.priority, earlier.accepted_at) <= (-later.priority, later.accepted_at)


def test_with_a_clock_the_first_due_comes_first():
    """Due is accepted + 10 * length: 100 and 98; who declared nothing is taken to last four hours."""
    queue = [
        waiting("untold", ask("T4:4"), at=0),
        waiting("long", ask("T4:4"), at=0, duration=10.0),
        waiting("short", ask("T4:4"), at=88, duration=1.0),
    ]
    started = []
    while queue:
        [name] = names(place(world(FOUR), queue, now=99.0))
        started.append(name)
        queue = [each for each in queue if each.name != name]
    assert started == ["short", "long", "untold"]
    by_age = [waiting("old", ask("T4:4"), at=0), waiting("short", ask("T4:4"), at=1, duration=1.0)]
    assert names(place(world(FOUR), by_age, now=99.0, policy=Policy(stretch=0.0))) == ["old"]


def test_ten_thousand_in_the_queue_are_one_short_pass(monkeypatch):
    tried: list[Ask] = []
    monkeypatch.setattr("cumulo.placement.order.choose", noting(tried))
    queue = [waiting(f"w{n:05}", ask("T4:3"), at=n, project=f"p{n % 50}", duration=60.0) for n in range(10_000)]
    made = place(world(FOUR), queue, now=1e5)
    assert names(made) == ["w00000"]
    assert len(tried) == 2
