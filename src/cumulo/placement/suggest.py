"""The smallest change with which a waiting run starts now.

Changes are tried from the smallest to the largest, and one counts as smaller if it changes less of what the run gets
from its GPUs: first what is beside them (CPUs, memory, hard isolation), then how they are had (a shorter limit, spot),
then another kind of as many, then a part of one, then fewer, then fewer nodes, at last fewer of another kind.

To fit somewhere is not enough. Others may have a better claim to the room, it may be kept for the head of the queue, a
project may be over its quota: so every change is put to the pass that would decide, and only one that it starts is
offered. It is tried both in the run's place in the queue and behind all others, where submitting it anew would put it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cumulo.catalog.mig import mig_profiles
from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.quantities import GIB, format_cpus, format_duration, format_memory, parse_duration
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import WHOLE_MILLI, Isolation
from cumulo.placement.fit import admitted_kinds, choose, matching
from cumulo.placement.order import Pass, place
from cumulo.placement.slicing import share_free
from cumulo.placement.world import Waiting, World

Decide = Callable[[World, Sequence[Waiting]], Pass]

# How many changes are put to a pass, and how many sizes of one thing are looked at: nobody is to wait for advice.
MOST_PASSES: Final = 16
MOST_SIZES: Final = 16
# A limit shorter than this, or than half of what was declared, is no offer.
LEAST_LIMIT_S: Final = 60.0
_PARTS: Final = (750, 500, 250, 125)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change in words, as keys of the run file with their new values, and what would wait instead."""

    text: str
    change: dict[str, str | int | bool]
    waiting: Waiting

    @property
    def ask(self) -> Ask:
        return self.waiting.ask


def suggest(
    world: World, queue: Iterable[Waiting], target: Waiting, *, now: float, decide: Decide | None = None
) -> Suggestion | None:
    """The smallest change with which `target` starts now, though all of `queue` waits too; None if none does or has to.

    `decide` is the pass that would be run, on a world and all that waits; without, `place` as it is by default.
    """
    decide = decide or (lambda trial, units: place(trial, units, now=now))
    others = [waiting for waiting in queue if waiting.key != target.key]
    passes = 0
    if _starts(world, others, target, decide):
        return None
    for suggestion in _changes(world, [*others, target], target, now, decide):
        if choose(world, suggestion.ask) is None:
            continue
        passes += 1
        if passes > MOST_PASSES:
            return None
        anew = replace(suggestion.waiting, accepted_at=max(now, target.accepted_at))
        if all(_starts(world, others, changed, decide) for changed in (suggestion.waiting, anew)):
            return suggestion
    return None


def _starts(world: World, others: list[Waiting], changed: Waiting, decide: Decide) -> bool:
    return any(decision.waiting.key == changed.key for decision in decide(world, [*others, changed]).decisions)


def _changes(
    world: World, queue: Sequence[Waiting], target: Waiting, now: float, decide: Decide
) -> Iterator[Suggestion]:
    ask = target.ask
    yield from _beside(world, target)
    yield from _purchase(world, queue, target, now, decide)
    if ask.gpu is not None:
        yield from _other_kinds(world, target, ask.gpu, [ask.gpu.count_min])
        yield from _parts(world, target, ask.gpu)
        yield from _fewer(world, target, ask.gpu)
    for nodes in range(min(ask.nodes - 1, len(world.nodes)), 0, -1):
        text = f"ask for {nodes} node{'s' if nodes > 1 else ''}"
        yield _changed(target, text, {"num_nodes": nodes}, replace(ask, nodes=nodes))
    if ask.gpu is not None:
        yield from _other_kinds(world, target, ask.gpu, _fewer_counts(world, ask.gpu))


def _changed(target: Waiting, text: str, change: dict[str, str | int | bool], ask: Ask) -> Suggestion:
    return Suggestion(text=text, change=change, waiting=replace(target, ask=ask))


def _beside(world: World, target: Waiting) -> Iterator[Suggestion]:
    """Less of what is beside the GPUs, and no hard isolation."""
    ask = target.ask
    for milli in _less((use.cpus_free // 1000 * 1000 for use in world.nodes.values()), ask.cpus_milli):
        cpus = format_cpus(milli)
        text = f"ask for {cpus} CPU{'s' if milli > 1000 else ''}"
        yield _changed(target, text, {"cpus": cpus}, replace(ask, cpus_milli=milli))
    for size in _less((use.memory_free // GIB * GIB for use in world.nodes.values()), ask.memory_bytes):
        memory = format_memory(size)
        yield _changed(target, f"ask for {memory} of memory", {"memory": memory}, replace(ask, memory_bytes=size))
    if ask.isolation is Isolation.HARD:
        yield _changed(target, "do without hard isolation", {"isolation": "any"}, replace(ask, isolation=Isolation.ANY))


def _less(free: Iterable[int], asked: int | None) -> list[int]:
    """What the nodes have free that is less than what was asked, most first; few, since each is tried."""
    return sorted({size for size in free if asked is not None and 0 < size < asked}, reverse=True)[:MOST_SIZES]


def _purchase(
    world: World, queue: Sequence[Waiting], target: Waiting, now: float, decide: Decide
) -> Iterator[Suggestion]:
    """Where it fits but room is kept for the head: end before the head is due, or yield to it."""
    if choose(world, target.ask) is None:
        return
    reservation = decide(world, queue).reservation
    if reservation is not None and reservation.at is not None:
        told = format_duration(reservation.at - now).replace(" ", "")  # as it is written in a run file
        limit = parse_duration(told) if reservation.at - now >= LEAST_LIMIT_S else 0.0
        if limit and (target.duration_s is None or target.duration_s / 2 <= limit < target.duration_s):
            text = f"declare a max_duration of {told} at most, if that is enough"
            yield Suggestion(text=text, change={"max_duration": told}, waiting=replace(target, duration_s=limit))
    if target.purchase is PurchaseOption.ON_DEMAND:
        text = "launch it as spot: it may be preempted"
        yield Suggestion(text=text, change={"use_spot": True}, waiting=replace(target, purchase=PurchaseOption.SPOT))


def _other_kinds(world: World, target: Waiting, gpu: GpuAsk, counts: Iterable[int]) -> Iterator[Suggestion]:
    """Kinds that were not asked for, from as many GPUs as asked down."""
    if not gpu.names:
        return
    models = sorted(world.models() - (admitted_kinds(gpu, world) or frozenset()))
    for count in counts:
        for model in models:
            if count == gpu.count_min:
                other = replace(gpu, names=(model,), memory_min=None, memory_max=None)
            else:
                other = GpuAsk(names=(model,), count_min=count, count_max=count, mig_profile=gpu.mig_profile)
            yield _gpu(target, other, f"ask for {other.canonical} instead of {gpu.canonical}")


def _fewer_counts(world: World, gpu: GpuAsk) -> range:
    most = max((len(use.node.devices) for use in world.nodes.values()), default=0)
    return range(min(gpu.count_min - 1, most), 0, -1)


def _fewer(world: World, target: Waiting, gpu: GpuAsk) -> Iterator[Suggestion]:
    what = f"{gpu.mig_profile} slice" if gpu.mig_profile else "GPU"
    for count in _fewer_counts(world, gpu):
        smaller = replace(gpu, count_min=count, count_max=count)
        yield _gpu(target, smaller, f"ask for {count} {what}{'s' if count > 1 else ''} instead of {gpu.count_min}")


def _parts(world: World, target: Waiting, gpu: GpuAsk) -> Iterator[Suggestion]:
    """A part of the one GPU asked for: a MIG slice, a fraction; or less of the part that was asked for."""
    if gpu.count_min > 1:
        return
    kinds = admitted_kinds(gpu, world)
    devices = [(use, device) for use in world.nodes.values() for device in matching(use, gpu, kinds)]
    if gpu.slice_memory is not None:
        free = (share_free(use, device) * device.memory_bytes // WHOLE_MILLI for use, device in devices)
        for size in _less((memory // GIB * GIB for memory in free), gpu.slice_memory):
            text = f"ask for {format_memory(size)} of GPU memory"
            change: dict[str, str | int | bool] = {"gpu_memory": format_memory(size)}
            yield _changed(target, text, change, replace(target.ask, gpu=replace(gpu, slice_memory=size)))
        return
    if gpu.milli is None:
        yield from _mig_parts(target, gpu, sorted({device.model for use, device in devices}))
    if target.ask.isolation is Isolation.HARD or gpu.mig_profile is not None:
        return
    sizes: Iterable[int] = _PARTS
    if gpu.milli is not None:
        sizes = _less((share_free(use, device) // 50 * 50 for use, device in devices), gpu.milli)
    for milli in sizes:
        part = replace(gpu, milli=milli, count_max=1)
        yield _gpu(target, part, f"ask for {milli / WHOLE_MILLI:g} of a GPU, shared with others")


def _mig_parts(target: Waiting, gpu: GpuAsk, models: list[str]) -> Iterator[Suggestion]:
    """MIG profiles by the share of the grid, the largest first; smaller ones than asked for."""
    for model in models:
        profiles = mig_profiles(model)
        asked = next((each.memory_slices for each in profiles if each.name == gpu.mig_profile), WHOLE_MILLI)
        for profile in sorted(profiles, key=lambda each: (-each.memory_slices, -each.compute_slices, each.name)):
            if profile.memory_slices < asked and not profile.graphics and not profile.media_extensions:
                part = replace(gpu, names=(model,), mig_profile=profile.name, count_max=1)
                yield _gpu(target, part, f"ask for a {profile.name} MIG slice of {model}")


def _gpu(target: Waiting, gpu: GpuAsk, text: str) -> Suggestion:
    return _changed(target, text, {"accelerators": gpu.canonical}, replace(target.ask, gpu=gpu))
