"""A service's mix: what is launched, what is dropped, and what never happens."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.domain.run import PurchaseOption
from cumulo.market.hazards import Hazards, Rates
from cumulo.market.replicas import RETRY_S, Goal, Launch, Pool, Replica, age_of, plan

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
HOUR = 3600.0
COLD_S = 600.0


def hazards(per_hour=0.1, young_per_hour=None):
    young = per_hour if young_per_hour is None else young_per_hour
    lost = Rates((0.0, HOUR), (young / HOUR, per_hour / HOUR))
    return Hazards(lost, Rates((0.0,), (1 / HOUR,)))


def pool(name="a", **changed):
    given = {
        "name": name, "region": "here", "spot": 1.0, "on_demand": 3.0, "cold_start_s": COLD_S, "hazards": hazards(),
    }  # fmt: skip
    return Pool(**given | changed)


def replica(number, at="a", option=SPOT, ready=True, began_at=0.0):
    return Replica(id=f"r{number}", pool=at, option=option, ready=ready, began_at=began_at)


def ready_in(*pools, option=SPOT, began_at=0.0):
    return [replica(number, at, option, began_at=began_at) for number, at in enumerate(pools)]


def goal(target=4, missing=75.0, **more):
    return Goal(target=target, missing=missing, **more)


def asked(found):
    return Counter((each.pool, each.option) for each in found.launch)


def carried_out(pools, replicas, wanted, now, rounds=20):
    """Launches and drops as the plan says until it says nothing more, each replica ready by the next question."""
    launched = 0
    for turn in range(rounds):
        found = plan(wanted, pools=pools, replicas=replicas, now=now)
        if not found.launch and not found.drop:
            return replicas, launched
        replicas = [replace(each, ready=True) for each in replicas if each.id not in found.drop]
        replicas += [
            Replica(id=f"n{turn}-{number}", pool=each.pool, option=each.option, ready=True, began_at=now)
            for number, each in enumerate(found.launch)
        ]
        launched += len(found.launch)
    raise AssertionError(f"still at it after {rounds} rounds")


# ---- launching ---------------------------------------------------------------------------------------------------


def test_spot_alone_where_it_hardly_ever_goes():
    found = plan(goal(), pools=[pool(hazards=hazards(1e-4))], replicas=[], now=0.0)
    assert asked(found) == {("a", SPOT): 4}


def test_on_demand_where_spot_is_not_sold():
    found = plan(goal(2), pools=[pool(spot=None)], replicas=[], now=0.0)
    assert asked(found) == {("a", ON_DEMAND): 2}


def test_on_demand_where_spot_never_lasts_and_missing_replicas_are_dear():
    found = plan(goal(2, missing=1000.0), pools=[pool(hazards=hazards(20.0))], replicas=[], now=0.0)
    assert asked(found)["a", ON_DEMAND] == 2


def test_spares_on_spot_elsewhere_where_pools_are_lost_now_and_then():
    pools = [pool(name, region=name, hazards=hazards(0.3)) for name in "abcdef"]
    found = plan(goal(missing=300.0), pools=pools, replicas=[], now=0.0)
    assert sum(asked(found).values()) > 4
    assert {option for _, option in asked(found)} == {SPOT}
    assert max(asked(found).values()) < 4, "they are not all lost at once"


def test_no_spares_where_missing_replicas_cost_little():
    pools = [pool(name, region=name) for name in "abc"]
    assert sum(asked(plan(goal(missing=2.0), pools=pools, replicas=[], now=0.0)).values()) == 4


def test_a_pool_that_just_came_back_is_passed_over():
    risky = hazards(0.1, young_per_hour=3.0)
    pools = [pool("new", hazards=risky, down_at=1000.0), pool("old", hazards=risky, down_at=-30 * HOUR)]
    assert set(asked(plan(goal(), pools=pools, replicas=[], now=1000.0 + RETRY_S))) == {("old", SPOT)}


def test_the_cheaper_of_two_alike():
    pools = [pool("dear", spot=1.4), pool("cheap", spot=1.0)]
    assert set(asked(plan(goal(2, missing=20.0), pools=pools, replicas=[], now=0.0))) == {("cheap", SPOT)}


def test_a_refusal_sends_it_elsewhere_until_it_may_be_asked_again():
    pools = [pool("a"), pool("b", spot=1.5)]
    refused = [replace(pools[0], down_at=500.0), pools[1]]
    assert set(asked(plan(goal(1), pools=refused, replicas=[], now=500.0))) == {("b", SPOT)}
    again = [replace(pools[0], down_at=500.0, hazards=hazards(0.01)), pools[1]]
    assert set(asked(plan(goal(1), pools=again, replicas=[], now=500.0 + RETRY_S))) == {("a", SPOT)}


def test_the_outage_of_all_is_worth_spreading():
    pools = [pool(name, region=name, hazards=hazards(0.5)) for name in "abcd"]
    together = plan(goal(missing=10.0), pools=pools, replicas=[], now=0.0)
    apart = plan(goal(missing=10.0, outage=500.0), pools=pools, replicas=[], now=0.0)
    assert len(asked(apart)) > len(asked(together))


def test_no_more_in_one_pool_than_allowed():
    pools = [pool(name) for name in "ab"]
    found = plan(goal(4, most_in_pool=2), pools=pools, replicas=[], now=0.0)
    assert all(count <= 2 for (_, option), count in asked(found).items() if option is SPOT)


# ---- this machine, and pools that are full -----------------------------------------------------------------------


def test_a_pool_of_one():
    here = [pool(spot=None, room=1)]
    found = plan(goal(2), pools=here, replicas=[], now=0.0)
    assert asked(found) == {("a", ON_DEMAND): 1}
    assert "no pool has room for more now" in found.why
    assert plan(goal(2), pools=here, replicas=ready_in("a", option=ON_DEMAND), now=9.0).launch == ()


def test_a_full_pool_keeps_what_it_has_rather_than_stop_it_for_something_better():
    here = [pool(room=1, hazards=hazards(1e-4))]
    found = plan(goal(1), pools=here, replicas=ready_in("a", option=ON_DEMAND), now=9.0)
    assert (found.launch, found.drop) == ((), ())


def test_without_any_pool_nothing_can_be_done():
    found = plan(goal(1), pools=[], replicas=[], now=0.0)
    assert (found.launch, found.drop, found.short) == ((), (), 1.0)


# ---- dropping ----------------------------------------------------------------------------------------------------


def test_a_bridge_of_on_demand_goes_once_spot_is_ready():
    pools = [pool(hazards=hazards(1e-3))]
    bridge = replica(9, option=ON_DEMAND)
    starting = [replica(number, ready=number != 0) for number in range(4)]
    assert plan(goal(), pools=pools, replicas=[*starting, bridge], now=50.0).drop == ()
    assert plan(goal(), pools=pools, replicas=[*ready_in("a", "a", "a", "a"), bridge], now=650.0).drop == ("r9",)


def test_scaling_down_drops_what_starts_before_what_is_ready():
    replicas = [replica(0), replica(1, began_at=30.0), replica(7, ready=False, began_at=90.0)]
    found = plan(goal(2, missing=10.0), pools=[pool()], replicas=replicas, now=100.0)
    assert found.drop == ("r7",)
    assert plan(goal(0), pools=[pool()], replicas=replicas, now=100.0).drop == ("r7", "r1", "r0")


def test_what_is_in_a_pool_that_is_gone_leaves_once_others_are_ready():
    replicas = ready_in("gone")
    first = plan(goal(1), pools=[pool("a")], replicas=replicas, now=0.0)
    assert first.launch == (Launch("a", SPOT),)
    assert first.drop == ()
    replicas.append(replica(5, "a"))
    assert plan(goal(1), pools=[pool("a")], replicas=replicas, now=700.0).drop == ("r0",)


def test_scaling_up_adds_what_is_missing():
    found = plan(goal(3, missing=10.0), pools=[pool(hazards=hazards(1e-4))], replicas=ready_in("a"), now=9.0)
    assert asked(found) == {("a", SPOT): 2}


# ---- what is known ------------------------------------------------------------------------------------------------


def test_the_age_of_a_pools_capacity_lies_between_what_was_seen():
    here = pool(down_at=1000.0)
    assert age_of(here, [], 3000.0) == 1000.0
    assert age_of(here, [replica(0, began_at=2000.0)], 3000.0) == 1500.0
    assert age_of(here, [replica(0, began_at=500.0)], 3000.0) == 2000.0, "some were taken at 1000"
    assert age_of(pool(), [replica(0, began_at=2000.0)], 3000.0) > 24 * HOUR


def test_it_says_why():
    found = plan(goal(2), pools=[pool()], replicas=[replica(0)], now=5.0)
    assert found.why.startswith("1 of 2 replicas are ready; launches ")
    assert "spot in a" in found.why
    assert "in the next 10 min" in found.why
    assert " instead of " in found.why


@pytest.mark.parametrize(
    "wrong", [{"target": -1}, {"spare": -1}, {"missing": -1.0}, {"missing": float("inf")}, {"most_in_pool": 0}]
)
def test_goals_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=r"below 0|0 or more|1 or more"):
        Goal(**{"target": 1, "missing": 1.0} | wrong)


def test_two_pools_of_one_name_are_refused():
    with pytest.raises(ValueError, match="same name"):
        plan(goal(), pools=[pool(), pool()], replicas=[], now=0.0)


# ---- what never happens -------------------------------------------------------------------------------------------

NOW = 1e6
names = st.sampled_from("abcd")
prices = st.floats(0.2, 5.0)


@st.composite
def worlds(draw):
    pools = [
        pool(
            name,
            region=draw(st.sampled_from(["east", "west"])),
            spot=draw(st.none() | prices),
            on_demand=draw(st.none() | prices),
            hazards=hazards(draw(st.floats(1e-4, 5.0)), draw(st.floats(1e-4, 20.0))),
            room=draw(st.none() | st.integers(0, 4)),
            down_at=draw(st.none() | st.floats(0.0, NOW)),
        )
        for name in draw(st.lists(names, unique=True, max_size=4))
    ]
    replicas = [
        replica(
            number,
            draw(names),
            draw(st.sampled_from([SPOT, ON_DEMAND])),
            draw(st.booleans()),
            draw(st.floats(0.0, NOW)),
        )
        for number in range(draw(st.integers(0, 7)))
    ]
    wanted = Goal(
        target=draw(st.integers(0, 5)),
        missing=draw(st.floats(0.0, 1000.0)),
        outage=draw(st.floats(0.0, 1000.0)),
        spare=draw(st.integers(0, 4)),
        most_in_pool=draw(st.none() | st.integers(1, 3)),
    )
    return wanted, pools, replicas


@given(world=worlds())
@settings(deadline=None)
def test_no_drop_leaves_fewer_ready_than_wanted(world):
    wanted, pools, replicas = world
    found = plan(wanted, pools=pools, replicas=replicas, now=NOW)
    ready = sum(each.ready for each in replicas)
    left = sum(each.ready for each in replicas if each.id not in found.drop)
    assert left >= min(ready, wanted.target)
    assert len(set(found.drop)) == len(found.drop)


@given(world=worlds())
@settings(deadline=None)
def test_no_launch_goes_where_there_is_no_room_or_nothing_is_sold(world):
    wanted, pools, replicas = world
    found = plan(wanted, pools=pools, replicas=replicas, now=NOW)
    held = Counter(each.pool for each in replicas)
    for where in pools:
        here = [each for each in found.launch if each.pool == where.name]
        if where.room is not None and here:
            assert held[where.name] + len(here) <= where.room
        for each in here:
            assert (where.spot if each.option is SPOT else where.on_demand) is not None
            if each.option is SPOT and where.down_at is not None:
                assert NOW - where.down_at >= RETRY_S
    assert {each.pool for each in found.launch} <= {where.name for where in pools}


@given(world=worlds())
@settings(deadline=None)
def test_never_more_than_the_target_and_the_spares(world):
    wanted, pools, replicas = world
    found = plan(wanted, pools=pools, replicas=replicas, now=NOW)
    kept = len(replicas) - len(found.drop) + len(found.launch)
    assert kept <= max(2 * (wanted.target + wanted.spare), len(replicas))


@given(world=worlds())
@settings(deadline=None)
def test_the_same_question_has_the_same_answer(world):
    wanted, pools, replicas = world
    first, second = (plan(wanted, pools=pools, replicas=replicas, now=NOW) for _ in range(2))
    assert first == second
    assert plan(wanted, pools=pools, replicas=replicas[::-1], now=NOW).drop == first.drop


@given(world=worlds())
@settings(deadline=None)
def test_it_comes_to_rest_and_then_costs_no_more_than_the_target_and_its_spares(world):
    wanted, pools, _ = world
    pools = [replace(each, down_at=None) for each in pools]
    replicas, launched = carried_out(pools, [], wanted, NOW)
    assert len(replicas) <= wanted.target + wanted.spare
    assert launched <= 2 * (wanted.target + wanted.spare)
    room = sum(9 if each.room is None else each.room for each in pools if each.on_demand is not None)
    if room >= wanted.target:
        assert len(replicas) >= wanted.target
        sold = [each.on_demand for each in pools if each.on_demand is not None]
        dearest = max([*sold, *(each.spot for each in pools if each.spot is not None)], default=0.0)
        cost = sum(
            {each.name: each for each in pools}[r.pool].spot if r.option is SPOT
            else {each.name: each for each in pools}[r.pool].on_demand
            for r in replicas
        )  # fmt: skip
        assert cost <= dearest * (wanted.target + wanted.spare)
