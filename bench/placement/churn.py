"""Runs come and go: how much of the GPUs is in use on the average, and who is turned away.

Arrivals are Poisson, pods are drawn from the trace, lifetimes are log-normal (sigma 1, mean 1) whatever the pod, and a
pod that does not fit is lost. The first third is the warm-up. All policies see the same stream and order of nodes.
"""

import argparse
from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from bench.placement.anywhere import Anywhere
from bench.placement.bound import Floats
from bench.placement.cumulo_policy import CumuloPolicy
from bench.placement.moving import Moving, Runs, Staying
from bench.placement.openb import TRACES
from bench.placement.openb_trace import Ints, Nodes, Trace, folder_of, names, read_nodes, read_pods
from bench.placement.paired import numbers
from bench.placement.policies import NAMES, policy

ARRIVALS: Final = 250_000
WITH_ROOM: Final = "cumulo+room"
ANYWHERE: Final = "anywhere"
GROUPS: Final = ("cpu", "shared", "one_gpu", "many_gpus")
_SIGMA: Final = 1.0
_WARM_UP: Final = 3  # one part of so many


class Stream(NamedTuple):
    """Classes in order of arrival, when they come and how long they last, and the nodes in their order."""

    numbers: Ints
    at: Floats
    lasts: Floats
    nodes: Nodes


class Seen(NamedTuple):
    """What came of a stream: GPU time in use, of those there, and which arrivals were turned away."""

    in_use_pct: float
    rejected: np.ndarray[Any, np.dtype[np.bool_]]
    moves: int


def stream(trace: Trace, nodes: Nodes, *, load: float, seed: int, arrivals: int) -> Stream:
    """`load`: GPU time asked for, of what there is."""
    random = np.random.default_rng(seed)
    share = trace.counts / trace.counts.sum()
    drawn = random.choice(len(trace.classes), arrivals, p=share)
    rate = load * nodes.total_milli / float(share @ trace.milli)
    at = np.cumsum(random.exponential(1 / rate, arrivals))
    lasts = random.lognormal(-(_SIGMA**2) / 2, _SIGMA, arrivals)
    return Stream(drawn, at, lasts, nodes.ordered(np.argsort(random.permutation(len(nodes)))))


def play(trace: Trace, of: Stream, runs: Runs) -> Seen:
    """Plays a stream, and counts from the end of the warm-up to the last arrival."""
    milli = trace.milli[of.numbers].tolist()
    counted = len(of.at) // _WARM_UP
    since, moves_before = float(of.at[counted]), 0
    ends: list[tuple[float, int]] = []
    rejected = np.zeros(len(of.at), dtype=bool)
    in_use, last, area = 0, 0.0, 0.0
    for run, (number, now, lasts) in enumerate(
        zip(of.numbers.tolist(), of.at.tolist(), of.lasts.tolist(), strict=True)
    ):
        while ends and ends[0][0] <= now:
            ended, gone = heappop(ends)
            area += in_use * max(0.0, ended - max(last, since))
            last = ended
            runs.end(gone)
            in_use -= milli[gone]
        area += in_use * max(0.0, now - max(last, since))
        last = now
        if run == counted:
            moves_before = runs.moves
        if runs.start(run, number):
            heappush(ends, (now + lasts, run))
            in_use += milli[run]
        else:
            rejected[run] = True
    span = (last - since) * of.nodes.total_milli
    return Seen(100 * area / span, rejected, runs.moves - moves_before)


def figures(trace: Trace, of: Stream, seen: Seen) -> dict[str, float]:
    """In % of the arrivals after the warm-up, all and of each group; GPU time lost in % of that asked for."""
    counted = slice(len(of.at) // _WARM_UP, None)
    asked = (trace.milli[of.numbers] * of.lasts)[counted]
    rejected = seen.rejected[counted]
    group = np.array([pod.group for pod in trace.classes])[of.numbers][counted]
    found = {
        "alloc_pct": seen.in_use_pct,
        "gpu_time_lost_pct": 100 * float(asked[rejected].sum() / asked.sum()),
        "rejected_pct": 100 * float(rejected.mean()),
    }
    for index, name in enumerate(GROUPS):
        if (group == index).any():
            found[f"rejected_{name}_pct"] = 100 * float(rejected[group == index].mean())
    found["moves_per_100"] = 100 * seen.moves / len(rejected)
    return {name: round(value, 3) for name, value in found.items()}


# ---- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traces", type=Path, default=TRACES, metavar="DIR", help="openb, or a folder that has it")
    parser.add_argument(
        "--trace", default="default,cpu250,gpushare100,gpuspec33,multigpu50", help="default: %(default)s"
    )
    parser.add_argument(
        "--loads", default="0.9,1.0,1.1", help="GPU time asked for, of that there; default: %(default)s"
    )
    parser.add_argument("--seeds", default="42", help="42-51 or 1,2,3; default: %(default)s")
    parser.add_argument("--arrivals", type=int, default=ARRIVALS, help="default: %(default)s")
    parser.add_argument("--policy", default="fgd,cumulo", help=f"of {', '.join(NAMES)}; default: %(default)s")
    parser.add_argument("--make-room", action="store_true", help=f"with {WITH_ROOM}, which moves small runs")
    parser.add_argument(
        "--bound", action="store_true", help=f"with {ANYWHERE}: what is lost if all that runs moves for free"
    )
    parser.add_argument(
        "--move", choices=("small", "shared"), default="small", help="at most one GPU, or less than one"
    )
    parser.add_argument("--most-moves", type=int, default=8, help="for one run; default: %(default)s")
    parser.add_argument(
        "--moves-per-100", type=float, default=1.4, help="arrivals, on the average; default: %(default)s"
    )


def run(options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each trace, load, seed and policy. Raises BadTrace, ValueError."""
    folder = folder_of(options.traces)
    nodes = read_nodes(folder)
    policies = options.policy.split(",") + [WITH_ROOM] * options.make_room + [ANYWHERE] * options.bound
    rows: list[dict[str, object]] = []
    for name in options.trace.split(",") if options.trace != "all" else names(folder):
        trace = read_pods(folder, name)
        for load in map(float, options.loads.split(",")):
            for seed in numbers(options.seeds):
                of = stream(trace, nodes, load=load, seed=seed, arrivals=options.arrivals)
                for by in policies:
                    seen = play(trace, of, _runs(by, trace, of.nodes, options))
                    row: dict[str, object] = {"test": "churn", "trace": name, "policy": by, "seed": seed, "load": load}
                    rows.append(row | figures(trace, of, seen))
    return rows


def _runs(name: str, trace: Trace, nodes: Nodes, options: argparse.Namespace) -> Runs:
    if name == ANYWHERE:
        return Anywhere(trace, nodes)
    if name == WITH_ROOM:
        whole = options.move == "small"
        return Moving(CumuloPolicy(trace, nodes), whole=whole, most=options.most_moves, per_100=options.moves_per_100)
    return Staying(policy(name, trace, nodes))


_COLUMNS: Final = {
    "alloc_pct": "in use",
    "gpu_time_lost_pct": "lost",
    "rejected_pct": "rejected",
    "rejected_cpu_pct": "CPU only",
    "rejected_shared_pct": "shared",
    "rejected_one_gpu_pct": "one GPU",
    "rejected_many_gpus_pct": "many",
    "moves_per_100": "moves/100",
}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Means over the seeds."""
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["trace"], row["load"], row["policy"]), []).append(row)
    lines = [
        "%: GPUs in use on the average, GPU time lost, and arrivals rejected, in all and of each group",
        f"{'trace':<13}{'load':>5}  {'policy':<12}" + "".join(f"{head:>10}" for head in _COLUMNS.values()),
    ]
    for (trace, load, by), group in groups.items():
        cells = (
            f"{np.mean([row[key] for row in group]):>10.2f}" if key in group[0] else f"{'-':>10}" for key in _COLUMNS
        )
        lines.append(f"{trace:<13}{load:>5}  {by:<12}{''.join(cells)}")
    return "\n".join(lines)
