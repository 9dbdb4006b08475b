"""cumulo.job as a run sees it: what it does inside, that it does nothing outside, and how it takes a SIGTERM."""

import ast
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cumulo import job
from cumulo.job import Job
from cumulo.market import checkpoint
from cumulo.market.hazards import Rates

SOURCE = Path(job.__file__)


class Clock:
    """Monotonic and wall time that pass only by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def wall(self):
        return self.now + 1_700_000_000.0


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(tmp_path, clock):
    """A process of a run; `told` gives the lines it wrote."""

    def make(**env):
        inside = {
            "CUMULO_INSTANCE_ID": "r1-0-1-0",
            "CUMULO_CHECKPOINT_DIR": str(tmp_path),
            "CUMULO_PROGRESS": str(tmp_path / "progress"),
            "CUMULO_NOTICE": str(tmp_path / "notice"),
        }
        return Job(inside | env, clock=clock, wall=clock.wall)

    return make


def told(tmp_path):
    path = tmp_path / "progress"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# ---- outside --------------------------------------------------------------------------------------------------------


def test_outside_it_does_nothing(tmp_path, monkeypatch, clock):
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    here = Job({}, clock=clock)
    here.progress(1, 2)
    clock.now += 1e9
    with here.saving():
        clock.now += 1.0
    here.on_preempt(lambda: pytest.fail("nobody preempts here"))
    assert (here.preempted(), here.preempt_at(), here.checkpoint_due()) == (False, None, False)
    assert here.checkpoint_dir() == Path()
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_any_python_that_runs_have_reads_it():
    ast.parse(SOURCE.read_text(), feature_version=(3, 8))
    imported = {
        node.module or "" for node in ast.walk(ast.parse(SOURCE.read_text())) if isinstance(node, ast.ImportFrom)
    }
    imported |= {
        each.name
        for node in ast.walk(ast.parse(SOURCE.read_text()))
        if isinstance(node, ast.Import)
        for each in node.names
    }
    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)


# ---- progress -------------------------------------------------------------------------------------------------------


def test_progress_is_one_line_that_says_all(make, tmp_path, clock):
    here = make()
    here.progress(1, 10, unit="step", loss=0.5, phase="warm-up")
    with here.saving():
        clock.now += 2.0
    assert told(tmp_path) == [
        {"done": 1, "total": 10, "unit": "step", "metrics": {"loss": 0.5, "phase": "warm-up"}},
        {"done": 1, "total": 10, "unit": "step", "metrics": {"loss": 0.5, "phase": "warm-up"},
         "checkpoint": 1_700_001_000.0},
    ]  # fmt: skip


def test_a_tight_loop_writes_little_and_its_end(make, tmp_path, clock):
    here = make()
    for step in range(1, 1001):
        clock.now += 0.001
        here.progress(step, 1000)
    lines = told(tmp_path)
    assert len(lines) <= 12
    assert lines[-1]["done"] == 1000


def test_what_was_held_back_is_written_at_the_end(tmp_path):
    env = {"CUMULO_INSTANCE_ID": "i", "CUMULO_PROGRESS": str(tmp_path / "progress")}
    run("from cumulo import job\nfor i in range(50): job.progress(i)", env)
    assert told(tmp_path)[-1]["done"] == 49


def test_one_process_speaks_for_all(make, tmp_path):
    make(RANK="1", LOCAL_RANK="1").progress(1, 2)
    with make(RANK="1", LOCAL_RANK="1").saving():
        pass
    assert told(tmp_path) == []
    with make(RANK="8", LOCAL_RANK="0").saving():
        pass
    assert [list(line) for line in told(tmp_path)] == [["checkpoint"]], "each instance tells what it saved"


def test_a_full_disk_ends_no_work(make):
    make(CUMULO_PROGRESS="/dev/full").progress(1, 1)
    make(CUMULO_PROGRESS="/missing/folder").progress(1, 1)


# ---- when to save ---------------------------------------------------------------------------------------------------


def test_the_interval_is_youngs_by_the_hazard_at_this_age():
    table = ((0.0, 1e-3), (600.0, 1e-4))
    assert job.interval(20.0, 0.0, table) == pytest.approx(200.0)
    assert job.interval(20.0, 599.0, table) == pytest.approx(200.0)
    assert job.interval(20.0, 600.0, table) == pytest.approx(632.4555)
    assert job.interval(30.0, 0.0) == pytest.approx((60 * 86400) ** 0.5)


RATES = st.lists(st.tuples(st.floats(1.0, 1e6), st.floats(0.0, 1.0)), max_size=9, unique_by=lambda each: each[0]).map(
    lambda rest: ((0.0, 1e-4), *sorted(rest))
)


@given(RATES, st.floats(0.001, 1e4), st.floats(0.0, 2e6))
@example(((0.0, 0.0001), (1.0, 0.0), (32769.40661444542, 1.0)), 1.0, 1.3838677140629443)
def test_it_is_the_rule_that_the_market_reckons_with(table, cost_s, age_s):
    lost = Rates(*zip(*table, strict=True))
    assert job.interval(cost_s, age_s, table) == checkpoint.interval(cost_s=cost_s, age_s=age_s, lost=lost)
    due = checkpoint.next_checkpoint(cost_s=cost_s, age_s=age_s, lost=lost)
    then = math.nextafter(age_s + due, math.inf)  # the sum may round to just before an age of the table
    assert due >= job.interval(cost_s, then, table) * (1 - 1e-9)
    for part in (0.0, 0.5, 0.99):
        assert due * part < job.interval(cost_s, age_s + due * part, table)


def test_what_is_not_known_is_taken_for_the_same():
    text = checkpoint.__doc__
    assert (job.FIRST_COST_S, job.USUAL_HAZARD) == (10.0, 1 / 86400)
    assert "taken to be 10 s" in text
    assert "one loss a day" in text


def test_a_save_is_due_by_what_saves_cost(make, clock):
    here = make(CUMULO_HAZARD="0:0.001")
    assert not here.checkpoint_due()
    clock.now += job.interval(job.FIRST_COST_S, 0.0, ((0.0, 0.001),)) + 0.1
    assert here.checkpoint_due()
    with here.saving():
        clock.now += 50.0
    assert not here.checkpoint_due()
    clock.now += 316.0
    assert not here.checkpoint_due()
    clock.now += 1.0
    assert here.checkpoint_due()
    with here.saving():
        clock.now += 30.0
    assert here.cost_s() == 40.0


def test_age_counts_from_when_the_instance_began(make, clock):
    began = clock.wall() - 3600.0
    here = make(CUMULO_HAZARD="0:1,3600:0.001", CUMULO_BEGAN_AT=str(began))
    clock.now += 100.0
    assert not here.checkpoint_due()


def test_a_save_that_fails_saved_nothing(make, tmp_path, clock):
    here = make(CUMULO_HAZARD="0:0.001")
    clock.now += 1000.0
    with pytest.raises(OSError, match="full"), here.saving():
        raise OSError("the disk is full")
    assert here.checkpoint_due()
    assert told(tmp_path) == []


def test_who_must_leave_saves_once_more(make, tmp_path, clock, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: signal.SIG_DFL)
    here = make()
    clock.now += 5.0
    assert not here.checkpoint_due()
    (tmp_path / "notice").write_text("CUMULO_PREEMPT_AT=1700001040.500\n")
    os.utime(tmp_path / "notice", (clock.wall(), clock.wall()))
    assert not here.preempted(), "the signal follows in a moment, and ends the shell around the program, too"
    clock.now += 1.0
    assert here.preempt_at() == 1700001040.5
    clock.now += 1.0
    assert here.checkpoint_due()
    with here.saving():
        clock.now += 1.0
    assert not here.checkpoint_due()


# ---- SIGTERM, in a process of its own -------------------------------------------------------------------------------


def run(program, env, *, act=None):
    """Runs it with cumulo.job in reach; `act` is called with the process once it has said something."""
    whole = os.environ | {"PYTHONPATH": str(SOURCE.parent.parent)} | env
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=whole)
    assert process.stdout
    first = process.stdout.readline() if act else ""
    if act:
        act(process)
    rest = process.stdout.read()
    process.stdout.close()
    return process.wait(30), first + rest


@pytest.fixture
def inside(tmp_path):
    return {
        "CUMULO_INSTANCE_ID": "i",
        "CUMULO_NOTICE": str(tmp_path / "notice"),
        "CUMULO_PROGRESS": str(tmp_path / "p"),
    }


@pytest.fixture
def preempt(tmp_path):
    def preempt(process):
        (tmp_path / "notice").write_text(f"CUMULO_PREEMPT_AT={time.time() + 30:.3f}\n")
        process.send_signal(signal.SIGTERM)

    return preempt


def terminate(process):
    process.send_signal(signal.SIGTERM)


LOOP = """
import time
from cumulo import job
{before}
job.preempted()
print("ready", flush=True)
while not job.preempted():
    time.sleep(0.01)
print("saved")
"""
SAVED = """
import sys, time
from cumulo import job
job.on_preempt(lambda: print("saved"))
print("ready", flush=True)
time.sleep(30)
"""


def test_a_loop_that_asks_outlives_the_signal(inside, preempt):
    assert run(LOOP.format(before=""), inside, act=preempt) == (0, "ready\nsaved\n")


def test_a_callback_saves_and_ends_the_program(inside, preempt):
    assert run(SAVED, inside, act=preempt) == (143, "ready\nsaved\n")


@pytest.mark.parametrize("program", [LOOP.format(before=""), SAVED])
def test_a_plain_stop_ends_it_as_ever(inside, program):
    assert run(program, inside, act=terminate) == (-signal.SIGTERM, "ready\n")


def test_the_programs_own_handler_still_hears_of_a_plain_stop(inside):
    own = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    assert run(LOOP.format(before=own), inside, act=terminate) == (7, "ready\n")


def test_a_save_under_way_is_done_first(inside, preempt):
    program = """
import time
from cumulo import job
job.on_preempt(lambda: print("callback"))
with job.saving():
    print("ready", flush=True)
    deadline = time.monotonic() + 20
    while not job.preempted() and time.monotonic() < deadline:
        time.sleep(0.01)
    print("done saving", flush=True)
print("never")
"""
    assert run(program, inside, act=preempt) == (143, "ready\ndone saving\ncallback\n")


def test_children_that_load_data_live_until_their_parent_has_saved(inside, preempt):
    program = """
import os, signal, time
from cumulo import job

def save():
    os.kill(child, signal.SIGTERM)
    time.sleep(0.2)
    print("saved", os.waitpid(child, os.WNOHANG))
    os.kill(child, signal.SIGKILL)

job.on_preempt(save)
child = os.fork()
if child == 0:
    time.sleep(20)
    os._exit(0)
time.sleep(0.1)
print("ready", flush=True)
time.sleep(30)
"""
    assert run(program, inside, act=preempt) == (143, "ready\nsaved (0, 0)\n")
