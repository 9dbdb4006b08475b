"""Where an ask fits, and the choice among the nodes that can take it. Why one can't is told by `refuse`."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cumulo.catalog.kinds import resolve
from cumulo.domain.ask import DEFAULT_CPUS_MILLI, DEFAULT_MEMORY_BYTES, Ask, GpuAsk
from cumulo.domain.node import Device, NodeState
from cumulo.domain.sharing import WHOLE_MILLI, Isolation, Slice, device_uuids
from cumulo.placement.fleet.losses import LEAST_CPUS, LEAST_MEMORY, LEAST_SHARE_CPUS, LEAST_SHARE_MEMORY
from cumulo.placement.index import Spot, index_of
from cumulo.placement.slicing import Part, part_of, take
from cumulo.placement.world import NodeUse, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One instance's place: a node and what it takes of it."""

    node_id: str
    slices: tuple[Slice, ...]
    device_model: str
    cpus_milli: int
    memory_bytes: int

    @property
    def device_uuids(self) -> tuple[str, ...]:
        """The devices of which it takes something, each once."""
        return device_uuids(self.slices)


# Empty devices that are opened, milli left over on the devices that are taken, devices, memory and CPUs left over on
# the node, and the node's id.
Score = tuple[int, int, int, int, int, str]


@dataclass(frozen=True, slots=True)
class Need:
    """What one instance takes of one node besides GPUs."""

    cpus_milli: int
    memory_bytes: int


def choose(world: World, ask: Ask) -> tuple[Place, ...] | None:
    """Places for all instances of an ask, one a node, all of one GPU kind; None when they don't all fit now.

    A range of counts takes as many as fit. Where that costs those who come next the least is worked out by the world's
    index; instances of a gang go near one another. MIG instances go where the least is left over.
    """
    kinds = admitted_kinds(ask.gpu, world) if ask.gpu else None
    mig = ask.gpu is not None and ask.gpu.mig_profile is not None
    for gpus in gpu_counts(ask, world):
        found = None if mig else _by_index(world, ask, kinds, gpus)
        if found is None and (mig or index_of(world).odd):
            found = _walk(world, ask, kinds, gpus)
        if found is not None:
            return found
    return None


def prepare(world: World, asks: Iterable[Ask]) -> None:
    """Works out what asks cost in a world that is about to be copied, so that no copy has to do it for itself."""
    index = index_of(world)
    for ask in asks:
        if ask.gpu is None or ask.gpu.mig_profile is None:
            kinds = admitted_kinds(ask.gpu, world) if ask.gpu else None
            index.warm(ask, gpu_counts(ask, world)[0], kinds)


def _by_index(world: World, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> tuple[Place, ...] | None:
    if not isolates(ask):
        return None
    index = index_of(world)
    if ask.nodes > 1:
        spots = index.gang(ask, gpus, kinds, world)
    else:
        spot = index.best(ask, gpus, kinds)
        spots = [spot] if spot else None
    return (
        None if spots is None else tuple(_place_at(world.nodes[spot.node_id], ask, kinds, gpus, spot) for spot in spots)
    )


def _place_at(use: NodeUse, ask: Ask, kinds: frozenset[str] | None, gpus: int, spot: Spot) -> Place:
    if spot.device is None or ask.gpu is None or not ask.gpu.fraction:
        return next(place for place in places_on(use, ask, kinds, gpus) if place.device_model == spot.model)
    part = next(part for part in parts_of(use, ask, kinds, gpus) if part.device.uuid == spot.device.uuid)
    need = need_of(use, ask, [part], gpus)
    return Place(
        node_id=use.id,
        slices=(part.slice,),
        device_model=spot.model,
        cpus_milli=need.cpus_milli,
        memory_bytes=need.memory_bytes,
    )


def _walk(world: World, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> tuple[Place, ...] | None:
    """Best fit by looking at every node."""
    by_model: dict[str, list[tuple[Score, Place]]] = defaultdict(list)
    for use in world.nodes.values():
        for place in places_on(use, ask, kinds, gpus):
            by_model[place.device_model].append((_score(use, place), place))
    enough = [
        (model, sorted(found, key=_by_score)[: ask.nodes])
        for model, found in by_model.items()
        if len(found) >= ask.nodes
    ]
    if not enough:
        return None
    _, best = min(enough, key=_by_scores_then_model)
    return tuple(place for _, place in best)


def _by_score(scored: tuple[Score, Place]) -> Score:
    return scored[0]


def _by_scores_then_model(found: tuple[str, list[tuple[Score, Place]]]) -> tuple[list[tuple[int, ...]], str]:
    """Node names decide between equal nodes only, never between kinds."""
    model, scored = found
    return [score[:-1] for score, _ in scored], model


def _score(use: NodeUse, place: Place) -> Score:
    """Smaller is better; the id makes it the same every time."""
    opened = milli_left = 0
    for uuid in place.device_uuids:
        held = use.devices.get(uuid)
        opened += held is None
        milli_left += held.milli_free if held else WHOLE_MILLI
    milli_left -= sum(each.milli for each in place.slices)
    devices_left = len(use.node.devices) - (len(use.devices) + opened if place.slices else 0)
    memory_left, cpus_left = use.memory_free - place.memory_bytes, use.cpus_free - place.cpus_milli
    return opened, milli_left, devices_left, memory_left, cpus_left, use.id


def admitted_kinds(gpu: GpuAsk, world: World) -> frozenset[str] | None:
    """The GPU kinds an ask admits by name; None for any."""
    if not gpu.names:
        return None
    present = world.models()
    return frozenset[str]().union(*(resolve(name, present=present) for name in gpu.names))


def gpu_counts(ask: Ask, world: World) -> list[int]:
    """How many GPUs (of a MIG profile: instances) per node to try, most first; [0] without GPUs."""
    gpu = ask.gpu
    if gpu is None:
        return [0]
    if gpu.count_min == gpu.count_max:
        return [gpu.count_min]
    each = 1 if gpu.mig_profile is None else MOST_MIG
    largest = each * max((len(use.node.devices) for use in world.nodes.values()), default=0)
    return list(range(max(gpu.count_min, min(gpu.count_max, largest)), gpu.count_min - 1, -1))


# No GPU is cut into more MIG instances than this.
MOST_MIG: Final = 8


def matching(use: NodeUse, gpu: GpuAsk, kinds: frozenset[str] | None) -> list[Device]:
    """The devices of a node that are of a kind and size that will do, held or not, however they are shared."""
    return [
        device
        for device in use.node.devices
        if (kinds is None or device.model in kinds)
        and gpu.admits_memory(device.memory_bytes)
        and (gpu.slice_memory or 0) <= device.memory_bytes
    ]


def parts_of(use: NodeUse, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> list[Part]:
    """What an ask would take of each device of a node that it may take something of, whoever holds it now."""
    if ask.gpu is None or not gpus or not isolates(ask):
        return []
    parts = (part_of(use, device, ask.gpu) for device in matching(use, ask.gpu, kinds))
    return [part for part in parts if part is not None]


def isolates(ask: Ask) -> bool:
    """Whether what is asked for isolates as the ask says it must."""
    return ask.isolation is Isolation.ANY or ask.gpu is None or not ask.gpu.fraction


def need_of(use: NodeUse, ask: Ask, parts: list[Part], gpus: int) -> Need:
    """CPUs and memory for one instance here: what was asked, else its GPUs' share of the node.

    The default share is cut to what is free, down to one CPU and 2 GiB a GPU: nobody asked for it, so it must not be
    what a run waits for. A part of a GPU brings that part of a GPU's share.
    """
    node, total = use.node, WHOLE_MILLI * len(use.node.devices)
    if gpus and parts:
        milli = gpus * min(part.slice.milli for part in parts)
        cpus = min(max(LEAST_SHARE_CPUS, node.cpus_milli * milli // total), max(use.cpus_free, LEAST_CPUS))
        memory = min(
            max(LEAST_SHARE_MEMORY, node.memory_bytes * milli // total), max(use.memory_free, LEAST_MEMORY * gpus)
        )
    else:
        cpus, memory = DEFAULT_CPUS_MILLI, DEFAULT_MEMORY_BYTES
    return Need(
        min(cpus, node.cpus_milli) if ask.cpus_milli is None else ask.cpus_milli,
        min(memory, node.memory_bytes) if ask.memory_bytes is None else ask.memory_bytes,
    )


def possible_models(use: NodeUse, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> list[str]:
    """The GPU kinds of which this node has enough, free or not; [""] for an ask without GPUs."""
    if not (ask.gpu and gpus):
        return [""]
    return [model for model, count in most_by_model(parts_of(use, ask, kinds, gpus)).items() if count >= gpus]


def most_by_model(parts: list[Part]) -> dict[str, int]:
    """How many slices as asked the devices of each kind would take if they were empty."""
    counts: dict[str, int] = defaultdict(int)
    for part in parts:
        counts[part.device.model] += part.most
    return counts


def places_on(use: NodeUse, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> list[Place]:
    """One place for each GPU kind of this node that has room for one instance now; none where it does not fit."""
    parts = parts_of(use, ask, kinds, gpus)
    need = need_of(use, ask, parts, gpus)
    if use.node.state is not NodeState.READY or need.cpus_milli > use.cpus_free or need.memory_bytes > use.memory_free:
        return []
    by_model: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        if use.usable(part.device):
            by_model[part.device.model].append(part)
    if not (ask.gpu and gpus):
        by_model[""] = []
    found = [(model, take(use, of_kind, gpus)) for model, of_kind in sorted(by_model.items())]
    return [
        Place(
            node_id=use.id,
            slices=slices,
            device_model=model,
            cpus_milli=need.cpus_milli,
            memory_bytes=need.memory_bytes,
        )
        for model, slices in found
        if slices is not None
    ]
