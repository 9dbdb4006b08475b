"""The bench of what is said of runs that wait: it knows nothing beforehand, and counts what happened."""

from math import inf
from typing import Any

import pytest

from bench.placement.why import Asked, Course, Replay, _node, figures
from cumulo.placement.record import Range
from tests.placement.worlds import ask, waiting

HOUR = 3600.0


def course(jobs, *, declared=2 * HOUR):
    coming = [
        (waiting(f"{number:03}", ask(f"{gpus}"), at=number * 600.0, duration=declared), seconds)
        for number, (gpus, seconds) in enumerate(jobs)
    ]
    return Course("made up", (_node("n0"),), coming)


@pytest.fixture(scope="module")
def replayed():
    replay = Replay(course([(1 + number % 4, HOUR) for number in range(60)]))
    replay.run()
    return replay


def test_every_run_that_waits_is_asked_about_once_and_starts(replayed):
    assert replayed.waited == len(replayed.asked) > 20
    assert not replayed.pending
    assert all(each.at < each.started_at < inf for each in replayed.asked.values())


def test_what_ended_is_learnt_and_only_that(replayed):
    assert replayed.past.durations.runs == 60
    assert replayed.past.record.outcomes == len(replayed.asked)
    first = next(iter(replayed.asked.values()))
    assert first.raw.high < first.at + 2 * HOUR, "of the first nothing is known but its limit"


def test_what_was_suggested_starts_it_and_limits_are_the_worse_estimate(replayed):
    told: dict[str, Any] = figures(list(replayed.asked.values()))
    assert told["suggested_pct"] > 0
    assert told["applied_pct"] == 100.0
    assert told["median_error_h"] < told["naive_median_error_h"]


def test_the_figures_count_what_happened():
    def asked(low, likely, high, started_at, naive=0.0):
        told = Range(low=low * HOUR, likely=likely * HOUR, high=high * HOUR)
        return Asked(
            0.0, told, told, naive * HOUR, suggested=True, applied=started_at > 2, started_at=started_at * HOUR
        )

    told = figures([asked(1, 2, 3, 2.5, 4.5), asked(1, 2, 3, 0.5), asked(1, 2, 3, 9.0), asked(1, 2, 3, 3.0)])
    assert (told["asked"], told["covered_pct"], told["early_pct"], told["late_pct"]) == (4, 50.0, 25.0, 25.0)
    assert (told["median_error_h"], told["median_width_h"], told["applied_pct"]) == (1.25, 2.0, 75.0)
    untold = Asked(0.0, Range(low=0.0, likely=inf, high=inf), Range(low=0.0, likely=inf, high=inf), inf, False, False)
    assert figures([untold])["told_pct"] == 0.0
