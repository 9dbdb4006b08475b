"""How many decisions a second the array core takes on one core, in how much memory, and how both grow with the fleet.

Two streams on openb's nodes, taken as often as the fleet is to have: `fill`, the published evaluation's, which only
arrives; and `churn`, where each arrival follows a departure on a fleet that is full. The time is CPU time of all that
placing takes: seeing the ask, the prices now and then, the choice, and taking the place. Each measurement runs in a
process of its own, and says what it decided, so that NumPy and the compiled kernels are held to the same decisions.
"""

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.placement.cumulo_policy import CumuloPolicy
from bench.placement.openb import TRACES, stream
from bench.placement.openb_trace import Ints, Nodes, Trace, folder_of, read_nodes, read_pods

KERNELS: Final = ("numpy", "numba")
_MIB: Final = 1 << 20
# Decisions of churn that are timed, after as many that are not; of `fill` all are, up to ten times as many.
DECISIONS: Final = 20_000


def fleet(nodes: Nodes, count: int) -> Nodes:
    """About `count` nodes in the trace's mix: the trace's own over and over."""
    return nodes.ordered(np.arange(count) % len(nodes))


def measure(trace: Trace, nodes: Nodes, *, compiled: bool, seed: int, decisions: int) -> dict[str, object]:
    """Decisions a CPU second and memory of one kind of kernels on one fleet."""
    _warm_up(trace, nodes, compiled=compiled)
    before = _resident()
    of = stream(trace, nodes, seed)
    policy = CumuloPolicy(trace, of.nodes, compiled=compiled)
    decided = hashlib.blake2b(digest_size=8)
    fill, in_place = _fill(policy, of.arrivals[: 10 * decisions], decided)
    share = trace.counts / trace.counts.sum()
    coming = np.random.default_rng(seed).choice(len(trace.classes), 2 * decisions, p=share)
    churn = _churn(policy, in_place, coming, decided)
    return {
        "fill_per_s": round(fill),
        "churn_per_s": round(churn),
        "memory_mib": round((_resident() - before) / _MIB, 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MIB, 1),
        "decided": decided.hexdigest(),
    }


Placed = tuple[int, int, list[int]]


def _fill(policy: CumuloPolicy, arrivals: Ints, decided: Any) -> tuple[float, deque[Placed]]:
    numbers = arrivals.tolist()
    began = time.process_time()
    found = [policy.arrive(number) for number in numbers]
    took = time.process_time() - began
    decided.update(repr(found).encode())
    placed = deque((number, *each) for number, each in zip(numbers, found, strict=True) if each is not None)
    return len(numbers) / took, placed


def _churn(policy: CumuloPolicy, placed: deque[Placed], coming: Ints, decided: Any) -> float:
    """The oldest leaves, then one arrives. The time of both counts, in the second half."""
    half, began = len(coming) // 2, 0.0
    for turn, number in enumerate(coming.tolist()):
        if turn == half:
            began = time.process_time()
        policy.leave(*placed.popleft())
        found = policy.arrive(number)
        if found is not None:
            placed.append((number, *found))
    took = time.process_time() - began
    decided.update(repr(placed).encode())
    return half / took


def _warm_up(trace: Trace, nodes: Nodes, *, compiled: bool) -> None:
    """Compiles, or loads what was compiled, and imports."""
    policy = CumuloPolicy(trace, nodes.ordered(np.arange(min(300, len(nodes)))), compiled=compiled)
    for number in list(range(len(trace.classes))) * 2:
        policy.arrive(number)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traces", type=Path, default=TRACES, metavar="DIR", help="openb, or a folder that has it")
    parser.add_argument("--trace", default="default", help="the pod list; default: %(default)s")
    parser.add_argument("--nodes", default="1213,10000,100000", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=42, help="default: %(default)s")
    parser.add_argument("--decisions", type=int, default=DECISIONS, help="under churn; default: %(default)s")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--plain", action="store_true", help="NumPy only")
    only.add_argument("--compiled", action="store_true", help="numba only")


def run(options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each size and kind of kernels. Raises BadTrace, and ValueError where two kinds decide differently."""
    folder = folder_of(options.traces)
    kinds = ["numpy"] if options.plain else ["numba"] if options.compiled else KERNELS
    rows: list[dict[str, object]] = []
    for count in map(int, options.nodes.split(",")):
        found = [_in_a_process(folder, count, kind, options) for kind in kinds]
        if len({each["decided"] for each in found}) > 1:
            raise ValueError(f"on {count} nodes NumPy and numba decide differently")
        for kind, figures in zip(kinds, found, strict=True):
            row: dict[str, object] = {"test": "speed", "trace": options.trace, "policy": f"cumulo, {kind}"}
            rows.append(row | {"seed": options.seed, "nodes": count} | figures)
    return rows


def _in_a_process(folder: Path, count: int, kind: str, options: argparse.Namespace) -> dict[str, object]:
    words = [str(folder), options.trace, str(count), kind, str(options.seed), str(options.decisions)]
    done = subprocess.run([sys.executable, "-m", "bench.placement.speed", *words], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{count} nodes with {kind}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, object] = json.loads(done.stdout)
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Both streams, and how time and memory grow from one size to the next."""
    lines = [
        "decisions a CPU second on one core; memory that the fleet and its losses take",
        f"{'nodes':>8}  {'policy':<16}{'fill/s':>9}{'churn/s':>9}{'MiB':>8}{'bytes/node':>12}",
    ]
    for row in rows:
        each = row["memory_mib"] * _MIB / row["nodes"]
        figures = f"{row['fill_per_s']:>9,}{row['churn_per_s']:>9,}{row['memory_mib']:>8.1f}{each:>12,.0f}"
        lines.append(f"{row['nodes']:>8,}  {row['policy']:<16}{figures}")
    return "\n".join(lines)


def _main(words: Sequence[str]) -> None:
    folder, trace, count, kind, seed, decisions = words
    pods, nodes = read_pods(Path(folder), trace), fleet(read_nodes(Path(folder)), int(count))
    found = measure(pods, nodes, compiled=kind == "numba", seed=int(seed), decisions=int(decisions))
    print(json.dumps(found))


if __name__ == "__main__":
    _main(sys.argv[1:])
