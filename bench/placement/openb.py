"""The published evaluation of FGD, to the letter: pods come one by one, none leaves, one that does not fit is dropped.

The streams are NumPy's, so seeds do not pair with the published ones, whose means are shown beside. All policies see
the same stream and the same order of nodes, so they pair with one another.
"""

import argparse
import csv
import gzip
import multiprocessing
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np

from bench.placement.bound import Bound, Floats
from bench.placement.openb_trace import Ints, Nodes, Trace, folder_of, names, read_nodes, read_pods
from bench.placement.paired import difference, numbers
from bench.placement.policies import NAMES, Policy, policy

TRACES: Final = Path("../shared/traces/openb")
LEVELS: Final = (90, 95, 100, 110, 130)
_PUBLISHED: Final = {"fgd": "06-FGD", "bestfit": "05-BestFit"}
_SEEDS_A_JOB: Final = 5


class Stream(NamedTuple):
    """Classes in order of arrival, and the nodes in the order that decides ties."""

    arrivals: Ints
    nodes: Nodes


def stream(trace: Trace, nodes: Nodes, seed: int) -> Stream:
    """What a seed stands for."""
    random = np.random.default_rng(seed)
    arrivals = trace.arrivals(random, nodes.total_milli)
    return Stream(arrivals, nodes.ordered(np.argsort(random.permutation(len(nodes)))))


def arrived_pct(trace: Trace, of: Stream) -> Floats:
    """% of the GPUs that has been asked for once each pod has come."""
    found: Floats = 100 * np.cumsum(trace.milli[of.arrivals]) / of.nodes.total_milli
    return found


def allocated(trace: Trace, of: Stream, by: Policy) -> dict[int, float]:
    """At each level b: the mean allocation in % of the GPUs over arrivals of which b is the rounded `arrived_pct`."""
    placed = np.array([by.arrive(number) is not None for number in of.arrivals.tolist()])
    pct = 100 * np.cumsum(trace.milli[of.arrivals] * placed) / of.nodes.total_milli
    level = np.rint(arrived_pct(trace, of))
    return {each: float(pct[level == each].mean()) for each in LEVELS}


def arrived_at_100(trace: Trace, of: Stream) -> Floats:
    """How many pods of each class have come, on the average over the arrivals that count for level 100.

    The bound is concave in what has come, so that the bound of this mean is no less than the mean of the bounds.
    """
    counted = np.flatnonzero(np.rint(arrived_pct(trace, of)) == 100)
    first, classes = int(counted[0]), len(trace.classes)
    before = np.bincount(of.arrivals[:first], minlength=classes).astype(np.float64)
    part = 1 - np.arange(len(counted)) / len(counted)
    return before + np.bincount(of.arrivals[counted], weights=part, minlength=classes).astype(np.float64)


# ---- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traces", type=Path, default=TRACES, metavar="DIR", help="openb, or a folder that has it")
    parser.add_argument("--seeds", default="42-51", help="42-51 or 1,2,3; default: %(default)s")
    parser.add_argument("--policy", default="fgd,bestfit,cumulo", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument(
        "--trace", default="", metavar="NAME,…", help="pod lists, as default,cpu250; default: all there"
    )
    parser.add_argument("--bound", action="store_true", help="with the upper bound of a linear program")
    parser.add_argument("--jobs", type=int, default=1, help="processes; default: 1")


def run(options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each trace, seed and policy. Raises BadTrace, ValueError."""
    policies, seeds, folder = options.policy.split(","), numbers(options.seeds), folder_of(options.traces)
    if unknown := set(policies) - set(NAMES):
        raise ValueError(f"no policy is called {min(unknown)!r}; there are {', '.join(NAMES)}")
    traces = options.trace.split(",") if options.trace else names(folder)
    work = [(trace, seeds[at : at + _SEEDS_A_JOB]) for trace in traces for at in range(0, len(seeds), _SEEDS_A_JOB)]
    rows_of = partial(_rows, folder, policies, bound=options.bound)
    if options.jobs == 1:
        return [row for trace, some in work for row in rows_of(trace, some)]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        return [row for rows in pool.starmap(rows_of, work, chunksize=1) for row in rows]


def _rows(
    folder: Path, policies: Sequence[str], trace_name: str, seeds: Sequence[int], *, bound: bool
) -> list[dict[str, object]]:
    nodes, trace = read_nodes(folder), read_pods(folder, trace_name)
    at_most = Bound(trace, nodes) if bound else None
    known = published(folder, trace_name)
    rows: list[dict[str, object]] = []
    for seed in seeds:
        of = stream(trace, nodes, seed)
        figures = {"lp_bound_at_100": round(at_most(arrived_at_100(trace, of)), 3)} if at_most else {}
        for name in policies:
            found = allocated(trace, of, policy(name, trace, of.nodes))
            row: dict[str, object] = {"test": "openb", "trace": trace_name, "policy": name, "seed": seed}
            row |= {f"alloc_pct_at_{level}": round(pct, 3) for level, pct in found.items()} | figures
            rows.append(row | ({"published_mean_at_100": known[name]} if name in known else {}))
    return rows


def published(folder: Path, trace: str) -> dict[str, float]:
    """The published mean at level 100 of each reference policy; empty where the file or the trace in it is missing."""
    path = folder / "fgd_expected_allo_discrete.csv.gz"
    if not path.is_file():
        return {}
    found: dict[str, list[float]] = defaultdict(list)
    with gzip.open(path, "rt") as lines:
        for row in csv.DictReader(lines):
            if row["workload"] == f"openb_pod_list_{trace}":
                found[row["sc_policy"]].append(float(row["100"]))
    return {name: round(fmean(found[theirs]), 3) for name, theirs in _PUBLISHED.items() if theirs in found}


# ---- the table -------------------------------------------------------------------------------------------------------


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The reproduction of the published figures, then Cumulo beside the others."""
    by_trace: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_trace[row["trace"]][row["policy"]].append(row)
    return "\n".join([*_reproduction(by_trace), *_comparison(by_trace)])


def _reproduction(by_trace: dict[str, dict[str, list[dict[str, Any]]]]) -> Iterator[str]:
    yield "GPU allocation, % at 100 % arrived: our means of the published policies, and the published ones"
    yield f"{'trace':<14}{'policy':<10}{'ours':>8}{'published':>11}{'difference':>12}"
    for trace, of_trace in by_trace.items():
        for name, group in of_trace.items():
            if "published_mean_at_100" in group[0]:
                ours, theirs = _mean(group), group[0]["published_mean_at_100"]
                yield f"{trace:<14}{name:<10}{ours:>8.2f}{theirs:>11.2f}{ours - theirs:>+12.2f}"


def _comparison(by_trace: dict[str, dict[str, list[dict[str, Any]]]]) -> Iterator[str]:
    policies = list(next(iter(by_trace.values())))
    others = [name for name in policies if name != "cumulo"] if "cumulo" in policies else []
    seeds = len(next(iter(next(iter(by_trace.values())).values())))
    yield f"\nGPU allocation, % at 100 % arrived: means over {seeds} seeds; differences paired, with 95 % intervals"
    heads = [f"{name:>10}" for name in policies] + [f"{'cumulo − ' + name:>20}" for name in others]
    yield f"{'trace':<14}{''.join(heads)}{'LP bound':>10}"
    means: dict[str, list[float]] = defaultdict(list)
    for trace, of_trace in by_trace.items():
        cells = [f"{_mean(of_trace[name]):>10.2f}" for name in policies]
        for name in others:
            found = difference(_figures(of_trace["cumulo"]), _figures(of_trace[name]))
            means[name].append(found.mean)
            cells.append(f"{found!s:>20}")
        bounds = [row["lp_bound_at_100"] for row in of_trace[policies[0]] if "lp_bound_at_100" in row]
        yield f"{trace:<14}{''.join(cells)}" + (f"{fmean(bounds):>10.2f}" if bounds else f"{'-':>10}")
    for name in others:
        yield f"cumulo − {name}: mean over traces {fmean(means[name]):+.2f}, the least {min(means[name]):+.2f}"


def _mean(group: Sequence[dict[str, Any]]) -> float:
    return fmean(_figures(group))


def _figures(group: Sequence[dict[str, Any]]) -> list[float]:
    return [row["alloc_pct_at_100"] for row in group]
