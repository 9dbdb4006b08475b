"""How a run is bought decides what it may take: bids among spot runs, and reservations against on-demand runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.quantities import NANO
from cumulo.domain.run import PurchaseOption
from cumulo.placement.order import place
from cumulo.placement.policy import Policy
from cumulo.placement.purchase import Market, Promised
from cumulo.placement.refuse import Constraint
from tests.placement.worlds import ask, few, hold, node, part, waiting, world

EIGHT = node("n", ("T4",) * 8)
NOW = 1000.0
SPOT, RESERVED = PurchaseOption.SPOT, PurchaseOption.RESERVED
DOLLAR = NANO
DAY = 86400.0


def small(gpu, **more):
    return ask(gpu, cpus=1, gib=1, **more)


def spot(name, *devices, bid=None, started=0.0, **changes):
    return hold(name, "n", *devices, purchase=SPOT, bid_nano_h=bid, started_at=started, **changes)


def wants(name, gpu, *, bid=None, purchase=SPOT, **changes):
    return waiting(name, small(gpu), purchase=purchase, bid_nano_h=bid, **changes)


def promised(count, *, name="r", project="x", kind="T4", starts=0.0, ends=NOW + DAY):
    return Promised(id=name, name=name, project=project, kind=kind, count=count, starts_at=starts, ends_at=ends)


def passed(seen, *queue, prices=None, promises=(), **policy):
    market = Market(prices=prices or {}, promised=tuple(promises))
    return place(seen, queue, now=NOW, market=market, policy=Policy(**policy))


def started(made):
    return [decision.waiting.name for decision in made.decisions]


def victims(made):
    return [[victim.run_id for victim in each.victims] for each in made.preemptions]


def told(made, name):
    return next((held.constraint, held.text) for held in made.held_back if held.waiting.name == name)


# ---- bids -----------------------------------------------------------------------------------------------------------


def test_the_highest_bid_has_its_turn_first_and_who_names_none_before_all():
    queue = [
        wants("low", "3", bid=DOLLAR, at=1.0),
        wants("high", "3", bid=2 * DOLLAR, at=2.0),
        wants("any", "3", at=3.0),
        wants("urgent", "1", bid=1, at=4.0, priority=5),
    ]
    assert started(passed(world(EIGHT), *queue)) == ["urgent", "any", "high"]


def test_the_lowest_bid_goes_first_whatever_it_loses():
    holds = [spot("low", 0, 1, bid=DOLLAR), spot("high", 2, 3, bid=2 * DOLLAR, started=990.0), spot("any", 4, 5, 6, 7)]
    seen = world(EIGHT, holds=holds)
    assert victims(passed(seen, wants("w", "2", purchase=PurchaseOption.ON_DEMAND))) == [["low"]]
    assert victims(passed(seen, wants("w", "4", purchase=PurchaseOption.ON_DEMAND))) == [["low", "high"]]


def test_a_higher_bid_takes_the_place_of_a_lower_one_that_has_had_its_time():
    seen = world(EIGHT, holds=[spot("low", *range(8), bid=DOLLAR, started=NOW - 180.0)])
    assert victims(passed(seen, wants("w", "2", bid=2 * DOLLAR))) == [["low"]]
    assert victims(passed(seen, wants("w", "2"))) == [["low"]]
    assert victims(passed(seen, wants("w", "2", bid=DOLLAR))) == []
    assert victims(passed(seen, wants("w", "2", bid=2 * DOLLAR), min_run_s=181.0)) == []
    assert victims(passed(seen, wants("w", "2", bid=2 * DOLLAR), preemption=False)) == []


@pytest.mark.parametrize("changes", [{"bid": None}, {"bid": DOLLAR, "started": None}])
def test_nobody_is_outbid_who_pays_whatever_it_costs_or_has_not_started(changes):
    seen = world(EIGHT, holds=[spot("there", *range(8), **changes)])
    assert victims(passed(seen, wants("w", "2", bid=5 * DOLLAR))) == []


def test_a_bid_below_the_price_waits_though_there_is_room_and_says_so():
    made = passed(world(EIGHT), wants("w", "T4:2", bid=int(0.8 * DOLLAR)), prices={"T4": int(1.02 * DOLLAR)})
    assert started(made) == []
    assert told(made, "w") == (
        Constraint.PRICE,
        "its bid of 0.80 is below the spot price of T4, 1.02 USD per GPU-hour; raise the bid or drop --max-price",
    )


def test_a_bid_takes_the_kinds_that_it_is_enough_for():
    seen = world(node("n", ("T4", "A100-80GB")))
    made = passed(seen, wants("w", "1", bid=DOLLAR), prices={"A100-80GB": 2 * DOLLAR, "T4": DOLLAR})
    assert [decision.places[0].device_model for decision in made.decisions] == ["T4"]


# ---- reservations ---------------------------------------------------------------------------------------------------


def on_demand(name, gpu, **changes):
    return wants(name, gpu, purchase=PurchaseOption.ON_DEMAND, **changes)


def drawing(name, gpu, **changes):
    return wants(name, gpu, purchase=RESERVED, project="x", **changes)


def test_on_demand_runs_leave_what_is_reserved_and_spot_runs_may_use_it_meanwhile():
    made = passed(world(EIGHT), on_demand("mine", "7"), on_demand("small", "6"), promises=[promised(2)])
    assert started(made) == ["small"]
    assert told(made, "mine") == (
        Constraint.RESERVED,
        "2 of 8 T4 are reserved (2 by project x for another 1d 0h): 6 left for on-demand runs, 7 asked; "
        "spot runs may use them meanwhile",
    )
    assert started(passed(world(EIGHT), wants("spare", "8"), promises=[promised(2)])) == ["spare"]


def test_a_range_takes_what_is_not_reserved():
    made = passed(world(EIGHT), on_demand("w", "2.."), promises=[promised(3)])
    assert [len(decision.places[0].slices) for decision in made.decisions] == [5]


def test_a_reserved_run_has_spot_runs_make_room_and_draws_on_its_reservation():
    seen = world(EIGHT, holds=[spot("spare", *range(8))])
    assert victims(passed(seen, drawing("w", "2"), promises=[promised(2)])) == [["spare"]]
    (decision,) = passed(world(EIGHT), drawing("w", "2"), promises=[promised(2)]).decisions
    assert decision.reservation == "r"


def test_a_reserved_run_beyond_its_count_waits_and_says_so():
    seen = world(EIGHT, holds=[hold("there", "n", 0, purchase=RESERVED, reservation="r", project="x")])
    made = passed(seen, drawing("w", "2"), promises=[promised(2)])
    assert started(made) == []
    assert told(made, "w") == (Constraint.RESERVED, "1 of 2 T4 of reservation r are in use, 2 asked")


@pytest.mark.parametrize(
    ("promise", "text"),
    [
        (promised(2, project="y"), "project x has no reservation of what it asks now"),
        (promised(2, kind="L4"), "project x has no reservation of what it asks now"),
        (promised(2, starts=NOW + 3600.0), "its reservation r begins in 1h 00m"),
        (promised(2, ends=NOW), "project x has no reservation of what it asks now"),
    ],
)
def test_a_reserved_run_without_a_reservation_now_waits_and_says_why(promise, text):
    made = passed(world(EIGHT), drawing("w", "1"), promises=[promise])
    assert (started(made), told(made, "w")[1]) == ([], text)


def test_it_draws_on_the_one_that_it_names_else_on_the_one_that_lasts_longest():
    both = [promised(2, name="short"), promised(2, name="long", ends=NOW + 2 * DAY)]
    named, free = drawing("a", "2", reservation="short"), drawing("b", "2")
    made = passed(world(EIGHT), named, free, promises=both)
    assert {decision.waiting.name: decision.reservation for decision in made.decisions} == {"a": "short", "b": "long"}


def test_one_that_is_to_begin_binds_those_who_may_still_run_then():
    coming = [promised(8, starts=NOW + 3600.0)]
    made = passed(world(EIGHT), on_demand("long", "1"), on_demand("short", "1", duration=1800.0), promises=coming)
    assert started(made) == ["short"]
    assert "8 of 8 T4 are reserved (8 by project x from in 1h 00m on)" in told(made, "long")[1]


def test_a_part_goes_beside_others_on_a_device_that_on_demand_runs_hold():
    seen = world(EIGHT, holds=[*(hold(f"h{n}", "n", n) for n in range(5)), hold("half", "n", part("n-5", 500))])
    assert started(passed(seen, on_demand("w", "0.5"), promises=[promised(2)])) == ["w"]
    assert started(passed(seen, on_demand("w", "0.6"), promises=[promised(2)])) == []


sizes = st.integers(1, 4)
options = st.sampled_from(tuple(PurchaseOption))


@few
@given(
    st.lists(st.tuples(options, sizes, st.booleans()), max_size=8),
    st.lists(st.tuples(options, sizes, st.sampled_from("xy"), st.none() | st.integers(1, 3)), max_size=8),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_what_is_reserved_can_always_be_had_by_stopping_spot_runs_alone(there, queue, mine, theirs):
    promises = [promised(mine, name="x-r"), promised(theirs, name="y-r", project="y")]
    seen, free = world(EIGHT), list(range(8))
    drawn, firm = {"x-r": 0, "y-r": 0}, 0
    for number, (option, count, of_x) in enumerate(there):
        name = ("x-r" if of_x else "y-r") if option is RESERVED else None
        room = 8 - mine - theirs - firm if name is None else (mine if of_x else theirs) - drawn[name]
        if count > len(free) or (option is not SPOT and count > room):
            continue
        drawn |= {name: drawn[name] + count} if name else {}
        firm += count if option is PurchaseOption.ON_DEMAND else 0
        seen.hold(hold(f"h{number}", "n", *(free.pop() for _ in range(count)), purchase=option, reservation=name))
    asked = [
        wants(f"w{n}", str(count), purchase=option, project=project, bid=bid if option is SPOT else None)
        for n, (option, count, project, bid) in enumerate(queue)
    ]
    made = passed(seen, *asked, promises=promises)
    for decided in (*made.decisions, *made.preemptions):
        taken = sum(len(place.slices) for place in decided.places)
        if decided.waiting.purchase is PurchaseOption.ON_DEMAND:
            firm += taken
        elif decided.waiting.purchase is RESERVED:
            drawn[f"{decided.waiting.project}-r"] += taken
    stopped = {name for each in made.preemptions for victim in each.victims for name in victim.instance_ids}
    just_started = {f"{each.waiting.name}-0-1-0": each.waiting.purchase for each in made.decisions}
    assert {seen.holds[name].purchase if name in seen.holds else just_started[name] for name in stopped} <= {SPOT}
    assert firm <= max(8 - mine - theirs, 0)
    assert drawn["x-r"] <= mine
    assert drawn["y-r"] <= theirs
