"""Placements a second in a running server: from a queue over HTTP to instances that an engine was told to start.

The server is the real one, a process of its own on SQLite with durable commits; its nodes are of the `simulated`
engine, which starts nothing, so that what is measured is Cumulo alone. A queue is submitted (arrays and single runs, of
asks as in the openb trace) that comes after one run, the gate. Once that ends all may start. The clock runs from the
gate's end to the start of the last instance, as the engine saw it: by then each has been placed, committed, and asked
of the engine.
"""

import argparse
import os
import random
import time
from collections.abc import Iterator

from bench.box import Box
from bench.processes import cpu_seconds, pss_bytes
from cumulo.client.answers.runs import Run

# The 1,213 GPU nodes of the openb trace; G2 and G3, which it does not disclose, as kinds that exist.
FLEET = (
    *((549, "A10:8"), (2, "A10:1"), (387, "T4:2"), (17, "T4:4"), (131, "P100-16GB:2"), (3, "P100-16GB:1")),
    *((28, "V100-16GB:4"), (19, "V100-16GB:1"), (8, "V100-16GB:8"), (21, "V100-32GB:8"), (9, "V100-32GB:4")),
    (39, "A100-80GB:8"),
)
NODES = sum(count for count, _ in FLEET)

# What runs ask for, and how many in a thousand: about the trace's own mix of whole GPUs.
MIX = (
    (130, {"cpus": 8, "memory": 16}),
    (500, {"gpus": 1, "cpus": 6, "memory": 24}),
    (120, {"gpus": "T4:1", "cpus": 8, "memory": 32}),
    (120, {"gpus": "A10:1", "cpus": 8, "memory": 32}),
    (60, {"gpus": "P100:1", "cpus": 4, "memory": 16}),
    (40, {"gpus": 2, "cpus": 16, "memory": 64}),
    (20, {"gpus": 4, "cpus": 32, "memory": 128}),
    (10, {"gpus": 8, "cpus": 64, "memory": 256}),
)
ARRAY = 100  # indexes of one array, at most
GATE_S = 5.0  # the gate goes on for so long, and longer for every single run: all must be submitted by then
QUIET = 10  # seconds without a placement mean that no more will come


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=NODES, help=f"about so many nodes, in the trace's mix ({NODES})")
    parser.add_argument("--runs", type=int, default=4000, help="so many instances to place (4000)")
    parser.add_argument("--single", type=float, default=0.1, help="the part that are runs by themselves (0.1)")
    parser.add_argument("--seed", type=int, default=42, help="of the order in which they are submitted (42)")


def run(options: argparse.Namespace) -> list[dict[str, object]]:
    """One row: how many placements a second, and what one costs."""
    with Box(nodes=("--simulate", fleet(options.nodes))) as box:
        box.client.offers()  # answered once the nodes are known
        gate_s = GATE_S + 0.03 * options.runs * options.single
        gate = box.client.submit({"name": "gate", "run": "x", "env": {"CUMULO_SIMULATED_SECONDS": str(gate_s)}})
        began = time.perf_counter()
        runs = [box.client.submit(body | {"after": [gate.id]}) for body in queue(options)]
        submitted_s = time.perf_counter() - began
        if box.client.run(gate.id).ended:
            raise RuntimeError(f"the queue took {submitted_s:.1f} s to submit, longer than the gate's {gate_s:.1f} s")
        cpu, commits = cpu_seconds(box.pid), box.commits()
        opened = ended_at(box.client.wait(gate.id))
        wait_until_placed(box, runs)
        cpu, commits = cpu_seconds(box.pid) - cpu, box.commits() - commits
        placed, started = times(box, runs)
        return [
            {
                "test": "served",
                "trace": "openb-like",
                "policy": "cumulo",
                "seed": options.seed,
                "nodes": options.nodes,
                "placements": len(started),
                "asks": len(MIX),
                "requests": len(runs),
                "requests_per_s": round(len(runs) / submitted_s, 1),
                "placements_per_s": round(len(started) / (max(started) - opened), 1),
                "placed_at_per_s": round(len(placed) / max(1e-9, max(placed) - min(placed)), 1),
                "cpu_ms_per_placement": round(cpu / len(started) * 1e3, 3),
                "commits_per_placement": round(commits / len(started), 4),
                "server_mb": round(pss_bytes(box.pid) / 1e6, 1),
                "load": round(os.getloadavg()[0], 2),
            }
        ]


def table(rows: list[dict[str, object]]) -> str:
    return "\n".join(_in_words(row) for row in rows)


def _in_words(row: dict[str, object]) -> str:
    return (
        f"{row['placements']} placements on {row['nodes']} simulated nodes, {row['asks']} distinct asks:\n"
        f"  {row['placements_per_s']} a second, from free to start to started, durable (bar: 500)\n"
        f"  {row['cpu_ms_per_placement']} ms of the server's CPU and {row['commits_per_placement']} commits for one\n"
        f"  {row['requests']} requests, {row['requests_per_s']} a second; the server has {row['server_mb']} MB\n"
        f"  load average of the machine {row['load']}"
    )


def fleet(nodes: int) -> str:
    """An emulation of about `nodes` nodes, each shape's part as in the trace."""
    parts = [(max(1, round(count * nodes / NODES)), shape) for count, shape in FLEET]
    return ",".join(f"{count}x {shape}" for count, shape in parts)


def queue(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """What is submitted, `options.runs` instances in all, in the order of the seed."""
    bodies: list[dict[str, object]] = []
    before = 0
    for share, resources in MIX:
        count = options.runs * (before + share) // 1000 - options.runs * before // 1000
        before += share
        single = round(count * options.single)
        bodies += [{"name": "one", "run": "x", "resources": resources} for _ in range(single)]
        for start in range(0, count - single, ARRAY):
            last = min(ARRAY, count - single - start) - 1
            bodies.append({"name": "many", "run": "x", "resources": resources, "array": f"0-{last}"})
    random.Random(options.seed).shuffle(bodies)
    yield from bodies


def wait_until_placed(box: Box, runs: list[Run]) -> None:
    """Until all are, or no more are: the last of a queue may find nothing left. Seldom looks: that costs, too."""
    want, of_queue = sum(one.units for one in runs), {one.id for one in runs}
    placed, quiet = 0, 0
    while placed < want and quiet < QUIET:
        time.sleep(1.0)
        now = sum(row.units_active for row in box.client.runs() if row.id in of_queue)
        placed, quiet = now, quiet + 1 if now == placed else 0
    time.sleep(2.0)  # what was placed last is to start, and be seen to


def ended_at(one: Run) -> float:
    if one.ended_at is None:
        raise RuntimeError(f"{one.name} has not ended")
    return one.ended_at.timestamp()


def times(box: Box, runs: list[Run]) -> tuple[list[float], list[float]]:
    """When each instance was placed, and when it started."""
    units = [unit for one in runs for unit in box.client.units(one.id)]
    placed = [unit.placed_at.timestamp() for unit in units if unit.placed_at]
    started = [unit.started_at.timestamp() for unit in units if unit.started_at]
    if len(placed) != len(started):
        raise RuntimeError(f"{len(placed)} were placed, but {len(started)} started")
    return placed, started
