"""The deadline policy: what it does in states that speak for themselves, and that it is never late."""

import random
from math import inf

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cumulo.market.deadline import ORDER, Choice, Job, State, earliest_deadline, solve
from cumulo.market.hazards import AGES_S, Hazards, Rates

HOUR = 3600.0
WAIT, ON_DEMAND, SPOT = map(ORDER.index, (Choice.WAIT, Choice.ON_DEMAND, Choice.SPOT))


def hazards(lost=0.3, back=0.5):
    return Hazards(*(Rates(AGES_S, (per_hour / HOUR,) * len(AGES_S)) for per_hour in (lost, back)))


def job(**given):
    return Job(**({"work_s": 48 * HOUR, "deadline_s": 72 * HOUR, "changeover_s": 720.0, "spot": 1.0} | EXTRA | given))


EXTRA = {"on_demand": 3.0, "tick_s": 600.0}


def at_start(*, available):
    return State(elapsed_s=0.0, done_s=0.0, on=WAIT, overhead_s=0.0, available=available, age_s=3600.0)


def test_spot_is_taken_where_it_is():
    policy, state = solve(job(), hazards()), at_start(available=True)
    assert policy.choose(state) == SPOT
    assert 48 < policy.costs(state)[SPOT] < 144


def test_with_slack_it_waits_for_spot():
    policy, state = solve(job(), hazards()), at_start(available=False)
    assert policy.choose(state) == WAIT
    assert policy.costs(state)[SPOT] == inf


def test_without_slack_it_runs_on_demand():
    policy, state = solve(job(deadline_s=48.3 * HOUR), hazards()), at_start(available=False)
    assert policy.choose(state) == ON_DEMAND
    assert list(policy.safe(state)) == [False, True, False]


def test_what_cannot_be_met_runs_at_once():
    policy, state = solve(job(deadline_s=40 * HOUR), hazards()), at_start(available=True)
    assert policy.choose(state) == ON_DEMAND
    assert not policy.safe(state).any()


def test_the_earliest_deadline_is_the_work_and_one_changeover():
    assert earliest_deadline(job()) == 48 * HOUR + 720.0


def coming_and_going(rng, style):
    """Whether spot is there, look after look: all chance, long spells, or the shortest that pay a changeover."""
    while True:
        up, down = {"chance": (1, 1), "long": (rng.randint(5, 60), rng.randint(5, 60)), "teasing": (2, 1)}[style]
        yield from [True] * up + [False] * down if rng.random() < 0.5 else [False] * down + [True] * up


@settings(max_examples=30, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 2**32),
    style=st.sampled_from(["chance", "long", "teasing"]),
    slack=st.floats(0.0, 4 * HOUR),
    changeover=st.floats(0.0, 1.5 * HOUR),
    upgrade=st.none() | st.floats(0.0, HOUR),
    lost=st.floats(0.0, 20.0),
    back=st.floats(0.0, 20.0),
)
def test_a_feasible_deadline_is_never_missed_whatever_spot_does(seed, style, slack, changeover, upgrade, lost, back):
    """Looks come at any time within a tick, and spot comes and goes as the adversary likes."""
    rng = random.Random(seed)
    own = job(work_s=6 * HOUR, deadline_s=6 * HOUR + changeover + slack, changeover_s=changeover, upgrade_s=upgrade)
    policy = solve(own, hazards(lost, back))
    elapsed, done, on, overhead, age, there = 0.0, 0.0, Choice.WAIT, 0.0, 0.0, True
    for now in coming_and_going(rng, style):
        age, there = (age, there) if now == there else (0.0, now)
        if on is Choice.SPOT and not there:
            on, overhead = Choice.WAIT, 0.0
        state = State(
            elapsed_s=elapsed, done_s=done, on=ORDER.index(on), overhead_s=overhead, available=there, age_s=age
        )
        assert policy.safe(state).any()
        choice = ORDER[int(policy.choose(state))]
        assert choice is not Choice.SPOT or there
        if choice is not on:
            in_place = Choice.WAIT not in (on, choice)
            length = own.change_s if in_place else changeover
            on, overhead = choice, 0.0 if choice is Choice.WAIT else length
        passed = own.tick_s * rng.choice((1.0, 0.3))
        if on is not Choice.WAIT:
            done += max(0.0, passed - overhead)
            overhead = max(0.0, overhead - passed)
        elapsed, age = elapsed + passed, age + passed
        if done >= own.work_s:
            assert elapsed - (done - own.work_s) <= own.deadline_s + 1e-3
            return
