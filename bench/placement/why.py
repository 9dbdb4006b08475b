"""Whether what is said of a run that waits is true: when it starts, and what would start it now.

Published workloads are replayed as a queue: jobs come when the trace says, are decided on by the same `place` that the
cloud uses, and end after the time the trace says. Of those that do not start when they come, every n-th is asked about
once, at that moment: the range of its start is kept until it really starts, and the suggested change is put to the test
by running the pass with the changed ask, in the run's place in the queue and behind all others.

Nothing is known beforehand: durations, arrivals and the record of forecasts come from what has happened in the replay.

The traces declare no limits, so limits are made up as people make them: the true duration times 1, 2 or 4, rounded up
to a round time (`replay.limits`). A limit never ends a job. With `--limits none` nobody declares anything.

The naive estimate is that of `squeue --start`: the same queue played once, with everything taking all of its limit, and
nothing arriving. Tuned on TUNED_ON; the others were only looked at.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from statistics import median

from bench.placement import openb_queue
from bench.placement.replay import limits, waiting
from bench.placement.workloads import GPUS_A_NODE, Workload, read
from cumulo.domain.node import Device, Node
from cumulo.domain.quantities import GIB
from cumulo.placement.cast import Past, ranges
from cumulo.placement.durations import Durations, Left
from cumulo.placement.order import place
from cumulo.placement.record import Range
from cumulo.placement.reserve import held_places
from cumulo.placement.suggest import suggest
from cumulo.placement.traits import Traits, traits_of
from cumulo.placement.world import Waiting, World, in_order

HOUR = 3600.0
TUNED_ON = ("philly-ee9e8c", "muri-cluster", "muri-3")
DEFAULT = (*TUNED_ON, "muri-1", "muri-4", "philly-7f04ca", "philly-103959", "philly-0e4a51", "sia-saturn", "openb")
ASKED = 160  # of each workload, if so many wait


@dataclass(frozen=True, slots=True)
class Course:
    """What is replayed: who waits and for how long it will run, in the order of arrival, and the nodes."""

    name: str
    nodes: tuple[Node, ...]
    coming: list[tuple[Waiting, float]]


@dataclass(slots=True)
class Asked:
    """One run that waits: what was said of it, and what happened."""

    at: float
    raw: Range
    told: Range
    naive: float
    suggested: bool
    applied: bool
    started_at: float = inf

    @property
    def covered(self) -> bool:
        return self.told.low <= self.started_at <= self.told.high

    @property
    def error(self) -> float:
        return abs(self.told.likely - self.started_at)

    @property
    def naive_error(self) -> float:
        return abs(self.naive - self.started_at)


class Limit(Left):
    """All of the limit."""

    def at(self, level: float) -> float:
        return self.most


class Declared(Durations):
    """Takes what is declared for what will be."""

    def left(self, traits: Traits, age: float = 0.0) -> Left:
        return Limit(age, max(0.0, (traits.limit_s or inf) - age), (), 0.0)


@dataclass(slots=True)
class Replay:
    """One course through the queue. Every `every`-th run that waits is asked about."""

    course: Course
    every: int = 1
    past: Past = field(default_factory=Past)
    world: World = field(default_factory=World)
    pending: dict[str, Waiting] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    waited: int = 0

    def run(self) -> None:
        for node in self.course.nodes:
            self.world.see_node(node.name, node)
        coming = self.course.coming[::-1]
        seconds = {each.key[0]: took for each, took in coming}
        running: list[tuple[float, str, Waiting, list[str], float]] = []
        while coming or running:
            now = min(coming[-1][0].accepted_at if coming else inf, running[0][0] if running else inf)
            while running and running[0][0] <= now:
                _, _, ended, held, began = heappop(running)
                for name in held:
                    self.world.release(name)
                self.past.durations.learn(traits_of(ended), now - began)
            new: list[Waiting] = []
            while coming and coming[-1][0].accepted_at <= now:
                new.append(coming.pop()[0])
            self.pending.update((each.key[0], each) for each in new)
            for each, held in self._decide(now):
                heappush(running, (now + seconds[each.key[0]], each.key[0], each, held, now))
            for each in new:
                if each.key[0] in self.pending:
                    self._wait(each, now)
                self.past.arrivals.learn(each)

    def _decide(self, now: float) -> Iterator[tuple[Waiting, list[str]]]:
        queue = list(self.pending.values())
        for decision in place(self.world, queue, now=now, limit=len(queue)).decisions:
            each = decision.waiting
            del self.pending[each.key[0]]
            holds = held_places(each, decision.places, None if each.duration_s is None else now + each.duration_s)
            for hold in holds:
                self.world.hold(replace(hold, started_at=now))
            if (asked := self.asked.get(each.key[0])) is not None:
                asked.started_at = now
                self.past.record.learn(asked.raw, asked.at, now)
            yield each, [hold.instance_id for hold in holds]

    def _wait(self, mine: Waiting, now: float) -> None:
        self.waited += 1
        if self.waited % self.every:
            return
        queue = in_order(self.pending.values())
        raw = ranges(self.world, queue, now, self.past, mine.key)[mine.key]
        naive = ranges(self.world, queue, now, Past(durations=Declared()), mine.key, most_plays=1)[mine.key]
        found = suggest(self.world, queue, mine, now=now)
        self.asked[mine.key[0]] = Asked(
            at=now,
            raw=raw,
            told=self.past.record.correct(raw, now),
            naive=naive.likely,
            suggested=found is not None,
            applied=found is not None
            and all(self._starts(each, now) for each in (found.waiting, replace(found.waiting, accepted_at=now))),
        )

    def _starts(self, changed: Waiting, now: float) -> bool:
        queue = [*(each for each in self.pending.values() if each.key != changed.key), changed]
        decided = place(self.world, queue, now=now, limit=len(queue)).decisions
        return any(decision.waiting.key == changed.key for decision in decided)


def courses(traces: Path, name: str, *, declared: bool, seed: int) -> list[Course]:
    """The courses that a name stands for; of Sia's several workloads the first."""
    if name == "openb":
        nodes, pods = openb_queue.read(traces / "openb", seed)
        coming = pods
    else:
        workload = read(traces, name)[0]
        nodes, coming = _nodes(workload), _coming(workload, seed)
    if not declared:
        coming = [(replace(each, duration_s=None), took) for each, took in coming]
    return [Course(name, nodes, coming)]


def _coming(workload: Workload, seed: int) -> list[tuple[Waiting, float]]:
    declared = limits(workload.jobs, seed)
    return [
        (waiting(number, job, at=job.at, declared=limit), job.seconds)
        for number, (job, limit) in enumerate(zip(workload.jobs, declared, strict=True))
    ]


def _nodes(workload: Workload) -> tuple[Node, ...]:
    return tuple(_node(f"n{number:03}") for number in range(workload.nodes))


def _node(name: str) -> Node:
    devices = tuple(
        Device(uuid=f"{name}-{index}", index=index, model="V100-16GB", memory_bytes=16 * GIB)
        for index in range(GPUS_A_NODE)
    )
    return Node(name=name, cpus_milli=96_000, memory_bytes=512 * GIB, devices=devices)


def figures(asked: list[Asked]) -> dict[str, object]:
    """Over all that were asked about and of which anything could be told."""
    told = [each for each in asked if each.told.likely < inf]
    suggested = [each for each in asked if each.suggested]
    naive = [each.naive_error for each in told if each.naive < inf]
    return {
        "asked": len(asked),
        "told_pct": _part(len(told), len(asked)),
        "covered_pct": _part(sum(each.covered for each in told), len(told)),
        "early_pct": _part(sum(each.started_at < each.told.low for each in told), len(told)),
        "late_pct": _part(sum(each.started_at > each.told.high for each in told), len(told)),
        "median_wait_h": _hours(each.started_at - each.at for each in told),
        "median_width_h": _hours(each.told.high - each.told.low for each in told),
        "median_error_h": _hours(each.error for each in told),
        "naive_median_error_h": _hours(naive),
        "suggested_pct": _part(len(suggested), len(asked)),
        "applied_pct": _part(sum(each.applied for each in suggested), len(suggested)),
    }


def _part(some: int, of: int) -> float | None:
    return round(100 * some / of, 1) if of else None


def _hours(seconds: "Iterator[float] | list[float]") -> float | None:
    found = list(seconds)
    return round(median(found) / HOUR, 2) if found else None


# ---- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--traces", type=Path, required=True, metavar="DIR", help="the folder with jct-workloads, philly"
    )
    parser.add_argument("--workloads", default=",".join(DEFAULT), metavar="NAME,…", help="of `queue`, and openb")
    parser.add_argument("--limits", choices=("declared", "none"), default="declared", help="what people declare")
    parser.add_argument("--asked", type=int, default=ASKED, metavar="N", help="runs asked about in each workload")
    parser.add_argument("--seed", type=int, default=1, help="of the limits")


def run(options: argparse.Namespace) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    everybody: list[Asked] = []
    for name in options.workloads.split(","):
        for course in courses(options.traces, name, declared=options.limits == "declared", seed=options.seed):
            dry = Replay(course, every=len(course.coming) + 1)
            dry.run()
            replay = Replay(course, every=max(1, dry.waited // options.asked))
            replay.run()
            rows.append(_row(course.name, options, list(replay.asked.values()), waited=dry.waited))
            everybody += replay.asked.values()
    return [*rows, _row("all", options, everybody)]


def _row(trace: str, options: argparse.Namespace, asked: list[Asked], **more: object) -> dict[str, object]:
    policy = "cumulo" if options.limits == "declared" else "cumulo, no limits"
    return {"test": "why", "trace": trace, "policy": policy, "seed": options.seed, **more, **figures(asked)}


COLUMNS = {
    "trace": "trace",
    "waited": "waited",
    "asked": "asked",
    "covered_pct": "covered %",
    "early_pct": "early %",
    "late_pct": "late %",
    "median_wait_h": "wait h",
    "median_width_h": "width h",
    "median_error_h": "error h",
    "naive_median_error_h": "naive error h",
    "suggested_pct": "suggested %",
    "applied_pct": "applied %",
}


def table(rows: list[dict[str, object]]) -> str:
    """Medians; `covered` is meant to be 80, `early` and `late` are starts before and after the range."""
    cells = [list(COLUMNS.values())]
    cells += [["" if row.get(key) is None else str(row[key]) for key in COLUMNS] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
