"""Preemption: who goes for whom, the least that is lost, and nobody without need."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.run import PurchaseOption
from cumulo.placement.fit import choose
from cumulo.placement.order import hold_places, place
from cumulo.placement.policy import Policy, ProjectRules
from cumulo.placement.victims import lost_gpu_s
from tests.placement.worlds import ask, asks, few, hold, node, part, waiting, world, worlds

EIGHT = node("n", ("T4",) * 8)
OTHER = node("o", ("T4",) * 8)
NOW = 1000.0


def spot(name, node_id, *devices, started=0.0, **changes):
    changes = {"purchase": PurchaseOption.SPOT, "started_at": started, **changes}
    return hold(name, node_id, *devices, **changes)


def small(gpu, **more):
    return ask(gpu, cpus=1, gib=1, **more)


def victims(made):
    return [[victim.run_id for victim in each.victims] for each in made.preemptions]


def test_an_on_demand_run_takes_the_place_of_the_spot_run_that_loses_least():
    seen = world(
        EIGHT,
        holds=[
            spot("old", "n", 0, 1, 2, 3, started=0.0),
            spot("young", "n", 4, 5, started=900.0),
            spot("saved", "n", 6, 7, started=0.0, checkpointed_at=990.0),
        ],
    )
    made = place(seen, [waiting("w", small("2"))], now=NOW)
    assert victims(made) == [["saved"]]
    [preemption] = made.preemptions
    assert preemption.lost_gpu_s == 2 * 10.0
    assert preemption.places[0].device_uuids == ("n-6", "n-7")
    assert not made.decisions
    assert victims(place(seen, [waiting("w", small("4"))], now=NOW)) == [["saved", "young"]]


def test_a_lower_priority_goes_first_however_much_it_loses():
    seen = world(EIGHT, holds=[spot("low", "n", 0, 1, 2, 3), spot("high", "n", 4, 5, 6, 7, started=999.0, priority=5)])
    assert victims(place(seen, [waiting("w", small("4"))], now=NOW)) == [["low"]]


def test_one_large_victim_that_loses_less_is_better_than_several_small():
    seen = world(EIGHT, holds=[*(spot(f"s{n}", "n", n, started=800.0) for n in range(4)), spot("big", "n", 4, 5, 6, 7)])
    assert victims(place(seen, [waiting("w", small("4"))], now=NOW)) == [["s0", "s1", "s2", "s3"]]
    seen.release("big")
    seen.hold(spot("big", "n", 4, 5, 6, 7, started=950.0))
    assert victims(place(seen, [waiting("w", small("4"))], now=NOW)) == [["big"]]


def test_of_two_nodes_the_one_where_less_is_lost_is_cleared():
    seen = world(EIGHT, OTHER, holds=[spot("a", "n", *range(8)), spot("b", "o", *range(8), started=10.0)])
    assert victims(place(seen, [waiting("w", small("8"))], now=NOW)) == [["b"]]


def test_nobody_goes_where_it_fits_or_where_it_would_not_be_enough():
    seen = world(EIGHT, holds=[spot("a", "n", 0), hold("b", "n", 1)])
    assert place(seen, [waiting("w", small("6"))], now=NOW).preemptions == ()
    assert place(seen, [waiting("w", small("8"))], now=NOW).preemptions == ()
    assert victims(place(seen, [waiting("w", small("7"))], now=NOW)) == [["a"]]


def test_spot_runs_take_nobodys_place_and_a_policy_can_forbid_it():
    seen = world(EIGHT, holds=[spot("a", "n", *range(8))])
    assert not place(seen, [waiting("w", small("1"), purchase=PurchaseOption.SPOT)], now=NOW).preemptions
    assert not place(seen, [waiting("w", small("1"))], now=NOW, policy=Policy(preemption=False)).preemptions
    assert not place(seen, [waiting("w", small("1"))]).preemptions, "without a clock nothing is known of losses"


def test_a_gang_dies_whole():
    gang = [spot(f"gang-0-1-{rank}", name, *range(8)) for rank, name in enumerate("no")]
    made = place(world(EIGHT, OTHER, holds=gang), [waiting("w", small("1"))], now=NOW)
    [[victim]] = [each.victims for each in made.preemptions]
    assert victim.instance_ids == ("gang-0-1-0", "gang-0-1-1")
    assert victim.lost_gpu_s == 16 * NOW


def test_a_gang_gets_all_its_nodes_cleared():
    holds = [spot("a", "n", 0), spot("b", "o", 0), spot("c", "o", 1, 2)]
    made = place(world(EIGHT, OTHER, holds=holds), [waiting("w", small("8", nodes=2))], now=NOW)
    assert victims(made) == [["a", "b", "c"]]


def test_parts_of_a_gpu_are_cleared_too():
    seen = world(
        node("n", ("T4",)),
        holds=[spot("a", "n", part("n-0", 500), started=500.0), spot("b", "n", part("n-0", 400))],
    )
    assert victims(place(seen, [waiting("w", small("T4:0.5"))], now=NOW)) == [["a"]]
    assert victims(place(seen, [waiting("w", small("T4"))], now=NOW)) == [["a", "b"]]


def test_what_a_project_is_sure_of_is_taken_back_from_who_borrows_it():
    policy = Policy(projects={"mine": ProjectRules(guaranteed={"T4": 4}), "theirs": ProjectRules(guaranteed={"T4": 4})})
    seen = world(
        EIGHT,
        holds=[
            hold("own", "n", 0, 1, 2, 3, project="theirs", started_at=10.0),
            hold("borrowed", "n", 4, 5, project="theirs", started_at=20.0),
            hold("more", "n", 6, 7, project="theirs", started_at=900.0),
        ],
    )
    mine = waiting("w", small("2"), project="mine")
    assert victims(place(seen, [mine], now=NOW, policy=policy)) == [["more"]]
    four = waiting("w", small("4"), project="mine")
    assert victims(place(seen, [four], now=NOW, policy=policy)) == [["more", "borrowed"]]
    five = waiting("w", small("5"), project="mine")
    assert victims(place(seen, [five], now=NOW, policy=policy)) == []
    other = waiting("w", small("2"), project="other")
    assert victims(place(seen, [other], now=NOW, policy=policy)) == []


def test_the_head_is_not_delayed_by_a_preemption_behind_it():
    seen = world(EIGHT, holds=[spot("s", "n", 0, 1, 2, 3), hold("firm", "n", 4, 5, 6, 7, until=NOW + 50)])
    head = waiting("head", small("8"), at=0)
    made = place(seen, [head, waiting("w", small("2"), at=1)], now=NOW)
    assert victims(made) == []
    short = waiting("w", small("2"), at=1, duration=50.0)
    assert victims(place(seen, [head, short], now=NOW)) == [["s"]]


def test_a_preemption_under_way_is_not_decided_twice_and_its_room_is_kept():
    seen = world(EIGHT, holds=[spot("a-0-1-0", "n", *range(4)), spot("b-0-1-0", "n", *range(4, 8))])
    queue = [waiting("w", small("4"), at=0), waiting("late", small("1"), at=1, purchase=PurchaseOption.SPOT)]
    first = place(seen, queue, now=NOW)
    assert len(first.preemptions) == 1
    again = place(seen, queue, now=NOW, under_way=first.preemptions)
    assert (again.decisions, again.preemptions) == ((), ())
    [gone] = first.preemptions[0].victims
    for name in gone.instance_ids:
        seen.release(name)
    done = place(seen, queue, now=NOW, under_way=first.preemptions)
    assert [(each.waiting.name, each.places) for each in done] == [("w", first.preemptions[0].places)]


def test_a_promise_that_no_node_can_keep_is_none():
    seen = world(EIGHT, OTHER, holds=[spot("a-0-1-0", "n", *range(8)), spot("b-0-1-0", "o", *range(8), started=-1.0)])
    queue = [waiting("w", small("8"))]
    first = place(seen, queue, now=NOW)
    assert victims(first) == [["a-0-1-0"]]
    seen.see_node("n", node("n", ("T4",) * 8, state="draining"))
    assert victims(place(seen, queue, now=NOW, under_way=first.preemptions)) == [["b-0-1-0"]]


def test_a_promise_to_who_waits_no_more_is_none():
    seen = world(EIGHT, holds=[spot("a-0-1-0", "n", *range(8))])
    first = place(seen, [waiting("w", small("8"))], now=NOW)
    seen.release("a-0-1-0")
    made = place(seen, [waiting("x", small("1"))], now=NOW, under_way=first.preemptions)
    assert [each.waiting.name for each in made] == ["x"]


@st.composite
def spotted(draw):
    """A world where some of what is held is spot, with starts and checkpoints."""
    seen = draw(worlds())
    for each in list(seen.holds.values()):
        seen.release(each.instance_id)
        seen.hold(
            replace(
                each,
                purchase=draw(st.sampled_from(PurchaseOption)),
                priority=draw(st.integers(0, 1)),
                started_at=draw(st.none() | st.integers(0, 900).map(float)),
                checkpointed_at=draw(st.none() | st.integers(900, 999).map(float)),
            )
        )
    return seen


@few
@given(spotted(), asks)
def test_no_victim_is_superfluous_and_only_spot_runs_are_victims(seen, what):
    before = seen.copy()
    made = place(seen, [waiting("w", what)], now=NOW)
    assert seen == before
    if choose(seen, what) is not None:
        assert made.preemptions == ()
    for preemption in made.preemptions:
        chosen = {name for victim in preemption.victims for name in victim.instance_ids}
        for name in chosen:
            assert seen.holds[name].purchase is PurchaseOption.SPOT
        assert preemption.lost_gpu_s == pytest.approx(sum(lost_gpu_s(seen.holds[name], NOW) for name in chosen))
        for spared in chosen:
            trial = seen.copy()
            for name in chosen - {spared}:
                trial.release(name)
            assert choose(trial, what) is None, f"{spared} need not go"
        for name in chosen:
            seen.release(name)
        hold_places(seen, preemption.waiting, preemption.places)  # raises OverHeld


@few
@given(spotted(), asks)
def test_where_stopping_all_spot_runs_is_enough_somebody_is_stopped(seen, what):
    made = place(seen, [waiting("w", what)], now=NOW)
    for each in list(seen.holds.values()):
        if each.purchase is PurchaseOption.SPOT:
            seen.release(each.instance_id)
    assert bool(made.decisions or made.preemptions) == (choose(seen, what) is not None)
