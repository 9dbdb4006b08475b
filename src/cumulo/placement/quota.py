"""What a project's quota leaves of an ask: all of it, less of a range or fewer kinds, or nothing, and why.

What an ask names is checked before a place is sought, so that a range takes what the quota leaves; what only the place
tells (the default share of CPUs, the size of a MIG instance) is checked on the place.
"""

from collections.abc import Iterable
from dataclasses import replace

from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.quantities import format_cpus, format_memory
from cumulo.placement.fit import Place
from cumulo.placement.policy import Quota
from cumulo.placement.shares import Holding


def least_milli(ask: Ask) -> int:
    """The least that an ask takes of GPUs, in milli; 0 where only its place tells (MIG, a part told by memory)."""
    gpu = ask.gpu
    if gpu is None:
        return 0
    if gpu.milli is not None:
        return gpu.milli * ask.nodes
    return gpu.count_min * 1000 * ask.nodes if gpu.whole else 0


def narrowed(project: str, quota: Quota, held: Holding, ask: Ask, kinds: frozenset[str]) -> Ask | str:
    """The ask as far as the quota admits it, or why it admits none of it. `kinds` are the GPU kinds that would do."""
    least = least_milli(ask)
    if ask.gpu is not None and quota.gpus is not None and held.gpus_milli + max(1, least) > quota.gpus * 1000:
        return _gpus(project, quota.gpus, held.gpus_milli, least, "GPUs")
    if ask.cpus_milli is not None and (text := _cpus(project, quota, held, ask.cpus_milli * ask.nodes)):
        return text
    if ask.memory_bytes is not None and (text := _memory(project, quota, held, ask.memory_bytes * ask.nodes)):
        return text
    if ask.gpu is None or not kinds or (quota.gpus is None and not quota.kinds):
        return ask
    left = {kind: _left(quota, held, kind) for kind in kinds}
    open_kinds = sorted(kind for kind, milli in left.items() if milli is None or milli >= max(1, least))
    if not open_kinds:
        kind = min(kinds)
        return _gpus(project, quota.kinds[kind], held.kinds.get(kind, 0), least, kind)
    return replace(ask, gpu=_narrowed_gpu(ask.gpu, ask.nodes, kinds, {kind: left[kind] for kind in open_kinds}))


def _left(quota: Quota, held: Holding, kind: str) -> int | None:
    """How many milli of a kind the project may still take; None: as many as it likes."""
    of_kind = quota.kinds[kind] * 1000 - held.kinds.get(kind, 0) if kind in quota.kinds else None
    of_all = quota.gpus * 1000 - held.gpus_milli if quota.gpus is not None else None
    return min((milli for milli in (of_kind, of_all) if milli is not None), default=None)


def _narrowed_gpu(gpu: GpuAsk, nodes: int, kinds: frozenset[str], left: dict[str, int | None]) -> GpuAsk:
    names = gpu.names if len(left) == len(kinds) else tuple(left)
    if not gpu.whole:
        return replace(gpu, names=names)
    counts = [milli // 1000 // nodes for milli in left.values() if milli is not None]
    return replace(gpu, names=names, count_max=min(gpu.count_max, *counts) if counts else gpu.count_max)


def exceeded(project: str, quota: Quota, held: Holding, places: Iterable[Place]) -> str:
    """Why places can't be taken; empty when they can."""
    taken = Holding()
    taken.add(places)
    for kind, milli in taken.kinds.items():
        if kind in quota.kinds and held.kinds.get(kind, 0) + milli > quota.kinds[kind] * 1000:
            return _gpus(project, quota.kinds[kind], held.kinds.get(kind, 0), milli, kind)
    if quota.gpus is not None and held.gpus_milli + taken.gpus_milli > quota.gpus * 1000:
        return _gpus(project, quota.gpus, held.gpus_milli, taken.gpus_milli, "GPUs")
    return _cpus(project, quota, held, taken.cpus_milli) or _memory(project, quota, held, taken.memory_bytes)


def _gpus(project: str, most: int, held: int, asked: int, kind: str) -> str:
    return _text(project, str(most), _count(held), _count(asked) if asked else "a part of one", kind)


def _cpus(project: str, quota: Quota, held: Holding, asked: int) -> str:
    if quota.cpus_milli is None or held.cpus_milli + asked <= quota.cpus_milli:
        return ""
    return _text(project, format_cpus(quota.cpus_milli), format_cpus(held.cpus_milli), format_cpus(asked), "CPUs")


def _memory(project: str, quota: Quota, held: Holding, asked: int) -> str:
    if quota.memory_bytes is None or held.memory_bytes + asked <= quota.memory_bytes:
        return ""
    most, holds = format_memory(quota.memory_bytes), format_memory(held.memory_bytes) if held.memory_bytes else "0"
    return _text(project, most, holds, format_memory(asked), "of memory")


def _text(project: str, most: str, held: str, asked: str, what: str) -> str:
    return f"project {project} holds {held} of its quota of {most} {what}, {asked} asked"


def _count(milli: int) -> str:
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")
