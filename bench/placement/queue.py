"""Who waits how long: published workloads played through the queue, beside first-in-first-out, shortest-first and more.

    fifo             nobody passes the first that waits
    first-fit        whatever fits, the oldest first (Tiresias' simulator calls it fjf)
    shortest         whatever fits, the shortest first, with lengths known to the second
    cumulo           the default policy, told of no job how long it takes
    cumulo-limits    the same, told limits as people declare them: up to four times too long, and round
    cumulo-declared  the same, told the truth
    las              Tiresias' 2D-LAS, preemptive, as a reference: GPUs only counted, stopping and resuming for nothing
    srtf             shortest remaining time first, preemptive, in the same way

Fairness is that of finish times (Themis, NSDI 2020): a job's time to completion by the time it would have taken on its
share of the cluster, 1/N of the GPUs with N jobs there on average while it was. `unfair_pct` is the share of the jobs
for which that is above 1, `jain` is Jain's index of it over all jobs (1: all are treated alike).

What the papers print is not comparable number by number: Tiresias' 60 jobs are not those of its figures, Muri packs
several jobs on one GPU, and Sia changes the GPUs of a job while it runs. What there is of the same jobs: for these ten
`saturn` workloads Sia's simulator prints an average completion of 2.55 h under Gavel (README of
github.com/siasosp23/artifacts), preemptive and on 64 GPUs of three kinds; it stands in the table as `gavel`.
"""

import argparse
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from statistics import fmean

from bench.placement.replay import Played, cumulo, fifo, first_fit, limits, placed, preemptive, waiting
from bench.placement.workloads import NAMES, Workload, read

HOUR = 3600.0
DEFAULT = "stream,tiresias,muri-cluster,sia-saturn,philly-2869ce,philly-e13805"
GAVEL_SATURN = {"jct_h": 2.548, "p99_jct_h": 46.334}

POLICIES: dict[str, Callable[[Workload, int], Played]] = {
    "fifo": lambda work, seed: placed(work, fifo, lambda n, job: waiting(n, job, at=job.at, declared=None)),
    "first-fit": lambda work, seed: placed(work, first_fit, lambda n, job: waiting(n, job, at=job.at, declared=None)),
    # Who is accepted first is the shortest.
    "shortest": lambda work, seed: placed(
        work, first_fit, lambda n, job: waiting(n, job, at=job.seconds, declared=None)
    ),
    "cumulo": lambda work, seed: placed(work, cumulo, lambda n, job: waiting(n, job, at=job.at, declared=None)),
    "cumulo-limits": lambda work, seed: _limited(work, limits(work.jobs, seed)),
    "cumulo-declared": lambda work, seed: _limited(work, [job.seconds for job in work.jobs]),
    "las": lambda work, seed: preemptive(work, las=True),
    "srtf": lambda work, seed: preemptive(work, las=False),
}


def _limited(work: Workload, declared: list[float]) -> Played:
    return placed(work, cumulo, lambda number, job: waiting(number, job, at=job.at, declared=declared[number]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--traces", type=Path, required=True, metavar="DIR", help="where philly/ and jct-workloads/ are"
    )
    parser.add_argument("--workloads", default=DEFAULT, help=f"of {', '.join(NAMES)}; default: %(default)s")
    parser.add_argument("--policies", default=",".join(POLICIES), help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=42, help="of the declared limits; default: %(default)s")


def run(options: argparse.Namespace) -> list[dict[str, object]]:
    """One row for each workload (Sia's: for all of a kind, averaged) and policy. ValueError for unknown names."""
    policies = options.policies.split(",")
    for policy in policies:
        if policy not in POLICIES:
            raise ValueError(f"no policy is called {policy!r}; there are {', '.join(POLICIES)}")
    rows: list[dict[str, object]] = []
    for name in options.workloads.split(","):
        works = read(options.traces, name)
        for policy in policies:
            figures = [_figures(work, POLICIES[policy](work, options.seed)) for work in works]
            mean = {key: round(fmean(each[key] for each in figures), 3) for key in figures[0]}
            rows.append(_row(name, policy, options.seed, works, mean))
        if name == "sia-saturn":
            rows.append(_row(name, "gavel", options.seed, works, GAVEL_SATURN))
    return rows


def _row(name: str, policy: str, seed: int, works: list[Workload], figures: dict[str, float]) -> dict[str, object]:
    about = {
        "jobs": sum(len(work.jobs) for work in works),
        "gpus": max(work.nodes for work in works) * 8,
        "load": round(fmean(work.load for work in works), 2),
    }
    return {"test": "queue", "trace": name, "policy": policy, "seed": seed, **about, **figures}


def _figures(work: Workload, played: Played) -> dict[str, float]:
    jobs, gpus = work.jobs, work.nodes * 8
    if unfinished := sum(end == float("inf") for end in played.ends):
        raise RuntimeError(f"{unfinished} jobs of {work.name} never ended")
    lasted = [end - job.at for job, end in zip(jobs, played.ends, strict=True)]
    # A preempted job waits in between too.
    waits = [time - job.seconds for job, time in zip(jobs, lasted, strict=True)]
    fair = [
        time / (job.seconds * max(1.0, job.gpus * crowd / gpus))
        for job, time, crowd in zip(jobs, lasted, played.crowds(jobs), strict=True)
    ]
    most = max(job.gpus for job in jobs)
    return {
        "jct_h": fmean(lasted) / HOUR,
        "p99_jct_h": _quantile(lasted, 0.99) / HOUR,
        "wait_h": fmean(waits) / HOUR,
        "p99_wait_h": _quantile(waits, 0.99) / HOUR,
        "largest_gpus": float(most),
        "largest_wait_h": max(wait for job, wait in zip(jobs, waits, strict=True) if job.gpus == most) / HOUR,
        "unfair_pct": 100 * fmean(each > 1 + 1e-9 for each in fair),
        "jain": sum(fair) ** 2 / (len(fair) * sum(each**2 for each in fair)),
    }


def _quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


COLUMNS = {
    "jct_h": "average completion",
    "p99_jct_h": "p99",
    "wait_h": "average wait",
    "p99_wait_h": "p99",
    "largest_wait_h": "longest of the largest",
    "unfair_pct": "unfair %",
    "jain": "Jain",
}


def table(rows: list[dict[str, object]]) -> str:
    """Times in hours."""
    lines: list[str] = []
    for trace, of_trace in groupby(rows, key=lambda row: row["trace"]):
        first, *_ = several = list(of_trace)
        about = ", ".join(f"{first[key]} {key}" for key in ("jobs", "gpus", "load"))
        lines += [f"{trace}: {about}", f"{'':16}" + "".join(f"{name:>23}" for name in COLUMNS.values())]
        for row in several:
            cells = (f"{row[key]:>23.3g}" if key in row else f"{'-':>23}" for key in COLUMNS)
            lines.append(f"{row['policy']:16}" + "".join(cells))
        lines.append("")
    return "\n".join(lines)
