"""When what waits is expected to start: a range where it can be told, an honest word where it can't."""

from dataclasses import replace
from time import process_time

import pytest
from hypothesis import given

from cumulo.domain.node import NodeState
from cumulo.placement.cast import LEAST_ENDED, Past, ranges
from cumulo.placement.forecast import expect, forecast
from cumulo.placement.order import place
from cumulo.placement.policy import Policy, ProjectRules, Quota
from cumulo.placement.traits import Traits, family, traits_held, traits_of
from cumulo.placement.world import in_order
from tests.placement.worlds import ask, few, hold, node, queues, waiting, world, worlds

HOUR = 3600.0
FOUR = node("n", ("T4",) * 4)
ALL = (0, 1, 2, 3)


def expected(seen, *queue, now=0.0, past=None, policy=None):
    """Of the last of the queue."""
    decided = place(seen, queue, now=now, policy=policy or Policy())
    return expect(seen, in_order(queue), queue[-1], decided, now=now, past=past or Past())


def knowing(name, *seconds):
    past = Past()
    for each in seconds:
        past.durations.learn(Traits(project="default", family=name, gpus=4), each)
    return past


def test_it_starts_now_when_it_fits():
    told = expected(world(FOUR), waiting("me", ask("T4")), now=10.0)
    assert (told.low, told.likely, told.high, told.text) == (10.0, 10.0, 10.0, "now")


def test_what_was_declared_is_the_latest_and_not_the_likeliest():
    seen = world(FOUR, holds=[hold("a", "n", *ALL, until=HOUR, started_at=0.0)])
    told = expected(seen, waiting("me", ask("T4:4")))
    assert 60.0 < told.low < told.likely < told.high <= HOUR
    assert told.text == "judged by what was declared: little has ended here yet"


def test_what_ended_before_tells_when_what_runs_will_end():
    seen = world(FOUR, holds=[hold("train-7", "n", *ALL, started_at=0.0)])
    told = expected(seen, waiting("me", ask("T4:4")), past=knowing("train", *[HOUR] * 50))
    assert 0.7 * HOUR < told.low <= told.likely <= told.high < 1.5 * HOUR
    assert told.text == "judged by 50 runs that ended"


def test_who_waits_before_it_counts():
    seen = world(FOUR, holds=[hold("train-7", "n", *ALL, started_at=0.0)])
    told = expected(
        seen,
        waiting("train-8", ask("T4:4"), at=1),
        waiting("me", ask("T4:4"), at=2),
        past=knowing("train", *[HOUR] * 50),
    )
    assert 1.6 * HOUR < told.low <= told.likely <= told.high < 2.6 * HOUR


def test_more_urgent_work_that_keeps_coming_counts():
    past = knowing("train", *[HOUR] * 50)
    seen = world(FOUR, holds=[hold("train-7", "n", *ALL, started_at=0.0)])
    alone = expected(seen, waiting("me", ask("T4:4")), past=past)
    for number in range(20):
        urgent = waiting(f"train-u{number}", ask("T4:4"), priority=1, at=(number - 20) * 2 * HOUR)
        past.arrivals.learn(urgent)
    assert expected(seen, waiting("me", ask("T4:4")), past=past).high > alone.high + 0.5 * HOUR


def test_how_earlier_ranges_fared_moves_the_next():
    past = knowing("train", *[HOUR] * 50)
    seen = world(FOUR, holds=[hold("train-7", "n", *ALL, started_at=0.0)])
    before = expected(seen, waiting("me", ask("T4:4")), past=past)
    for _ in range(50):
        past.record.learn(before.raw, 0.0, 2 * HOUR)
    after = expected(seen, waiting("me", ask("T4:4")), past=past)
    assert after.raw == before.raw
    assert after.likely > before.likely


@pytest.mark.parametrize("ended", [0, LEAST_ENDED - 1])
def test_nobody_can_tell_where_no_end_was_declared_and_little_has_ended(ended):
    seen = world(FOUR, holds=[hold("endless", "n", 0)])
    told = expected(seen, waiting("me", ask("T4:4")), now=10.0, past=knowing("train", *[HOUR] * ended))
    assert (told.low, told.likely, told.high) == (None, None, None)
    assert told.text == "can't tell: endless declared no max_duration, and too few runs have ended to judge by"


def test_many_without_an_end_are_counted():
    seen = world(node("n", ("T4",) * 8), holds=[hold(f"h{n}", "n", n) for n in range(8)])
    assert expected(seen, waiting("me", ask("T4"))).text == (
        "can't tell: h0, h1, h2, h3, h4 and 3 more declared no max_duration, and too few runs have ended to judge by"
    )


def test_never_is_said():
    assert expected(world(FOUR), waiting("me", ask("A100"))).text == "never on the nodes that are there now"


def test_no_node_ready_is_said():
    seen = world(node("n", ("T4",), state=NodeState.DOWN))
    assert expected(seen, waiting("me", ask("T4"))).text == "can't tell: no node that could take it is ready"


def test_a_quota_is_said():
    policy = Policy(projects={"default": ProjectRules(quota=Quota(gpus=2))})
    told = expected(world(FOUR), waiting("me", ask("T4:3")), policy=policy)
    assert told.text == "can't tell: not before project default holds less of its quota"


def test_ten_thousand_that_wait_are_played_in_about_a_second():
    seen = world(*(node(f"n{n}", ("T4",) * 8) for n in range(16)))
    for use in list(seen.nodes):
        seen.hold(hold(f"a-{use}", use, *range(8), until=HOUR, started_at=0.0))
    queue = [waiting(f"w{n:05}", ask(f"T4:{2 ** (n % 4)}"), at=n, duration=HOUR) for n in range(10_000)]
    began = process_time()
    told = expect(seen, queue, queue[-1], place(seen, [], now=0.0), now=0.0, past=Past())
    work = sum(2 ** (n % 4) for n in range(10_000)) * HOUR / 128  # if nobody takes less than declared
    assert told.low is not None
    assert told.high is not None
    assert 0.3 * work < told.low < told.high < work
    assert process_time() - began < 20.0, "an upper bound for the slowest of machines; it is a second or two"


def test_all_that_waits_is_told_at_once_in_order():
    seen = world(FOUR, holds=[hold("a", "n", *ALL, until=HOUR, started_at=0.0)])
    queue = [waiting(f"w{n}", ask("T4:4"), at=n, duration=HOUR) for n in range(3)] + [waiting("z", ask("A100"), at=9)]
    told = forecast(seen, queue, place(seen, queue, now=0.0), now=0.0, past=Past())
    assert [key[0] for key in told] == ["w0", "w1", "w2"]
    assert sorted(told.values(), key=lambda each: each.likely) == list(told.values())


@few
@given(worlds(most=3), queues(most=6))
def test_a_forecast_is_the_same_every_time_and_a_range_from_now_on(seen, queue):
    queue = in_order(queue)
    decided = place(seen, queue, now=5.0)
    told = forecast(seen, queue, decided, now=5.0, past=Past())
    assert told == forecast(seen, queue, decided, now=5.0, past=Past())
    for each in told.values():
        assert 5.0 <= each.low <= each.likely <= each.high
    left = [each for each in queue if each.key not in {d.waiting.key for d in decided.decisions}]
    assert set(ranges(seen, left, 5.0, Past())) == {each.key for each in left}


def test_what_runs_and_what_waits_are_compared_by_the_same_traits():
    mine = replace(waiting("train-17", ask("T4:4"), duration=HOUR), project="lab", account="ada")
    running = replace(
        hold("x", "n", *ALL, until=2 * HOUR, started_at=HOUR), run_name="train-16", project="lab", account="ada"
    )
    assert traits_of(mine) == traits_held([running], 5 * HOUR)
    assert [family(name) for name in ("train_v2.3", "train", "17", "a-b-1")] == ["train", "train", "17", "a-b"]
