"""Whether and where an ask fits: the constraints, one after another, and the choice among nodes that pass.

Constraints are checked in the order of `Constraint`, from what can never change to what is only held now, so that the
first one that fails is the one worth telling a person.
"""

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from cumulo.catalog.kinds import resolve
from cumulo.domain.ask import DEFAULT_CPUS_MILLI, DEFAULT_MEMORY_BYTES, Ask, GpuAsk
from cumulo.domain.node import Device, NodeState
from cumulo.domain.quantities import GIB, format_cpus, format_memory
from cumulo.placement.world import NodeUse, World


class Constraint(StrEnum):
    """What can keep an ask from a node, from the most to the least lasting."""

    GPU_KIND = "gpu_kind"
    GPU_TOTAL = "gpu_total"
    CPU_TOTAL = "cpu_total"
    MEMORY_TOTAL = "memory_total"
    NODE_STATE = "node_state"
    GPU_HEALTH = "gpu_health"
    GPU_HELD = "gpu_held"
    CPU_HELD = "cpu_held"
    MEMORY_HELD = "memory_held"
    NODES = "nodes"  # enough for one instance here, but not enough such nodes

    @property
    def lasting(self) -> bool:
        """Whether waiting can't help: only another ask or another machine can."""
        return self in (
            Constraint.GPU_KIND,
            Constraint.GPU_TOTAL,
            Constraint.CPU_TOTAL,
            Constraint.MEMORY_TOTAL,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why one node can't take one instance of an ask now."""

    node_id: str
    constraint: Constraint
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One instance's place: a node and what it takes of it."""

    node_id: str
    device_uuids: tuple[str, ...]
    device_model: str
    cpus_milli: int
    memory_bytes: int


# GPUs, memory and CPUs left over, and the node's id.
Score = tuple[int, int, int, str]


@dataclass(frozen=True, slots=True)
class _Need:
    """What one instance takes of one node for a given number of GPUs there."""

    cpus_milli: int
    memory_bytes: int


def admitted_kinds(gpu: GpuAsk, world: World) -> frozenset[str] | None:
    """The GPU kinds an ask admits by name; None for any."""
    if not gpu.names:
        return None
    present = world.models()
    return frozenset[str]().union(*(resolve(name, present=present) for name in gpu.names))


def _matching(use: NodeUse, gpu: GpuAsk, kinds: frozenset[str] | None) -> list[Device]:
    return [
        device
        for device in use.node.devices
        if (kinds is None or device.model in kinds) and gpu.admits_memory(device.memory_bytes)
    ]


def _need(use: NodeUse, ask: Ask, gpus: int) -> _Need:
    """CPUs and memory for one instance here: what was asked, else its GPUs' share of the node.

    The default share is cut to what is free, down to one CPU and 2 GiB a GPU: nobody asked for it, so it must not be
    what a run waits for.
    """
    node, total = use.node, len(use.node.devices)
    if gpus and total:
        cpus = min(node.cpus_milli * gpus // total, max(use.cpus_free, min(1000, node.cpus_milli)))
        memory = min(node.memory_bytes * gpus // total, max(use.memory_free, 2 * GIB * gpus))
    else:
        cpus, memory = min(DEFAULT_CPUS_MILLI, node.cpus_milli), min(DEFAULT_MEMORY_BYTES, node.memory_bytes)
    return _Need(
        cpus if ask.cpus_milli is None else ask.cpus_milli,
        memory if ask.memory_bytes is None else ask.memory_bytes,
    )


def refusal(use: NodeUse, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> Refusal | None:
    """The first constraint that keeps one instance with `gpus` GPUs from this node, or None if it fits now."""
    found = _never(use, ask, kinds, gpus) or _not_now(use, ask, kinds, gpus)
    return Refusal(node_id=use.id, constraint=found[0], text=found[1]) if found else None


def _never(use: NodeUse, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> tuple[Constraint, str] | None:
    node, need = use.node, _need(use, ask, gpus)
    if ask.gpu and gpus:
        matching = _matching(use, ask.gpu, kinds)
        if not matching:
            return Constraint.GPU_KIND, f"has {_inventory(use)}, {_wanted(ask.gpu)} asked"
        most = max(_count_by_model(matching).values())
        if most < gpus:
            return Constraint.GPU_TOTAL, f"has {_counts(matching)}, {gpus} asked on one node"
    if need.cpus_milli > node.cpus_milli:
        text = f"has {format_cpus(node.cpus_milli)} CPUs, {format_cpus(need.cpus_milli)} asked"
        return Constraint.CPU_TOTAL, text
    if need.memory_bytes > node.memory_bytes:
        text = f"has {format_memory(node.memory_bytes)} of memory, {format_memory(need.memory_bytes)} asked"
        return Constraint.MEMORY_TOTAL, text
    return None


def _not_now(use: NodeUse, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> tuple[Constraint, str] | None:
    need = _need(use, ask, gpus)
    if use.node.state is not NodeState.READY:
        return Constraint.NODE_STATE, use.blocked
    if ask.gpu and gpus:
        matching = _matching(use, ask.gpu, kinds)
        usable = [device for device in matching if use.usable(device)]
        free = [device for device in usable if device.uuid not in use.held_by]
        if max(_count_by_model(usable).values(), default=0) < gpus:
            return Constraint.GPU_HEALTH, _unusable(use, matching, gpus)
        if max(_count_by_model(free).values(), default=0) < gpus:
            held = len(usable) - len(free)
            text = f"{held} of {_counts(usable)} held, {len(free)} free, {gpus} asked"
            return Constraint.GPU_HELD, text
    if need.cpus_milli > use.cpus_free:
        total, free_cpus = format_cpus(use.node.cpus_milli), format_cpus(max(0, use.cpus_free))
        text = f"{free_cpus} of {total} CPUs free, {format_cpus(need.cpus_milli)} asked"
        return Constraint.CPU_HELD, text
    if need.memory_bytes > use.memory_free:
        total, free_memory = format_memory(use.node.memory_bytes), format_memory(max(0, use.memory_free))
        text = f"{free_memory} of {total} of memory free, {format_memory(need.memory_bytes)} asked"
        return Constraint.MEMORY_HELD, text
    return None


def choose(world: World, ask: Ask) -> tuple[Place, ...] | None:
    """Places for all instances of an ask, one a node, all of one GPU kind; None when they don't all fit now.

    A range of counts takes as many as fit. Among nodes that fit, the fullest is taken (best fit), so that whole nodes
    stay free for those who need them; an ask without GPUs goes where no GPUs are, if it can.
    """
    kinds = admitted_kinds(ask.gpu, world) if ask.gpu else None
    for gpus in gpu_counts(ask, world):
        by_model: dict[str, list[tuple[Score, Place]]] = defaultdict(list)
        for use in world.nodes.values():
            if refusal(use, ask, kinds, gpus) is None:
                for place in places_on(use, ask, kinds, gpus):
                    by_model[place.device_model].append((_score(use, ask, gpus), place))
        enough = [
            (model, sorted(found, key=_by_score)[: ask.nodes])
            for model, found in by_model.items()
            if len(found) >= ask.nodes
        ]
        if enough:
            _, best = min(enough, key=_by_scores_then_model)
            return tuple(place for _, place in best)
    return None


def _by_score(scored: tuple[Score, Place]) -> Score:
    return scored[0]


def _by_scores_then_model(found: tuple[str, list[tuple[Score, Place]]]) -> tuple[list[tuple[int, int, int]], str]:
    """Node names decide between equal nodes only, never between kinds."""
    model, scored = found
    return [score[:3] for score, _ in scored], model


def gpu_counts(ask: Ask, world: World) -> list[int]:
    """How many GPUs per node to try, most first; [0] without GPUs."""
    if ask.gpu is None:
        return [0]
    largest = max((len(use.node.devices) for use in world.nodes.values()), default=0)
    return list(range(max(ask.gpu.count_min, min(ask.gpu.count_max, largest)), ask.gpu.count_min - 1, -1))


def possible_models(use: NodeUse, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> list[str]:
    """The GPU kinds of which this node has enough, free or not; [""] for an ask without GPUs."""
    if not (ask.gpu and gpus):
        return [""]
    return [model for model, count in _count_by_model(_matching(use, ask.gpu, kinds)).items() if count >= gpus]


def places_on(use: NodeUse, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> list[Place]:
    """One place for each GPU kind of this node that has enough free devices."""
    need = _need(use, ask, gpus)
    free: dict[str, list[Device]] = defaultdict(list)
    if ask.gpu and gpus:
        for device in _matching(use, ask.gpu, kinds):
            if use.usable(device) and device.uuid not in use.held_by:
                free[device.model].append(device)
    else:
        free[""] = []
    return [
        Place(
            node_id=use.id,
            device_uuids=tuple(device.uuid for device in devices[:gpus]),
            device_model=model,
            cpus_milli=need.cpus_milli,
            memory_bytes=need.memory_bytes,
        )
        for model, devices in sorted(free.items())
        if len(devices) >= gpus
    ]


def _score(use: NodeUse, ask: Ask, gpus: int) -> Score:
    """Smaller is better: GPUs left over, then memory left over, then CPUs; the id makes it the same every time."""
    need = _need(use, ask, gpus)
    gpus_left = len(use.node.devices) - (len(use.held_by) + gpus if ask.gpu else 0)
    return gpus_left, use.memory_free - need.memory_bytes, use.cpus_free - need.cpus_milli, use.id


def _count_by_model(devices: list[Device]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for device in devices:
        counts[device.model] += 1
    return counts


def _counts(devices: list[Device]) -> str:
    return " + ".join(f"{count} {model}" for model, count in sorted(_count_by_model(devices).items())) or "no GPU"


def _inventory(use: NodeUse) -> str:
    return _counts(list(use.node.devices))


def _wanted(gpu: GpuAsk) -> str:
    return gpu.canonical


def _unusable(use: NodeUse, matching: list[Device], gpus: int) -> str:
    bad = [device for device in matching if not use.usable(device)]
    why = "; ".join(
        f"GPU {device.index} " + (f"used by {device.foreign}" if device.foreign else f"{device.health}")
        for device in bad[:4]
    )
    return f"{len(bad)} of {_counts(matching)} can't be used ({why}), {gpus} asked"
