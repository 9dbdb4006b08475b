"""Why an ask waits: per node and in sum, when it is expected to start, and the smallest change that starts it now.

Nothing here is paid for by runs that are placed: it is worked out when somebody asks.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.quantities import GIB, format_cpus, format_memory
from cumulo.placement.fit import admitted_kinds, choose, gpu_counts, places_on, possible_models
from cumulo.placement.order import hold_places
from cumulo.placement.refuse import Constraint, Refusal, refusal
from cumulo.placement.world import Waiting, World, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Refusals of the nodes that can't take one instance now, and which could.

    All instances of an ask get GPUs of one kind: `alike_now` and `alike_ever` count the nodes that could give the same.
    """

    refusals: tuple[Refusal, ...]
    fitting: tuple[str, ...]
    nodes_asked: int
    alike_now: int
    alike_ever: int

    @property
    def binding(self) -> Constraint | None:
        """The constraint that binds: of the least lasting kind among the nodes, the one most nodes fail."""
        if self.alike_now >= self.nodes_asked:
            return None
        if self.fitting:
            return Constraint.NODES
        pool = [r.constraint for r in self.refusals if not r.constraint.lasting]
        pool = pool or [r.constraint for r in self.refusals]
        return Counter(pool).most_common(1)[0][0] if pool else None

    @property
    def ever(self) -> bool:
        """Whether the nodes that are there could take the ask if all of it were free."""
        return self.alike_ever >= self.nodes_asked

    def counts(self) -> list[tuple[Constraint, int]]:
        """How many nodes fail each constraint first, most first."""
        return Counter(r.constraint for r in self.refusals).most_common()

    @property
    def fitting_text(self) -> str:
        """How many nodes could take an instance, and why that is not enough; empty when none could."""
        if not self.fitting:
            return ""
        could = f"{len(self.fitting)} of {len(self.refusals) + len(self.fitting)} nodes could take it"
        if len(self.fitting) >= self.nodes_asked > self.alike_now:
            return f"{could}, but no {self.nodes_asked} with GPUs of one kind"
        return f"{could}, {self.nodes_asked} asked"

    def summary(self) -> str:
        """One line: `1 of 2 nodes: 6 of 8 A100-80GB held, 2 free, 8 asked; 1 of 2 nodes: has 1 T4, A100:8 asked`."""
        total = len(self.refusals) + len(self.fitting)
        if not total:
            return "this cloud has no nodes"
        parts = [self.fitting_text] if self.fitting else []
        by_text = Counter((list(Constraint).index(r.constraint), r.text) for r in self.refusals)
        for (_, text), nodes in sorted(by_text.items(), key=lambda item: (-item[0][0], -item[1])):
            where = f"{nodes} of {total} nodes" if total > 1 else "the node"
            parts.append(f"{where}: {text}" if total > 1 else text)
        return "; ".join(parts)


def reasons(world: World, ask: Ask) -> Reasons:
    """Checks every node for one instance of the ask, at its smallest."""
    kinds = admitted_kinds(ask.gpu, world) if ask.gpu else None
    gpus = gpu_counts(ask, world)[-1]
    refusals: list[Refusal] = []
    fitting: list[str] = []
    now, ever = Counter[str](), Counter[str]()
    for use in world.nodes.values():
        refused = refusal(use, ask, kinds, gpus)
        if refused is None:
            fitting.append(use.id)
            now.update(spot.device_model for spot in places_on(use, ask, kinds, gpus))
        else:
            refusals.append(refused)
        if refused is None or not refused.constraint.lasting:
            ever.update(possible_models(use, ask, kinds, gpus))
    return Reasons(
        refusals=tuple(refusals),
        fitting=tuple(fitting),
        nodes_asked=ask.nodes,
        alike_now=max(now.values(), default=0),
        alike_ever=max(ever.values(), default=0),
    )


# How many moments at which something ends are played through: an estimate must not hold up whoever waits for it.
MOST_ROUNDS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """When a waiting run is expected to start (epoch seconds), or why nobody can tell."""

    at: float | None
    text: str


class _TooMuch(Exception):
    """The queue is too long to be played to its end."""


def starts(world: World, queue: Iterable[Waiting], now: float) -> Iterator[tuple[Waiting, float]]:
    """What of the queue can be told to start, in that order, and when at the latest if nothing more urgent arrives."""
    with suppress(_TooMuch):
        yield from _play(world.copy(), queue, now)


def expect(world: World, queue: Iterable[Waiting], target: Waiting, now: float) -> Expectation:
    """When `target`, which is in `queue`, starts at the latest, or why that can't be told."""
    trial = world.copy()
    try:
        for waiting, at in _play(trial, queue, now):
            if waiting.key == target.key:
                return Expectation(at=at, text="now" if at <= now else "when what runs now has ended, at the latest")
    except _TooMuch:
        return Expectation(at=None, text="can't tell: too much is ahead of it")
    return _untold(trial, target)


def _play(trial: World, queue: Iterable[Waiting], now: float) -> Iterator[tuple[Waiting, float]]:
    """Plays the queue forward in `trial`, as long as an end was declared: each unit as it starts, and when.

    What runs ends when it declared to, what waits is placed in order as room appears.
    """
    asks: dict[Ask, int] = {}
    numbered = [(waiting, asks.setdefault(waiting.ask, len(asks))) for waiting in in_order(queue)]
    ends = [(hold.until, n, hold.instance_id) for n, hold in enumerate(trial.holds.values()) if hold.until is not None]
    heapify(ends)
    serial = count(len(trial.holds))
    at = now
    for _ in range(MOST_ROUNDS):
        left: list[tuple[Waiting, int]] = []
        refused: set[int] = set()
        for waiting, ask in numbered:
            places = choose(trial, waiting.ask) if ask not in refused else None
            if places is None:
                refused.add(ask)
                left.append((waiting, ask))
                continue
            yield waiting, at
            until = at + waiting.duration_s if waiting.duration_s is not None else None
            for instance_id in hold_places(trial, waiting, places, until):
                if until is not None:
                    heappush(ends, (until, next(serial), instance_id))
        numbered = left
        if not ends or not left:
            return
        at = max(at, ends[0][0])
        while ends and ends[0][0] <= at:
            trial.release(heappop(ends)[2])
    raise _TooMuch


def _untold(trial: World, target: Waiting) -> Expectation:
    why = reasons(trial, target.ask)
    if not why.ever:
        return Expectation(at=None, text="never on the nodes that are there now")
    blocking = {r.node_id for r in why.refusals if not r.constraint.lasting}
    names = sorted({hold.run_name for hold in trial.holds.values() if hold.node_id in blocking and hold.until is None})
    if not names:
        return Expectation(at=None, text="can't tell: no node that could take it is ready")
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return Expectation(at=None, text=f"can't tell: {shown} declared no max_duration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """The smallest change to an ask with which it fits now. `change` maps a key of the run file to its new value."""

    text: str
    change: dict[str, str | int]
    ask: Ask


def suggest(world: World, ask: Ask) -> Suggestion | None:
    """Tries changes from the smallest to the largest, and only offers one that really fits."""
    for suggestion in _changes(world, ask):
        if choose(world, suggestion.ask) is not None:
            return suggestion
    return None


def _changes(world: World, ask: Ask) -> Iterable[Suggestion]:
    for milli in _less([use.cpus_free // 1000 * 1000 for use in world.nodes.values()], ask.cpus_milli):
        cpus = format_cpus(milli)
        text = f"ask for {cpus} CPU{'s' if milli > 1000 else ''}"
        yield Suggestion(text=text, change={"cpus": cpus}, ask=replace(ask, cpus_milli=milli))
    for size in _less([use.memory_free // GIB * GIB for use in world.nodes.values()], ask.memory_bytes):
        memory = format_memory(size)
        yield Suggestion(
            text=f"ask for {memory} of memory", change={"memory": memory}, ask=replace(ask, memory_bytes=size)
        )
    if ask.gpu is not None:
        yield from _gpu_changes(world, ask, ask.gpu)
    for nodes in range(min(ask.nodes - 1, len(world.nodes)), 0, -1):
        text = f"ask for {nodes} node{'s' if nodes > 1 else ''}"
        yield Suggestion(text=text, change={"num_nodes": nodes}, ask=replace(ask, nodes=nodes))


def _less(free: list[int], asked: int | None) -> list[int]:
    """What the nodes have free that is less than what was asked, most first; few, since each is tried."""
    return sorted({size for size in free if asked is not None and 0 < size < asked}, reverse=True)[:16]


def _gpu_changes(world: World, ask: Ask, gpu: GpuAsk) -> Iterable[Suggestion]:
    """Another kind with as many GPUs, then fewer GPUs, both from the gentlest to the harshest."""
    models = sorted(world.models() - (admitted_kinds(gpu, world) or frozenset()))
    for model in models if gpu.names else ():
        other = replace(gpu, names=(model,), memory_min=None, memory_max=None)
        yield _gpu_change(ask, other, f"ask for {other.canonical} instead of {gpu.canonical}")
    most = max((len(use.node.devices) for use in world.nodes.values()), default=0)
    fewer_counts = range(min(gpu.count_min - 1, most), 0, -1)
    for fewer in fewer_counts:
        smaller = replace(gpu, count_min=fewer, count_max=fewer)
        yield _gpu_change(ask, smaller, f"ask for {fewer} GPU{'s' if fewer > 1 else ''} instead of {gpu.count_min}")
    for model in models if gpu.names else ():
        for fewer in fewer_counts:
            other = GpuAsk(names=(model,), count_min=fewer, count_max=fewer)
            yield _gpu_change(ask, other, f"ask for {other.canonical} instead of {gpu.canonical}")


def _gpu_change(ask: Ask, gpu: GpuAsk, text: str) -> Suggestion:
    return Suggestion(text=text, change={"accelerators": gpu.canonical}, ask=replace(ask, gpu=gpu))
