"""The spot market of a cloud that runs: what it costs, who is outbid, who waits, and that every bill adds up."""

import json
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulo.control.reserving import Wanted
from cumulo.control.rules import Rules
from cumulo.domain.ask import parse_gpu_ask
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import NANO
from cumulo.domain.run import PurchaseOption
from cumulo.store import schema, tables, views
from cumulo.store.database import Database
from cumulo.store.market import latest_prices, price_history
from tests.control.fakes import GPU, PRICE, Clock, Cloud, FakeEngine, node, run_spec
from tests.databases import NOW

SPOT = PurchaseOption.SPOT
FLOOR = PRICE * 363 // 1000  # of the catalogue's terms for the kind
PENCE = NANO // 100


@pytest.fixture
def box(quick_db, tmp_path):
    """One node of 4 GPUs at two dollars an hour."""
    return Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one"),)), rules=Rules()).ready()


def spot(cloud, gpus, name, bid=None, **changes):
    return cloud.submit(f"A100:{gpus}", name=name, purchase=SPOT, max_price_nano_h=bid, **changes)


def running_spot(cloud, gpus, name, bid=None, **changes):
    return cloud.launch(f"A100:{gpus}", name=name, purchase=SPOT, max_price_nano_h=bid, **changes)


def price(cloud):
    with cloud.db.read() as tx:
        rows = latest_prices(tx)
    assert [(row.region, row.kind) for row in rows] == [("local", GPU)]
    return rows[0].price_nano_h


def test_a_run_that_is_alone_pays_the_floor(box):
    _, name = running_spot(box, 2, "train")
    assert price(box) == FLOOR
    assert (box.instance(name).purchase, box.instance(name).price_nano_h) == ("spot", 2 * FLOOR)


def test_what_waits_in_vain_sets_the_price_and_all_pay_it(box):
    _, first = running_spot(box, 2, "first", bid=int(1.9 * NANO))
    _, second = running_spot(box, 2, "second")
    spot(box, 1, "poor", bid=int(1.2 * NANO))
    box.look()
    assert price(box) == FLOOR  # it rises once in five minutes at most
    box.clock.pass_(300.0)
    box.look()
    assert price(box) == int(1.2 * NANO)
    assert [box.instance(name).price_nano_h for name in (first, second)] == [2 * int(1.2 * NANO)] * 2
    assert box.fresh() == box.seen


def test_a_price_falls_at_once(box):
    running_spot(box, 4, "first")
    box.clock.pass_(300.0)
    rival = spot(box, 1, "rival", bid=int(1.2 * NANO))
    box.look()
    assert price(box) == int(1.2 * NANO)
    box.control.want(rival, "cancelled")
    box.look()
    assert price(box) == FLOOR


def test_the_lowest_bid_is_outbid_once_it_has_had_its_time_and_never_pays_more_than_it_bid(box):
    low, low_name = running_spot(box, 2, "low", bid=NANO)
    _, high_name = running_spot(box, 2, "high", bid=int(1.5 * NANO))
    rich = spot(box, 2, "rich")
    box.look()
    assert box.engine.alive() == [low_name, high_name]  # both have just begun
    box.clock.pass_(300.0)
    box.look(2)
    assert "run.preempted" in box.events(low)
    assert box.instances_of(rich) != []
    assert box.run(low).status == "recovering"
    assert max(row.price_nano_h for row in box.rows(tables.usage) if row.run_id == low) <= 2 * NANO


def test_a_bid_below_the_price_waits_and_is_told_so(box):
    running_spot(box, 4, "first")
    box.clock.pass_(300.0)
    waits = spot(box, 1, "rival", bid=int(1.5 * NANO))
    box.look()
    assert price(box) == int(1.5 * NANO)
    poor = spot(box, 1, "poor", bid=int(0.8 * NANO))
    box.look()
    why = box.control.why(poor)
    assert why.binding == "price"
    assert why.summary == (
        "its bid of 0.80 is below the spot price of A100-80GB, 1.50 USD per GPU-hour; raise the bid or drop --max-price"
    )
    assert box.run(waits).status == "queued"


def test_a_bid_below_the_floor_is_refused_with_the_floor(box):
    with pytest.raises(CumuloError) as caught:
        spot(box, 1, "poor", bid=NANO // 5)
    assert caught.value.message == (
        "resources.max_price: 0.20 USD per GPU-hour is less than spot ever costs: A100-80GB costs at least 0.73"
    )
    assert spot(box, 1, "enough", bid=FLOOR)


def test_prices_follow_one_another_where_the_clock_goes_back(box):
    running_spot(box, 4, "first")
    box.clock.pass_(300.0)
    rival = spot(box, 1, "rival", bid=int(1.2 * NANO))
    box.look()
    assert price(box) == int(1.2 * NANO)
    with box.db.read() as tx:
        before = latest_prices(tx)[0].at
    box.boot()
    box.ready()
    box.clock.pass_(-100.0)
    box.control.want(rival, "cancelled")
    box.look()
    assert price(box) == FLOOR
    with box.db.read() as tx:
        assert latest_prices(tx)[0].at > before


def test_a_restarted_control_plane_knows_the_price(box):
    running_spot(box, 4, "first")
    box.clock.pass_(300.0)
    spot(box, 1, "rival", bid=int(1.2 * NANO))
    box.look()
    box.boot()
    box.ready()
    assert {pool.kind: known.price_nano_h for pool, known in box.seen.prices.pools.items()} == {GPU: int(1.2 * NANO)}


@pytest.mark.parametrize(("rate", "paid"), [(0, 0), (NANO, NANO), (10 * NANO, 3630 * NANO // 1000)])
def test_a_control_plane_that_charges_otherwise_keeps_prices_within_that(box, rate, paid):
    _, name = running_spot(box, 4, "first")
    box.clock.pass_(300.0)
    spot(box, 1, "rival", bid=int(1.2 * NANO))
    box.look()
    box._prices = {GPU: rate} if rate else {}
    box.boot()
    box.ready()
    known = {pool.kind: one.price_nano_h for pool, one in box.seen.prices.pools.items()}
    assert known == ({GPU: paid} if rate else {})
    box.look()
    assert box.instance(name).price_nano_h == 4 * (paid or int(1.2 * NANO))  # without rates nothing changes


def test_the_history_begins_with_the_price_that_held_then(box):
    running_spot(box, 4, "first")
    began = box.clock()
    box.clock.pass_(300.0)
    spot(box, 1, "rival", bid=int(1.2 * NANO))
    box.look()
    with box.db.read() as tx:
        assert [row.price_nano_h for row in price_history(tx, kind=GPU, since=began + 1.0)] == [FLOOR, int(1.2 * NANO)]
        assert [row.price_nano_h for row in price_history(tx, kind=None, since=box.clock())] == [int(1.2 * NANO)]
        assert price_history(tx, kind="T4", since=0.0) == []


def test_emulated_devices_have_no_price_and_bids_only_order_them(quick_db, tmp_path):
    engine = FakeEngine(Clock(), (node("one", emulated=True),))
    cloud = Cloud(quick_db, tmp_path, engine=engine).ready()
    _, name = running_spot(cloud, 4, "train", bid=1)
    assert (cloud.instance(name).price_nano_h, cloud.rows(tables.spot_price)) == (0, [])
    cloud.clock.pass_(300.0)
    more = spot(cloud, 4, "more", bid=2)
    cloud.look(2)
    assert cloud.instances_of(more) != []


def offers(cloud):
    """Of whole GPUs by purchase option: price, what is shown, how many are free, for how long."""
    rows = [row for row in cloud.control.offers(None) if row.mode == "exclusive"]
    return {row.purchase: (row.price_nano_h, row.shown_nano_h, row.free, row.term_s) for row in rows}


def test_offers_tell_what_each_option_costs_and_how_many_can_be_had_so(box):
    year, price_of_it = 365 * 86400.0, PRICE * 634 // 1000
    assert offers(box) == {
        "on-demand": (PRICE, None, 4, None),
        "spot": (FLOOR, FLOOR, 4, None),
        "reserved": (price_of_it, None, 4, year),
    }
    gpu = parse_gpu_ask("A100:3")
    box.control.reserve(Wanted(project="default", account="ada", gpu=gpu, term_s=3600.0))
    running_spot(box, 2, "spare")
    assert {option: row[2] for option, row in offers(box).items()} == {"on-demand": 1, "spot": 2, "reserved": 1}


def test_a_plan_says_how_it_is_bought_and_what_that_costs_now(box):
    spec = run_spec("A100:2", purchase=SPOT, max_price_nano_h=NANO)
    planned = box.control.plan(spec, account="ada")
    assert (planned.purchase, planned.max_price_nano_h, planned.choices[0].price_nano_h) == ("spot", NANO, 2 * FLOOR)
    with pytest.raises(CumuloError, match="less than spot ever costs"):
        box.control.plan(run_spec("A100", purchase=SPOT, max_price_nano_h=1), account="ada")


# ---- bills ----------------------------------------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("spot"), st.integers(1, 4), st.none() | st.integers(73, 220)),
        st.tuples(st.just("on-demand"), st.integers(1, 4), st.none()),
        st.tuples(st.just("reserved"), st.integers(1, 4), st.none()),
        st.tuples(st.just("reserve"), st.integers(1, 4), st.none()),
        st.tuples(st.just("give back"), st.just(0), st.none()),
        st.tuples(st.just("end"), st.integers(0, 9), st.none()),
        st.tuples(st.just("pass"), st.integers(1, 2000), st.none()),
        st.tuples(st.just("boot"), st.just(0), st.none()),
    ),
    max_size=25,
)


def _take(cloud, what, amount, bid):
    if what in ("spot", "on-demand", "reserved"):
        offered = None if bid is None else bid * PENCE
        cloud.submit(f"A100:{amount}", purchase=PurchaseOption(what), max_price_nano_h=offered)
    elif what == "reserve":
        gpu = parse_gpu_ask(f"A100:{amount}")
        with suppress(CumuloError):  # there is no room, or one of that size already
            cloud.control.reserve(Wanted(project="default", account="ada", gpu=gpu, term_s=1000.0 * amount))
    elif what == "give back" and cloud.seen.reservations:
        cloud.control.give_back(next(iter(cloud.seen.reservations)))
    elif what == "end" and cloud.engine.alive():
        cloud.engine.end(cloud.engine.alive()[amount % len(cloud.engine.alive())])
    elif what == "pass":
        cloud.clock.pass_(float(amount))
    elif what == "boot":
        cloud.boot()
        cloud.ready()
    cloud.look()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_nobody_pays_above_the_bid_and_bills_add_up_to_the_cent(tmp_path_factory, taken):
    home = tmp_path_factory.mktemp("bills")
    db = Database.open(None, home=home)
    schema.prepare(db, cloud_id="cafe" * 3, now=NOW)
    try:
        _check_bills(db, home, taken)
    finally:
        db.close()


def _check_reserved(cloud):
    """On-demand runs leave what is reserved, and nobody draws more than there is."""
    there = list(cloud.seen.instances.values())
    firm = sum(len(each.slices) for each in there if each.purchase is PurchaseOption.ON_DEMAND)
    assert firm + sum(one.count for one in cloud.seen.reservations.values()) <= 6
    for one in cloud.seen.reservations.values():
        assert sum(len(each.slices) for each in there if each.reservation_id == one.id) <= one.count
    assert cloud.engine.wrongs == []


def _check_bills(db, home, taken):
    engine = FakeEngine(Clock(), (node("one"), node("two", 2)), instant=True)
    cloud = Cloud(db, home, engine=engine).ready()
    for step in taken:
        _take(cloud, *step)
        _check_reserved(cloud)
    for name in cloud.engine.alive():
        cloud.engine.end(name)
    cloud.look()
    runs = {row.id: row for row in cloud.rows(tables.run)}
    instances = {row.id: row for row in cloud.rows(tables.instance)}
    segments = cloud.rows(tables.usage)
    ended = {row.run_id for row in instances.values() if row.state != "ended"}
    exact = dict.fromkeys(runs, Fraction(0))
    for row in segments:
        bid = json.loads(runs[row.run_id].spec)["max_price_nano_h"]
        assert bid is None or row.price_nano_h * 1000 <= bid * row.gpu_milli
        assert row.price_nano_h == {"on-demand": PRICE * row.gpu_milli // 1000, "reserved": 0}.get(
            row.purchase, row.price_nano_h
        )
        if row.ended_at is not None:
            exact[row.run_id] += (Fraction(row.ended_at) - Fraction(row.started_at)) * row.price_nano_h / 3600
    for run_id in runs.keys() - ended:
        assert abs(runs[run_id].cost_nano - exact[run_id]) <= len(segments)  # each is rounded to a nano-dollar
    for instance in instances.values():
        mine = sorted((row.started_at, row.ended_at) for row in segments if row.instance_id == instance.id)
        assert all(before[1] == after[0] for before, after in pairwise(mine))
        if instance.ended_at is not None and mine:
            assert (mine[0][0], mine[-1][1]) == (instance.started_at, instance.ended_at)
    with db.read() as tx:
        totals = [
            sum(row.cost_nano for row in views.usage_totals(tx, since=0.0, until=cloud.clock(), group=group))
            for group in ("run", "account", "project")
        ]
    assert all(abs(total - sum(exact.values())) < PENCE for total in totals)
