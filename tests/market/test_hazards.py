"""What is learnt of a pool: its own rates where it was watched long, those of all pools where it was not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.market.hazards import AGES_S, Prior, Priors, Rates, Spell, count, learn, spells

HOUR = 3600.0


def rates(per_hour=1.0):
    return Rates(AGES_S, (per_hour / HOUR,) * len(AGES_S))


def priors(lost=1.0, back=1.0, events=5.0):
    return Priors(Prior(rates(lost), events, events), Prior(rates(back), events, events))


def test_a_pool_without_history_has_the_hazards_of_all_pools():
    found = learn([], priors(lost=0.5, back=2.0))
    assert found.up(HOUR) == pytest.approx(0.5 / HOUR)
    assert found.down(HOUR) == pytest.approx(2.0 / HOUR)


def test_a_long_history_outweighs_the_prior():
    history = [Spell(True, 0.0, 2 * HOUR, True)] * 500
    found = learn(history, priors(lost=5.0))
    assert found.up(1000.0) < 0.1 / HOUR, "never lost so young"
    assert found.up(1.5 * HOUR) > 0.5 / HOUR


def test_what_a_run_gets_names_each_age_from_which_a_hazard_holds():
    steps = learn([], priors()).steps()
    assert [age for age, _ in steps] == list(AGES_S)


def test_spells_of_a_record():
    assert spells([1, 1, 0, 1], 60.0) == (
        Spell(True, 0.0, 60.0, True, 60.0),
        Spell(False, 0.0, 0.0, True, 60.0),
        Spell(True, 0.0, 0.0, False, 60.0),
    )
    assert spells([], 60.0) == ()


def test_a_constant_hazard_is_found_whatever_the_gap_between_looks():
    rng = np.random.default_rng(5)
    lengths = rng.exponential(2 * HOUR, 4000)
    for gap in (30.0, 600.0):
        seen = [Spell(True, 0.0, length // gap * gap, True, gap) for length in lengths]
        found = count(seen)
        assert found.events.sum() / found.seconds.sum() == pytest.approx(0.5 / HOUR, rel=0.05)


def test_a_watch_that_begins_late_counts_only_from_there():
    found = count([Spell(True, 1200.0, 2400.0, True)])
    assert found.seconds[:3].sum() == 0
    assert found.seconds.sum() == pytest.approx(1200.0)
    assert found.events[AGES_S.index(2400.0)] == 1


@given(st.lists(st.booleans(), max_size=200), st.floats(1.0, 4000.0))
def test_time_at_risk_is_time_watched(record, gap):
    seen = spells(record, gap)
    total = sum(count([spell]).seconds.sum() for spell in seen)
    watched = sum(spell.to_s + (gap / 2 if spell.ended else 0.0) for spell in seen)
    assert total == pytest.approx(watched)
    assert sum(count([spell]).events.sum() for spell in seen) == pytest.approx(sum(s.ended for s in seen))


@given(st.floats(0.0, 2e5), st.floats(0.0, 2e5))
def test_the_hazard_between_two_ages_adds_up(first, length):
    own = Rates(AGES_S, tuple(1e-4 / (n + 1) for n in range(len(AGES_S))))
    middle = first + length / 2
    whole = own.between(first, first + length)
    assert whole == pytest.approx(own.between(first, middle) + own.between(middle, first + length), abs=1e-9)


def test_what_is_left_of_a_spell_of_constant_hazard_is_its_inverse():
    assert rates(0.25).mean_left(0.0) == pytest.approx(4 * HOUR)
    assert rates(0.25).mean_left(9 * HOUR) == pytest.approx(4 * HOUR)
    assert math.isfinite(rates(0.0).mean_left(0.0))
