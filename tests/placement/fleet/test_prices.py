"""Prices and worth: what is plentiful costs all it brings, what fills holes little, and scarce kinds cost more."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.domain.quantities import GIB
from cumulo.placement.fleet.mix import AskShape, Demand, Mix
from cumulo.placement.fleet.prices import CELLS, NO_PRICES, Capacity, fill, prices_of
from cumulo.placement.fleet.worth import NANO, worth_of

TWO_KINDS = Capacity(
    np.array([80.0, 20.0]),
    np.array([960_000.0, 240_000.0]),
    np.array([9600.0, 2400.0]) * GIB,
    node_devices=np.array([8.0, 4.0]),
    node_cpus=np.array([96_000.0, 48_000.0]),
)


def demand(milli, share, *, gpus=1, cpus=4000):
    return Demand(AskShape(gpus, milli, cpus), share, 8.0 * GIB)


def test_a_fraction_that_leaves_a_hole_costs_all_it_brings_and_its_filler_little():
    big, filler = demand((810, 810), 0.95), demand((190, 190), 0.05)
    net = prices_of([big, filler], TWO_KINDS).net
    assert net[0] == pytest.approx(0.81, abs=0.05)
    assert net[1] < 0.05


def test_a_kind_that_many_insist_on_is_worth_more():
    picky, easy = demand((0, 1000), 0.3), demand((1000, 1000), 0.7)
    prices = prices_of([picky, easy], TWO_KINDS)
    worth = worth_of(prices, TWO_KINDS, devices=8, ended=0.0)
    assert worth.whole[1, 1].max() > worth.whole[0, 1].max()


def test_what_no_kind_can_give_is_left_out_and_nothing_at_all_has_no_prices():
    nowhere = TWO_KINDS._replace(devices=np.array([80.0, 0.0]))
    assert prices_of([demand((0, 1000), 1.0)], nowhere) is NO_PRICES
    assert len(prices_of([demand((0, 1000), 0.5), demand((1000, 0), 0.5)], nowhere).net) == 1


@pytest.mark.parametrize("large", [demand((1000, 1000), 0.1, gpus=8), demand((1000, 1000), 0.1, cpus=60_000)])
def test_an_ask_is_expected_only_where_one_node_can_hold_it(large):
    prices = prices_of([demand((1000, 1000), 0.9), large], TWO_KINDS)
    assert [each.shape.milli for each in prices.demands] == [(1000, 1000), (1000, 0)]
    assert len(prices_of([demand((1000, 1000), 0.9, gpus=16), large], TWO_KINDS).net) == 1


def test_what_only_few_devices_can_hold_weighs_more_as_runs_come_and_go():
    prices = prices_of([demand((1000, 1000), 0.5), demand((0, 1000), 0.5)], TWO_KINDS)
    staying, leaving = (worth_of(prices, TWO_KINDS, devices=8, ended=ended) for ended in (0.0, 1.0))
    # A free device of the first kind turns away those that insist on the second, of which there are a fifth.
    assert staying.idle[0, -1, 100] / staying.idle[0, -1, 0] == pytest.approx(1 / 2)
    assert leaving.idle[0, -1, 100] / leaving.idle[0, -1, 0] == pytest.approx(5 / 6)


def test_cpus_beside_gpus_that_are_taken_cost_nothing_once_runs_come_and_go():
    prices = prices_of(
        [demand((1000, 1000), 0.5), demand((0, 0), 0.5, gpus=0)], TWO_KINDS._replace(cpus=TWO_KINDS.cpus / 4)
    )
    assert prices.cpu.min() > 0
    assert worth_of(prices, TWO_KINDS, devices=8, ended=0.0).cpu.min() > 0
    assert worth_of(prices, TWO_KINDS, devices=8, ended=1.0).cpu.min() == 0


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([100, 190, 470, 530, 810, 1000]), st.integers(1, 50)), min_size=1, max_size=6)
)
def test_more_room_is_never_worth_less(mix):
    demands = [demand((milli, milli), count / 50) for milli, count in mix]
    worth = worth_of(prices_of(demands, TWO_KINDS), TWO_KINDS, devices=8, ended=0.0)
    assert (np.diff(worth.part, axis=1) >= 0).all()
    assert (np.diff(worth.whole, axis=1) >= 0).all()
    assert worth.part.max() <= 1.2 * NANO


def test_fragmentation_counts_more_as_runs_come_and_go():
    prices = prices_of([demand((470, 470), 0.5), demand((1000, 1000), 0.5)], TWO_KINDS)
    worth = worth_of(prices, TWO_KINDS, devices=8, ended=1.0)
    # With CPUs enough: a thousandth of a device of which 300 are free serves nobody, of 470 the small ask. Each takes
    # 4 CPUs, which count a tenth of a device; the larger is drawn more often than by heads.
    assert worth.idle[0, -1, 30] == pytest.approx(NANO / 1000)
    assert worth.idle[0, -1, 47] == pytest.approx(NANO / 1000 * 1.1**1.5 / (1.1**1.5 + 0.57**1.5))
    assert worth_of(prices, TWO_KINDS, devices=8, ended=0.0).idle.max() < worth.idle.max() / 10


def test_fragmentation_counts_in_full_where_devices_have_no_price():
    starved = TWO_KINDS._replace(cpus=TWO_KINDS.cpus / 8)
    prices = prices_of([demand((470, 470), 0.5, cpus=12_000), demand((0, 0), 0.5, gpus=0, cpus=12_000)], starved)
    worth = worth_of(prices, starved, devices=8, ended=0.0)
    assert worth.idle.max() > 0.9 * NANO / 1000


def test_the_knapsack_is_filled_best():
    best, choice = fill(np.array([[0.6, 0.45, 0.0]]), np.array([[60, 40, 10]]))
    assert best[0, CELLS] == pytest.approx(1.05)
    assert best[0, 39] == 0.0
    assert choice[0, 40] == 1


def test_a_mix_is_reviewed_ever_more_rarely_and_forgets_slowly():
    mix, reviews = Mix(), []
    for number in range(1, 30_001):
        if mix.see(AskShape(1, (1000 if number > 20_000 else 500,), 4000), GIB):
            mix.review()
            reviews.append(number)
    assert reviews[:4] == [64, 128, 256, 512]
    assert max(np.diff(reviews)) <= 5_000
    shares = {each.shape.milli[0]: each.share for each in mix.review()}
    assert shares[1000] > 1 / 3  # 10,000 of 30,000, but the later
