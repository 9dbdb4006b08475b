"""The search for a mix, against trying every one."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.domain.run import PurchaseOption
from cumulo.market.mix import Column, Weights, _Search, best_mix

SPOT = PurchaseOption.SPOT


def column(pool="a", *, price=1.0, lost=0.01, most=9, room=9, region="here"):
    return Column(pool, SPOT, region, price, lost, 600.0, most, room)


def weights(target=4, *, missing=75.0, outage=0.0, spare=4):
    return Weights(target, missing, outage, target + spare, 3600.0)


@st.composite
def searches(draw):
    columns = [
        column(
            name,
            price=draw(st.floats(0.3, 4.0)),
            lost=draw(st.floats(0.0, 0.6)),
            most=draw(st.integers(0, 4)),
            room=draw(st.integers(0, 4)),
            region=draw(st.sampled_from(["east", "west"])),
        )
        for name in "abc"[: draw(st.integers(1, 3))]
    ]
    have = [draw(st.integers(0, min(each.most, each.room))) for each in columns]
    wanted = weights(
        draw(st.integers(0, 4)), missing=draw(st.floats(0.0, 300.0)), outage=draw(st.floats(0.0, 300.0)),
        spare=draw(st.integers(0, 2)),
    )  # fmt: skip
    return columns, have, wanted


@given(asked=searches())
@settings(deadline=None)
def test_it_is_about_as_good_as_the_best_of_all(asked):
    columns, have, wanted = asked
    found = np.array(best_mix(columns, have, wanted).counts)
    search = _Search(columns, np.array(have), wanted)
    every = np.array(list(product(*(range(min(each.most, each.room) + 1) for each in columns))))
    full = min(wanted.target, int(every.sum(axis=1).max()))
    allowed = every[(every.sum(axis=1) >= full) & (every.sum(axis=1) <= wanted.most)]
    assert found.sum() >= full
    assert found.sum() <= wanted.most
    assert search.value(found[None])[0] <= 1.1 * search.value(allowed).min() + 1e-6


def test_over_two_pools_where_one_alone_would_need_more_than_one_step():
    columns = [column(name, lost=0.05, region=name) for name in "ab"]
    found = best_mix(columns, [4, 0], weights(missing=300.0))
    assert found.counts == (4, 4)
    assert found.short == pytest.approx(0.05**2)
    assert found.short_as_is == pytest.approx(0.05)


def test_it_stays_where_a_move_gains_little():
    columns = [column("a", price=1.01), column("b", price=1.0)]
    assert best_mix(columns, [4, 0], weights(missing=10.0)).counts == (4, 0)
    assert best_mix(columns, [0, 0], weights(missing=10.0)).counts == (0, 4)


def test_more_than_may_be_held_is_given_up():
    assert sum(best_mix([column()], [9], weights(2, spare=1, missing=1e6)).counts) <= 3
