"""The replay of queues: what must come out by hand, the preemptive references, and the files as they are."""

from argparse import ArgumentParser
from pathlib import Path

import pytest

from bench.placement import queue
from bench.placement.replay import fifo, limits, placed, preemptive, waiting
from bench.placement.workloads import Job, Workload, read

TRACES = Path(__file__).parents[4] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not there")


def workload(*jobs, nodes=1):
    return Workload("made", nodes, sorted(jobs, key=lambda job: job.at))


def told(number, job):
    return waiting(number, job, at=job.at, declared=None)


# A long run holds half of the node, a large one waits for it, and a small one could pass.
PASSING = workload(Job(0, 100, 4), Job(1, 10, 8), Job(2, 5, 1))


def test_first_in_first_out_lets_nobody_pass():
    assert placed(PASSING, fifo, told).starts == [0, 100, 110]


def test_cumulo_lets_pass_who_is_known_to_end_in_time():
    assert queue.POLICIES["cumulo-declared"](PASSING, 0).starts == [0, 100, 2]
    assert queue.POLICIES["cumulo"](PASSING, 0).starts == [0, 100, 110]


def test_shortest_first_and_the_preemptive_references():
    work = workload(Job(0, 100, 8), Job(1, 50, 8), Job(2, 10, 8))
    assert queue.POLICIES["shortest"](work, 0).ends == [100, 160, 110]
    assert preemptive(work, las=False).ends == [160, 61, 12]
    # None reaches the second queue, so the oldest goes on.
    assert preemptive(work, las=True).ends == [100, 150, 160]


def test_a_job_falls_to_the_second_queue_at_a_gpu_hour():
    work = workload(Job(0, 1000, 8), Job(1, 100, 8))
    assert preemptive(work, las=True).ends == [pytest.approx(1100), pytest.approx(550)]


def test_figures_of_a_workload_that_never_waits():
    free = workload(Job(0, 3600, 1), Job(0, 7200, 2))
    figures = queue._figures(free, placed(free, fifo, told))
    assert figures["jct_h"] == pytest.approx(1.5)
    assert (figures["wait_h"], figures["largest_wait_h"], figures["unfair_pct"]) == (0, 0, 0)
    assert figures["jain"] == pytest.approx(1)


def test_limits_are_never_below_the_truth():
    jobs = [Job(0, seconds, 1) for seconds in (1, 899, 901, 40_000, 1e9)]
    for job, limit in zip(jobs, limits(jobs, 1), strict=True):
        assert limit >= job.seconds


@pytest.mark.parametrize(("gpus", "nodes", "each"), [(1, 1, 1), (8, 1, 8), (12, 2, 6), (16, 2, 8), (10, 2, 5)])
def test_more_gpus_than_a_node_has_are_spread_evenly(gpus, nodes, each):
    assert (Job(0, 1, gpus).nodes, Job(0, 1, gpus).gpus_a_node) == (nodes, each)


def test_no_large_run_starves_in_an_endless_stream():
    [stream] = read(TRACES, "stream")
    large = next(number for number, job in enumerate(stream.jobs) if job.gpus == 16)
    played = queue.POLICIES["cumulo"](stream, 0)
    assert played.starts[large] - stream.jobs[large].at < 4 * 3600


@pytest.mark.parametrize(
    ("name", "text"),
    [("muri-9", "is not there"), ("other", "no workload is called 'other'"), ("philly-x", "no virtual cluster 'x'")],
)
@needs_traces
def test_what_is_not_there_is_said(name, text):
    with pytest.raises(ValueError, match=text):
        read(TRACES, name)


@needs_traces
def test_the_files_are_read_whole():
    assert [len(work.jobs) for work in read(TRACES, "sia-saturn")] == [160] * 10
    assert [len(work.jobs) for work in read(TRACES, "muri-cluster")] == [400]
    assert [len(work.jobs) for work in read(TRACES, "tiresias")] == [60]
    assert [len(work.jobs) for work in read(TRACES, "philly")] == [82_247]


@needs_traces
def test_rows_and_table():
    parser = ArgumentParser()
    queue.add_arguments(parser)
    rows = queue.run(parser.parse_args(["--traces", str(TRACES), "--workloads", "tiresias", "--policies", "fifo,srtf"]))
    assert [(row["test"], row["trace"], row["policy"]) for row in rows] == [
        ("queue", "tiresias", "fifo"),
        ("queue", "tiresias", "srtf"),
    ]
    assert "srtf" in queue.table(rows)
    with pytest.raises(ValueError, match="no policy is called 'luck'"):
        queue.run(parser.parse_args(["--traces", str(TRACES), "--policies", "luck"]))
