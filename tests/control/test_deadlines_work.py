"""How much work is done and left, by what a run tells of it."""

import pytest

from cumulo.control.deadlines_facts import new_run
from cumulo.control.deadlines_work import Pace, Saved, Work, work_of
from cumulo.control.live import LiveInstance, LiveUnit
from cumulo.domain.lifecycle import InstanceState, RunStatus
from cumulo.domain.progress import Progress
from tests.control.fakes import run_spec

NOW = 10_000.0


def run_of(**changes):
    return new_run("r", run_spec("A100", deadline_at=NOW + 9000, **changes), NOW)


def unit_of(*, attempt=1, started_at=None, saved_at=None):
    """A unit whose attempt started then; None: it waits."""
    unit = LiveUnit(place=0, status=RunStatus.RUNNING, attempts=attempt)
    if started_at is not None:
        instance = LiveInstance(
            id=f"r-0-{attempt}-0", run_id="r", unit=0, attempt=attempt, rank=0, node_id="local/one", region="local",
            state=InstanceState.RUNNING, slices=(), device_model="A100-80GB", cpus_milli=1000, memory_bytes=1,
            address="", master_port=1, price_nano_h=0, rental_nano_h=0, placed_at=started_at, started_at=started_at,
            checkpointed_at=saved_at,
        )  # fmt: skip
        unit.instances = {instance.id: instance}
    return unit


def progress(done, *, total=100.0, at=NOW):
    return Progress(done=done, total=total, at=at)


def work(run, unit=None, *, saved=None, pace=None, now=NOW):
    return work_of(run, unit, saved=saved or Saved(), pace=pace or Pace(), now=now)


def test_what_was_never_placed_has_all_of_it_to_do():
    assert work(run_of(work_s=3600.0)) == Work(3600.0, 3600.0, 0.0)
    assert work(run_of()) is None


def test_time_that_it_ran_is_work_where_it_tells_nothing():
    unit = unit_of(started_at=NOW - 600)
    assert work(run_of(work_s=3600.0), unit) == Work(3600.0, 3000.0, 600.0)
    assert work(run_of(work_s=300.0), unit) == Work(300.0, 0.0, 600.0), "it takes longer than was said"


def test_what_it_saved_is_not_lost():
    unit = unit_of(started_at=NOW - 600, saved_at=NOW - 100)
    assert work(run_of(work_s=3600.0), unit) == Work(3600.0, 3000.0, 100.0)


def test_an_attempt_begins_with_what_those_before_it_saved():
    saved = Saved()
    saved.ended(1, NOW - 2000, NOW - 1500)
    saved.ended(1, NOW - 2000, NOW - 1500)  # told twice, after a write that failed
    saved.ended(2, NOW - 1000, None)
    run = run_of(work_s=3600.0)
    assert work(run, unit_of(attempt=2), saved=saved) == Work(3600.0, 3100.0, 0.0)
    assert work(run, unit_of(attempt=3, started_at=NOW - 50), saved=saved) == Work(3600.0, 3050.0, 50.0)


def test_progress_says_how_far_it_is():
    run = run_of(work_s=1000.0)
    run.last_progress = progress(25.0)
    told = work(run, unit_of(started_at=NOW - 100))
    assert told == Work(1000.0, 750.0, 100.0)


@pytest.mark.parametrize(("declared", "left_s"), [(None, 750.0), (500.0, 750.0), (4000.0, 3000.0)])
def test_of_what_was_said_and_what_was_measured_the_slower_counts(declared, left_s):
    run, pace = run_of(work_s=declared), Pace()
    for at, done in ((NOW - 200, 5.0), (NOW, 25.0)):
        run.last_progress = progress(done, at=at)
        pace.look(1, run.last_progress)
    told = work(run, unit_of(started_at=NOW - 250), pace=pace)
    assert told is not None
    assert told.left_s == pytest.approx(left_s)


def test_pace_is_measured_within_one_attempt():
    pace = Pace()
    pace.look(1, progress(0.0, at=0.0))
    pace.look(1, progress(10.0, at=100.0))
    assert pace.per_s == pytest.approx(0.001)
    pace.look(2, progress(10.0, at=50_000.0))
    assert pace.per_s == pytest.approx(0.001), "what it waited for spot was no work"
    pace.look(2, progress(20.0, at=50_050.0))
    assert pace.per_s == pytest.approx(0.002)
    pace.look(2, progress(5.0, total=0.0))
    assert pace.per_s == pytest.approx(0.002)


def test_progress_of_an_array_is_of_all_its_units_so_it_tells_of_none():
    run = run_of(work_s=1000.0, array=(0, 9, None))
    run.last_progress = progress(50.0)
    assert work(run, unit_of(started_at=NOW - 100)) == Work(1000.0, 900.0, 100.0)
