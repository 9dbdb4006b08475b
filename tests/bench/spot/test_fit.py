"""Pools that differ count for more against the prior than pools that are alike."""

import numpy as np

from bench.spot.fit import fit_priors, write_priors
from cumulo.catalog.spot_priors import spot_priors
from cumulo.market.hazards import Spell

HOUR = 3600.0


def pools(means_h, *, seed=2):
    rng = np.random.default_rng(seed)
    return [
        [Spell(up, 0.0, length, True) for up in (True, False) for length in rng.exponential(mean * HOUR, 60)]
        for mean in means_h
    ]


def test_alike_pools_weigh_more_than_unlike_ones():
    alike, unlike = fit_priors(pools([2.0] * 8)), fit_priors(pools([0.1, 0.3, 1, 3, 9, 20, 0.2, 5]))
    weights = [prior.lost.pool_events * prior.lost.age_events for prior in (alike, unlike)]
    assert weights[0] > 4 * weights[1]


def test_what_is_fitted_is_what_the_catalogue_reads(tmp_path):
    (tmp_path / "zone.json").write_text('{"metadata": {"gap_seconds": 600}, "data": [1,1,0,0,0,1,1,1,0,1]}')
    priors = write_priors(tmp_path, tmp_path / "priors.json")
    held = spot_priors(tmp_path / "priors.json")
    assert held.lost.pool_events == priors.lost.pool_events
    assert held.back.per_s == tuple(float(f"{rate:.4g}") for rate in priors.back.rates.per_s)
