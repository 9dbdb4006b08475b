"""Why an ask waits: per node and in sum, when it is expected to start, and the smallest change that starts it now.

Nothing here is paid for by runs that are placed: it is worked out when somebody asks.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count

from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.quantities import format_cpus, format_memory
from cumulo.placement.fit import Constraint, Refusal, admitted_kinds, choose, gpu_counts, refusal
from cumulo.placement.order import hold_places
from cumulo.placement.world import Waiting, World, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Refusals of the nodes that can't take one instance now, and how many could."""

    refusals: tuple[Refusal, ...]
    fitting: tuple[str, ...]
    nodes_asked: int

    @property
    def binding(self) -> Constraint | None:
        """The constraint that binds: of the least lasting kind among the nodes, the one most nodes fail."""
        if len(self.fitting) >= self.nodes_asked:
            return None
        if self.fitting:
            return Constraint.NODES
        pool = [r.constraint for r in self.refusals if not r.constraint.lasting]
        pool = pool or [r.constraint for r in self.refusals]
        return Counter(pool).most_common(1)[0][0] if pool else None

    @property
    def ever(self) -> bool:
        """Whether the nodes that are there could take the ask if all of it were free."""
        possible = sum(not r.constraint.lasting for r in self.refusals) + len(self.fitting)
        return possible >= self.nodes_asked

    def counts(self) -> list[tuple[Constraint, int]]:
        """How many nodes fail each constraint first, most first."""
        return Counter(r.constraint for r in self.refusals).most_common()

    def summary(self) -> str:
        """One line: `1 of 2 nodes: 6 of 8 A100-80GB held, 2 free, 8 asked; 1 of 2 nodes: has 1 T4, A100:8 asked`."""
        total = len(self.refusals) + len(self.fitting)
        if not total:
            return "this cloud has no nodes"
        parts = (
            [f"{len(self.fitting)} of {total} nodes could take it, {self.nodes_asked} asked"] if self.fitting else []
        )
        by_text = Counter((list(Constraint).index(r.constraint), r.text) for r in self.refusals)
        for (_, text), nodes in sorted(by_text.items(), key=lambda item: (-item[0][0], -item[1])):
            where = f"{nodes} of {total} nodes" if total > 1 else "the node"
            parts.append(f"{where}: {text}" if total > 1 else text)
        return "; ".join(parts)


def reasons(world: World, ask: Ask) -> Reasons:
    """Checks every node for one instance of the ask, at its smallest."""
    kinds = admitted_kinds(ask.gpu, world) if ask.gpu else None
    gpus = gpu_counts(ask, world)[-1]
    found = [(use.id, refusal(use, ask, kinds, gpus)) for use in world.nodes.values()]
    return Reasons(
        refusals=tuple(r for _, r in found if r is not None),
        fitting=tuple(node for node, r in found if r is None),
        nodes_asked=ask.nodes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """When a waiting run is expected to start (epoch seconds), or why nobody can tell."""

    at: float | None
    text: str


def expect(world: World, queue: Iterable[Waiting], target: Waiting, now: float) -> Expectation:
    """Plays the queue forward: what runs ends when it declared to, what waits is placed in order as room appears.

    Declared durations are limits, so this is when it starts at the latest if nothing more urgent arrives.
    """
    trial = world.copy()
    ends = [(hold.until, n, hold.instance_id) for n, hold in enumerate(world.holds.values()) if hold.until is not None]
    heapify(ends)
    serial = count(len(world.holds))
    pending = in_order(queue)
    at = now
    while True:
        placed = _fill(trial, pending, target, at)
        if placed is None:
            return Expectation(at=at, text="now" if at <= now else "when what runs now has ended, at the latest")
        for waiting, until, ids in placed:
            pending.remove(waiting)
            if until is not None:
                for instance_id in ids:
                    heappush(ends, (until, next(serial), instance_id))
        if not ends:
            return _untold(trial, target)
        at = max(at, ends[0][0])
        while ends and ends[0][0] <= at:
            trial.release(heappop(ends)[2])


def _fill(
    trial: World, pending: list[Waiting], target: Waiting, at: float
) -> list[tuple[Waiting, float | None, list[str]]] | None:
    """Places what fits at `at`, in order. None once the target itself is placed."""
    refused: set[Ask] = set()
    placed: list[tuple[Waiting, float | None, list[str]]] = []
    for waiting in pending:
        if waiting.ask in refused:
            continue
        places = choose(trial, waiting.ask)
        if places is None:
            refused.add(waiting.ask)
            continue
        if waiting.key == target.key:
            return None
        until = at + waiting.duration_s if waiting.duration_s is not None else None
        before = set(trial.holds)
        hold_places(trial, waiting, places, until)
        placed.append((waiting, until, sorted(set(trial.holds) - before)))
    return placed


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
    roomiest_cpus = max((use.cpus_free for use in world.nodes.values()), default=0)
    roomiest_memory = max((use.memory_free for use in world.nodes.values()), default=0)
    if ask.cpus_milli is not None and 1000 <= roomiest_cpus < ask.cpus_milli:
        cpus = format_cpus(roomiest_cpus // 1000 * 1000)
        yield Suggestion(text=f"ask for {cpus} CPUs", change={"cpus": cpus}, ask=_with_cpus(ask, roomiest_cpus))
    if ask.memory_bytes is not None and (1 << 30) <= roomiest_memory < ask.memory_bytes:
        memory = roomiest_memory >> 30 << 30
        text = format_memory(memory)
        yield Suggestion(
            text=f"ask for {text} of memory", change={"memory": text}, ask=replace(ask, memory_bytes=memory)
        )
    if ask.gpu is not None:
        yield from _gpu_changes(world, ask, ask.gpu)
    for nodes in range(ask.nodes - 1, 0, -1):
        text = f"ask for {nodes} node{'s' if nodes > 1 else ''}"
        yield Suggestion(text=text, change={"num_nodes": nodes}, ask=replace(ask, nodes=nodes))


def _with_cpus(ask: Ask, milli: int) -> Ask:
    return replace(ask, cpus_milli=milli // 1000 * 1000)


def _gpu_changes(world: World, ask: Ask, gpu: GpuAsk) -> Iterable[Suggestion]:
    """Another kind with as many GPUs, then fewer GPUs, both from the gentlest to the harshest."""
    models = sorted(world.models() - (admitted_kinds(gpu, world) or frozenset()))
    for model in models if gpu.names else ():
        other = replace(gpu, names=(model,), memory_min=None, memory_max=None)
        yield _gpu_change(ask, other, f"ask for {other.canonical} instead of {gpu.canonical}")
    for fewer in range(gpu.count_min - 1, 0, -1):
        smaller = replace(gpu, count_min=fewer, count_max=fewer)
        yield _gpu_change(ask, smaller, f"ask for {fewer} GPU{'s' if fewer > 1 else ''} instead of {gpu.count_min}")
    for model in models if gpu.names else ():
        for fewer in range(gpu.count_min - 1, 0, -1):
            other = GpuAsk(names=(model,), count_min=fewer, count_max=fewer)
            yield _gpu_change(ask, other, f"ask for {other.canonical} instead of {gpu.canonical}")


def _gpu_change(ask: Ask, gpu: GpuAsk, text: str) -> Suggestion:
    return Suggestion(text=text, change={"accelerators": gpu.canonical}, ask=replace(ask, gpu=gpu))
