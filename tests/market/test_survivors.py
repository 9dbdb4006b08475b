"""The distribution of survivors, against counting every case."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.market.survivors import BAD_SHARE, BAD_TIMES, Survivors

MOST = 9


def survivors(lost, regions=None):
    regions = regions or range(len(lost))
    return Survivors(lost=np.array(lost, dtype=float), regions=np.array(list(regions)), most=MOST)


def distribution(found, mix):
    return [float(found.expected(np.array([mix]), np.eye(MOST + 1)[count])[0]) for count in range(MOST + 1)]


def counted(lost, regions, mix):
    """Every case: each region's times good or bad, each column lost or not."""
    good = (1 - BAD_SHARE * BAD_TIMES) / (1 - BAD_SHARE)
    chances = [0.0] * (MOST + 1)
    names = sorted(set(regions))
    for times in product((False, True), repeat=len(names)):
        bad = dict(zip(names, times, strict=True))
        for gone in product((False, True), repeat=len(lost)):
            chance, left = 1.0, 0
            for is_bad in times:
                chance *= BAD_SHARE if is_bad else 1 - BAD_SHARE
            for column, is_gone in enumerate(gone):
                factor = BAD_TIMES if bad[regions[column]] else good
                each = min(lost[column] * factor, max(0.98, lost[column]) if bad[regions[column]] else 1.0)
                chance *= each if is_gone else 1 - each
                left += 0 if is_gone else mix[column]
            chances[left] += chance
    return chances


@given(
    columns=st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=3),
)
@settings(deadline=None)
def test_it_is_what_counting_every_case_gives(columns):
    lost, regions, mix = (list(each) for each in zip(*columns, strict=True))
    assert distribution(survivors(lost, regions), mix) == pytest.approx(counted(lost, regions, mix), abs=1e-9)


def test_what_cannot_be_lost_stays():
    assert distribution(survivors([0.0]), [4])[4] == pytest.approx(1.0)


def test_a_pool_is_lost_whole_with_the_chance_that_was_learnt():
    found = distribution(survivors([0.05]), [4])
    assert (found[0], found[4]) == pytest.approx((0.05, 0.95))


def test_pools_of_one_region_are_lost_together_more_often():
    together = distribution(survivors([0.05, 0.05], [0, 0]), [1, 1])[0]
    apart = distribution(survivors([0.05, 0.05], [0, 1]), [1, 1])[0]
    assert apart == pytest.approx(0.05**2)
    assert together > 4 * apart
