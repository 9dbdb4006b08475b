"""The auction of a pool: what no bidder may suffer, whatever is bid, and what the price does by example."""

from hypothesis import assume, given
from hypothesis import strategies as st

from cumulo.market.spot_price import Bid, clear, paid, smoothed

FLOOR, ON_DEMAND = 40, 100
SIZES = st.sampled_from([125, 250, 500, 1000, 2000, 4000, 8000])
AMOUNTS = st.integers(0, 130)
KEPT = st.booleans()


@st.composite
def bids(draw, sizes=SIZES, kept=KEPT):
    rows = draw(st.lists(st.tuples(sizes, AMOUNTS, st.integers(0, 5), kept), max_size=12))
    return [
        Bid(f"b{n}", milli, min(nano, ON_DEMAND), float(since), k) for n, (milli, nano, since, k) in enumerate(rows)
    ]


def cleared(several, gpus):
    return clear(several, capacity_milli=gpus * 1000, floor_nano_h=FLOOR, on_demand_nano_h=ON_DEMAND)


@given(bids(), st.integers(0, 12))
def test_nobody_pays_above_the_bid_and_the_price_is_within_floor_and_on_demand(several, gpus):
    price, winners = cleared(several, gpus)
    assert FLOOR <= price <= ON_DEMAND
    for bid in several:
        assert paid(price, bid.nano_h) <= bid.nano_h
        if bid.key in winners and not bid.kept:
            assert price <= bid.nano_h  # so winners pay the same, but for those that can't be outbid yet


@given(bids(), st.integers(0, 12))
def test_winners_fit_and_nobody_who_offers_more_is_left_out_of_room_that_is_there(several, gpus):
    _, winners = cleared(several, gpus)
    taken = sum(bid.milli for bid in several if bid.key in winners)
    kept = sum(bid.milli for bid in several if bid.kept)
    assert taken <= max(gpus * 1000, kept)
    for loser in (bid for bid in several if bid.key not in winners and bid.nano_h >= FLOOR):
        higher = sum(b.milli for b in several if b.key in winners and (b.kept or b.nano_h >= loser.nano_h))
        assert higher + loser.milli > gpus * 1000


@given(bids(sizes=st.just(1000), kept=st.just(False)), AMOUNTS, st.integers(0, 12))
def test_the_price_never_falls_as_demand_grows_where_bids_are_alike_in_size(several, nano_h, gpus):
    more = [*several, Bid("more", 1000, min(nano_h, ON_DEMAND), 9.0)]
    assert cleared(several, gpus).price_nano_h <= cleared(more, gpus).price_nano_h
    assert cleared(several, gpus + 1).price_nano_h <= cleared(several, gpus).price_nano_h


@given(bids(sizes=st.just(1000), kept=st.just(False)), AMOUNTS, AMOUNTS, st.integers(0, 12))
def test_one_gpu_in_one_round_is_best_bid_for_at_its_worth(several, worth, other, gpus):
    assume(worth <= ON_DEMAND and other <= ON_DEMAND)

    def gained(bid):
        price, winners = cleared([*several, Bid("mine", 1000, bid, 9.0)], gpus)
        return worth - price if "mine" in winners else 0

    assert gained(worth) >= gained(other)


@given(AMOUNTS, AMOUNTS, st.floats(0, 1e7))
def test_what_is_shown_lies_between_what_was_shown_and_the_price(shown, price, seconds):
    assert min(shown, price) <= smoothed(shown, price, seconds) <= max(shown, price)


def test_the_floor_is_the_price_while_there_is_enough_for_all():
    assert cleared([Bid("a", 2000, 90, 0.0), Bid("b", 1000, 50, 1.0)], 4) == (FLOOR, {"a", "b"})


def test_the_highest_losing_bid_is_the_price():
    several = [Bid("a", 2000, 90, 0.0), Bid("b", 2000, 80, 1.0), Bid("c", 1000, 70, 2.0), Bid("d", 1000, 60, 3.0)]
    assert cleared(several, 4) == (70, {"a", "b"})


def test_equal_bids_are_served_in_the_order_in_which_they_came():
    assert cleared([Bid("late", 1000, 80, 2.0), Bid("early", 1000, 80, 1.0)], 1) == (80, {"early"})


def test_a_bid_that_is_too_large_for_what_is_left_sets_no_price_for_smaller_ones():
    several = [Bid("a", 5000, 90, 0.0), Bid("large", 5000, 80, 1.0), Bid("small", 3000, 50, 2.0)]
    assert cleared(several, 8) == (FLOOR, {"a", "small"})


def test_who_can_not_be_outbid_yet_stays_and_pays_its_bid():
    price, winners = cleared([Bid("new", 1000, 50, 0.0, kept=True), Bid("higher", 1000, 80, 1.0)], 1)
    assert (price, winners) == (80, {"new"})
    assert paid(price, 50) == 50


def test_where_nothing_is_left_for_spot_the_price_is_what_is_bid_in_vain():
    assert cleared([Bid("a", 1000, 100, 0.0)], 0) == (ON_DEMAND, frozenset())


def test_what_is_shown_follows_by_half_in_half_an_hour():
    assert smoothed(100, 40, 1800.0) == 70
    assert smoothed(100, 40, 0.0) == 100
