"""What an instance is told when it must make room for others, and what it finds of ours to import."""

import json
import os
import time
from pathlib import Path

import pytest

from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.engines.notice import last_moment, write_notice
from tests.engines.conftest import ROOT, SOMEBODY

# Waits for the notice without a trap of its own, and tells what a shell sources from it.
SHELL = """
trap '. "$CUMULO_NOTICE"; echo "until $CUMULO_PREEMPT_AT"; exit 0' TERM
[ -e "$CUMULO_NOTICE" ] && echo "too early"
echo ready
while :; do sleep 0.02 & wait $!; done
"""
# A program behind a shell that dies of the SIGTERM itself: it saves, and leaves when it has.
PYTHON = """
python3 - <<'END'
import time
from cumulo import job
from pathlib import Path

(job.checkpoint_dir() / "state").write_text("first")
job.progress(1, 4, unit="step")
print("ready", flush=True)
while not job.preempted():
    time.sleep(0.01)
with job.saving():
    (job.checkpoint_dir() / "state").write_text("saved")
print("until", job.preempt_at(), flush=True)
END
echo "the shell goes on"
"""


def ready(bench, name):
    bench.until(name, lambda seen: "ready" in bench.log(name))


def told(bench, name):
    """The moment that the instance read and said."""
    return float(bench.log(name).split("until ")[1].split()[0])


@pytest.mark.parametrize("program", [SHELL, PYTHON])
def test_a_notice_comes_before_the_signal_and_says_until_when(bench, runtime, program):
    name = bench.start("leaves", program)
    ready(bench, name)
    at = time.time() + 20.0
    bench.engine.stop(name, 20.0, 1, at)
    seen = bench.end(name)
    assert seen.reason is EndReason.CANCELLED
    assert told(bench, name) == pytest.approx(at, abs=0.001)
    assert seen.ended_at < at - 10.0
    assert "too early" not in bench.log(name)
    assert "goes on" not in bench.log(name), "whoever leaves does not go on with the next command"


def test_what_was_saved_is_told(bench, runtime):
    name = bench.start("saves", PYTHON)
    ready(bench, name)
    assert bench.look(name).checkpoint is None
    began = time.time()
    bench.engine.stop(name, 20.0, 1, began + 20.0)
    seen = bench.end(name)
    line = json.loads(seen.checkpoint)
    assert began - 0.01 <= line["checkpoint"] <= seen.ended_at
    assert (line["done"], line["total"], line["unit"]) == (1, 4, "step")
    assert (bench.root / "runs/saves/0/checkpoint/state").read_text() == "saved"


def test_a_plain_stop_gives_no_notice_and_ends_the_program(bench, runtime):
    name = bench.start("stops", PYTHON)
    ready(bench, name)
    bench.engine.stop(name, 20.0, 1)
    seen = bench.end(name)
    assert time.time() - seen.ended_at < 10.0
    assert "until" not in bench.log(name)
    assert not (bench.root / "areas" / name / "notice").exists()


def test_the_first_moment_stays_and_the_kill_comes_then(bench, runtime):
    name = bench.start("stays", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    ready(bench, name)
    at = time.time() + 1.0
    bench.engine.stop(name, 1.0, 1, at)
    bench.engine.stop(name, 1.0, 1, at + 50.0)  # asked again, as after a restart of the server
    seen = bench.end(name)
    assert at <= seen.ended_at < at + 2.0
    notice = (bench.root / "areas" / name / "notice").read_text()
    assert notice == f"CUMULO_PREEMPT_AT={at:.3f}\n"


def test_a_gang_is_told_one_moment(bench, runtime):
    names = [bench.start("gang", SHELL, rank=rank, instance_id=f"gang-0-0-{rank}") for rank in range(2)]
    for name in names:
        ready(bench, name)
    at = time.time() + 20.0
    for name in names:
        bench.engine.stop(name, 20.0, 1, at)
    for name in names:
        bench.end(name)
    assert told(bench, names[0]) == told(bench, names[1])


def test_who_hears_of_it_too_late_gets_a_whole_grace():
    assert last_moment(130.0, 30.0, 100.01) == 130.0
    assert last_moment(130.0, 30.0, 116.0) == 146.0
    assert last_moment(130.0, 30.0, 900.0) == 930.0
    assert last_moment(130.0, 30.0, 50.0) == 80.0, "a clock that is behind gives nobody more"
    assert last_moment(100.0, 0.0, 100.0) == 100.0


def test_a_notice_goes_through_no_link(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("kept")
    area = tmp_path / "area"
    area.mkdir()
    for name in ("notice", ".notice"):
        (area / name).symlink_to(secret)
    write_notice(area / "notice", 12.5)
    assert secret.read_text() == "kept"
    assert (area / "notice").read_text() == "CUMULO_PREEMPT_AT=12.500\n"
    write_notice(tmp_path / "missing" / "notice", 12.5)  # it was stopped before anything was made for it


@pytest.mark.skipif(not ROOT, reason="needs root")
def test_a_notice_belongs_to_the_run(tmp_path):
    os.chown(tmp_path, SOMEBODY, SOMEBODY)
    write_notice(tmp_path / "notice", 12.5)
    assert (tmp_path / "notice").stat().st_uid == SOMEBODY


def test_job_is_there_and_gives_way_to_an_installed_cumulo(bench, runtime):
    command = 'python3 -c "from cumulo import job; print(job.__file__, job.preempted())"'
    _, log = bench.run("plain", command)
    assert log == f"{bench.root}/lib/cumulo/job.py False\n"
    installed = (
        "mkdir -p own/cumulo; echo 'whole = 1' > own/cumulo/__init__.py; cp $PYTHONPATH/cumulo/job.py own/cumulo/\n"
        f"PYTHONPATH=$PYTHONPATH:$PWD/own {command}"
    )
    _, log = bench.run("whole", installed)
    assert log.endswith("/own/cumulo/job.py False\n")
    _, log = bench.run("path", 'echo "$PYTHONPATH"', env={"PYTHONPATH": "src"})
    assert log == f"src:{bench.root}/lib\n"


def test_hazards_reach_the_run(bench, runtime):
    hazard = ((0.0, 1e-3), (3600.0, 2.5e-5))
    began = time.time()
    _, log = bench.run("told", 'echo "$CUMULO_HAZARD $CUMULO_BEGAN_AT"', hazard=hazard)
    told, at = log.split()
    assert told == "0:0.001,3600:2.5e-05"
    assert began - 0.01 <= float(at) <= time.time()
    _, log = bench.run("untold", 'echo "[${CUMULO_HAZARD-}]"')
    assert log == "[]\n"


def test_a_withdrawn_start_never_sees_a_notice(bench):
    bench.engine.stop("never-0-0-0", 5.0, 1, time.time() + 5.0)
    assert bench.end("never-0-0-0").state is InstanceState.ENDED
    assert not Path(bench.root / "areas/never-0-0-0").exists()
