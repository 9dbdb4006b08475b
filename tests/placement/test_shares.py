"""Who has had how much: the decayed average against its integral, and the order of projects that follows from it."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.quantities import GIB
from cumulo.placement.order import place
from cumulo.placement.policy import Policy, ProjectRules
from cumulo.placement.shares import Holding, Resources, Shares, Usage, capacity, holdings
from tests.placement.worlds import ask, few, hold, node, part, waiting, world, worlds

DAY = 86400.0
ONE_GPU = Resources(1000.0, 0.0, 0.0)


def test_a_steady_use_averages_to_itself():
    usage = Usage(DAY)
    usage.charge("p", ONE_GPU, 100 * DAY, until=0.0)
    assert usage.average("p", 0.0).gpus_milli == pytest.approx(1000.0)


def test_half_is_forgotten_in_a_half_life():
    usage = Usage(DAY)
    usage.charge("p", ONE_GPU, 100 * DAY, until=0.0)
    assert usage.average("p", DAY).gpus_milli == pytest.approx(500.0)
    assert usage.average("p", 3 * DAY).gpus_milli == pytest.approx(125.0)
    assert usage.average("nobody", 0.0) == Resources()


def test_a_negative_time_is_refused():
    with pytest.raises(ValueError, match="p can't have used anything for -1 s"):
        Usage(DAY).charge("p", ONE_GPU, -1, until=0.0)


pieces = st.lists(
    st.tuples(st.floats(0, 8000), st.floats(0, 5 * DAY), st.floats(0, 9 * DAY)), min_size=1, max_size=6
)  # milli, seconds, until


@given(pieces, st.randoms())
def test_the_average_is_the_integral_whatever_the_order_of_charges(charged, random):
    now = max(until for _, _, until in charged)
    rate = math.log(2) / DAY
    wanted = sum(
        milli * (math.exp(-rate * (now - until)) - math.exp(-rate * (now - until + seconds)))
        for milli, seconds, until in charged
    )
    random.shuffle(charged)
    usage = Usage(DAY)
    for milli, seconds, until in charged:
        usage.charge("p", Resources(milli, 2 * milli, 0.0), seconds, until)
    average = usage.average("p", now)
    assert average.gpus_milli == pytest.approx(wanted, abs=1e-6)
    assert average.cpus_milli == pytest.approx(2 * wanted, abs=1e-6)


@given(st.lists(st.floats(0, DAY), min_size=2, max_size=8).map(sorted))
def test_advancing_by_steps_is_one_charge(times):
    stepped, whole = Usage(DAY), Usage(DAY)
    held = {"p": Holding(kinds={"T4": 2000}, cpus_milli=1, memory_bytes=1)}
    for at in times:
        stepped.advance(held, at)
    whole.charge("p", held["p"].resources, times[-1] - times[0], times[-1])
    assert stepped.average("p", times[-1]) == pytest.approx(whole.average("p", times[-1]))


def test_what_is_held_counts_by_project_and_kind_parts_too():
    seen = world(
        node("n", ("T4", "A100-80GB")),
        holds=[
            hold("a", "n", part("n-0", 250), cpus=2, gib=3, project="p"),
            hold("b", "n", 1, project="p"),
            hold("c", "n", part("n-0", 500), project="q"),
        ],
    )
    held = holdings(seen)
    assert held["p"] == Holding(kinds={"T4": 250, "A100-80GB": 1000}, cpus_milli=3000, memory_bytes=4 * GIB)
    assert held["q"].kinds == {"T4": 500}
    assert capacity(seen) == (2000.0, 64000.0, 512 * GIB)


@few
@given(worlds())
def test_what_is_given_back_leaves_nothing(seen):
    shares = Shares(seen, Policy(), None, 0.0)
    shares.give_back(seen, list(seen.holds.values()))
    for holding in shares.held.values():
        assert not any(holding.kinds.values())
        assert holding.resources == (0, 0, 0)


def test_the_dominant_resource_decides():
    """The DRF paper's example: 9 CPUs, 18 GB, tasks of <1 CPU, 4 GB> and <3 CPUs, 1 GB>: 3 and 2 of them start."""
    queue = [waiting(f"a{n}", ask(cpus=1, gib=4), at=n, project="a") for n in range(9)]
    queue += [waiting(f"b{n}", ask(cpus=3, gib=1), at=n, project="b") for n in range(9)]
    made = place(world(node("n", cpus=9, gib=18)), queue)
    started = [decision.waiting.project for decision in made.decisions]
    assert sorted(started) == ["a", "a", "a", "b", "b"]


def test_a_weight_of_two_gets_twice_as_much():
    queue = [waiting(f"{project}{n}", ask("T4"), at=n, project=project) for n in range(9) for project in "ab"]
    policy = Policy(projects={"b": ProjectRules(weight=2.0)})
    made = place(world(node("n", ("T4",) * 9)), queue, policy=policy)
    started = [decision.waiting.project for decision in made.decisions]
    assert started.count("b") == 6
    assert started.count("a") == 3


def test_who_has_used_much_of_late_comes_after_who_has_not_and_later_does_not():
    usage = Usage(DAY)
    usage.charge("greedy", Resources(4000.0, 0.0, 0.0), 3 * DAY, until=0.0)
    queue = [waiting("g", ask("T4:4"), at=0, project="greedy"), waiting("m", ask("T4:4"), at=1, project="modest")]
    seen = world(node("n", ("T4",) * 4))
    assert [each.waiting.name for each in place(seen, queue, usage=usage, now=0.0)] == ["m"]
    usage.charge("modest", Resources(4000.0, 0.0, 0.0), DAY, until=20 * DAY)
    assert [each.waiting.name for each in place(seen, queue, usage=usage, now=20 * DAY)] == ["g"]


def test_priority_comes_before_shares():
    usage = Usage(DAY)
    usage.charge("greedy", Resources(4000.0, 0.0, 0.0), 3 * DAY, until=0.0)
    queue = [waiting("g", ask("T4"), priority=1, project="greedy"), waiting("m", ask("T4"), project="modest")]
    made = place(world(node("n", ("T4",))), queue, usage=usage, now=0.0)
    assert [each.waiting.name for each in made] == ["g"]


def test_what_a_project_is_sure_of_comes_before_shares():
    policy = Policy(projects={"sure": ProjectRules(guaranteed={"T4": 2})})
    seen = world(node("n", ("T4",) * 2), holds=[hold("x", "n", 0, project="sure")])
    queue = [waiting("other", ask("T4"), at=0, project="other"), waiting("mine", ask("T4"), at=1, project="sure")]
    assert [each.waiting.name for each in place(seen, queue, policy=policy)] == ["mine"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=12))
def test_within_a_project_the_older_comes_first(units):
    queue = [waiting(f"w{n}", ask("T4"), at=at, project=project) for n, (project, at) in enumerate(units)]
    made = place(world(node("n", ("T4",) * 12)), queue)
    assert len(made.decisions) == len(queue)
    for project in "abc":
        ages = [(d.waiting.accepted_at, d.waiting.key) for d in made if d.waiting.project == project]
        for older, younger in pairwise(ages):
            assert older < younger


def test_a_weight_must_be_above_zero():
    with pytest.raises(ValueError, match="must be above 0"):
        ProjectRules(weight=0)
