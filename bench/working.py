"""Runs: how soon one starts, how many end per second, how long an array takes to submit."""

import statistics
import time
from datetime import datetime

from bench.bare import sandbox_available, sandbox_seconds, sandboxes_per_second
from bench.processes import cpu_seconds
from bench.table import Row
from bench.trial import Trial

QUEUED = 500
INDEXES = 500
PAUSE_S = 0.3  # between runs, so that each finds an idle server


def latency(trial: Trial) -> list[Row]:
    """From accepted to the run's own process, one run at a time on an idle server.

    Two clocks must agree: what the API reports, and what the run's own bash reads as its first act.
    """
    box, times = trial.box, trial.times(31, 15)
    reported, own = [], []
    commits = box.commits()
    for turn in range(times + 1):
        run = box.submit("echo $EPOCHREALTIME")
        time.sleep(PAUSE_S)
        run = box.client.wait(run.id)
        if turn:  # the first warms up
            reported.append(_epoch(run.started_at) - _epoch(run.accepted_at))
            own.append(float(box.log_of(run.id)) - _epoch(run.accepted_at))
    trial.runs_done += times + 1
    note = (
        f"{statistics.median(own) * 1e3:.1f} ms by the run's own clock, the slowest {max(own) * 1e3:.0f}; "
        f"a run by itself commits {(box.commits() - commits) / (times + 1):.1f} times"
    )
    bare = sandbox_seconds(times) * 1e3 if sandbox_available() else None
    return [
        Row(name="latency", what="submit accepted → user's process runs", unit="ms", budget=50,
            measured=max(statistics.median(reported), statistics.median(own)) * 1e3,
            bare=bare, bare_of=_sandbox("bwrap … true"), note=note)
    ]  # fmt: skip


def throughput(trial: Trial) -> list[Row]:
    """Short runs that wait behind one that holds everything and then are let go. Commits: from the first submit on."""
    box, count = trial.box, trial.times(QUEUED, QUEUED // 5)
    commits = box.commits()
    with box.held_up():
        ids = {box.submit("true").id for _ in range(count)}
        cpu = {"server": cpu_seconds(box.pid), "spawner": cpu_seconds(box.spawner())}
    box.wait_until(lambda: not list(box.client.runs(active=True, limit=1)), pause=0.5)
    used = (cpu_seconds(box.pid) - cpu["server"]) / count * 1e3
    runs = [run for run in box.client.runs(limit=count + 1) if run.id in ids]
    assert len(runs) == count, "every run is listed"
    assert all(run.status == "succeeded" for run in runs), "every run succeeds"
    rate = count / (max(_epoch(run.ended_at) for run in runs) - min(_epoch(run.placed_at) for run in runs))
    trial.runs_done += count
    bare = sandboxes_per_second(count) if sandbox_available() else None
    return [
        Row(name="throughput", what=f"short runs per second, {count} queued", unit="/s", budget=60, measured=rate,
            at_least=True, bare=bare, bare_of=_sandbox("bwrap … bash -c true"),
            note=f"{used:.1f} ms of the server's CPU a run"),
        Row(name="throughput", what="commits per run, submit to end", unit="", budget=4,
            measured=(box.commits() - commits) / count),
    ]  # fmt: skip


def array(trial: Trial) -> list[Row]:
    """An array of 500 submitted, from the request to the answer, over the SDK."""
    box = trial.box
    seconds, plain = [], []
    with box.held_up():
        for _ in range(trial.times(9, 5)):
            began = time.perf_counter()
            run = box.submit("true", array=f"0-{INDEXES - 1}")
            seconds.append(time.perf_counter() - began)
            assert run.units == INDEXES
            box.client.cancel(run.id)
            began = time.perf_counter()
            run = box.submit("true")
            plain.append(time.perf_counter() - began)
            box.client.cancel(run.id)
    box.wait_until_idle()
    return [
        Row(name="array", what=f"a {INDEXES}-run array submitted", unit="s", budget=0.1,
            measured=statistics.median(seconds), bare=statistics.median(plain), bare_of="a plain run submitted")
    ]  # fmt: skip


def _epoch(moment: datetime | str | None) -> float:
    assert moment is not None
    return (moment if isinstance(moment, datetime) else datetime.fromisoformat(moment)).timestamp()


def _sandbox(what: str) -> str:
    return what if sandbox_available() else "bubblewrap is not installed: these ran as plain processes"
