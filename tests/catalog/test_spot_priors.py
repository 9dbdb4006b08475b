"""The shipped priors: what a cloud knows of spot before it has seen any."""

import pytest

from cumulo.catalog.spot_priors import spot_priors
from cumulo.market.hazards import learn, shipped_priors


def test_they_name_their_source_and_have_a_rate_for_every_age():
    held = spot_priors()
    assert "NSDI 2024" in held.source
    assert list(held.ages_s) == sorted({0.0, *held.ages_s})
    assert len(held.lost.per_s) == len(held.back.per_s) == len(held.ages_s)
    assert min(*held.lost.per_s, *held.back.per_s) > 0


def test_the_longer_spot_has_been_as_it_is_the_longer_it_stays():
    found = learn([], shipped_priors())
    assert found.lost.mean_left(86400.0) > 4 * found.lost.mean_left(600.0)
    assert found.back.mean_left(86400.0) > 4 * found.back.mean_left(600.0)
    assert found.up(3600.0) == pytest.approx(spot_priors().lost.per_s[spot_priors().ages_s.index(3600.0)])
