"""Why a node can't take an ask: the constraints, one after another, from what can never change to what is only held.

The first constraint that fails is the one worth telling a person. A node that is refused nothing is one that `fit`
finds a place on.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cumulo.catalog.mig import mig_layout, mig_profiles
from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.node import Device, NodeState
from cumulo.domain.quantities import format_cpus, format_memory
from cumulo.domain.sharing import WHOLE_MILLI, SharingMode
from cumulo.placement.fit import Need, isolates, matching, most_by_model, need_of, parts_of
from cumulo.placement.slicing import Part, room, share_free
from cumulo.placement.world import NodeUse


class Constraint(StrEnum):
    """What can keep an ask from a node, from the most to the least lasting."""

    GPU_KIND = "gpu_kind"
    ISOLATION = "isolation"
    GPU_SHARING = "gpu_sharing"  # the right kind, which can't be shared as asked
    GPU_TOTAL = "gpu_total"
    CPU_TOTAL = "cpu_total"
    MEMORY_TOTAL = "memory_total"
    NODE_STATE = "node_state"
    GPU_HEALTH = "gpu_health"
    GPU_HELD = "gpu_held"
    CPU_HELD = "cpu_held"
    MEMORY_HELD = "memory_held"
    NODES = "nodes"  # enough for one instance here, but not enough such nodes
    QUOTA = "quota"  # the project holds all that it may
    RESERVATION = "reservation"  # the room is kept for the head of the queue
    RESERVED = "reserved"  # the rest is promised to others, or its own reservation has no room
    PRICE = "price"  # its bid is below the spot price

    @property
    def lasting(self) -> bool:
        """Whether waiting can't help: only another ask or another machine can."""
        return self in _LASTING


_LASTING = frozenset(
    {
        Constraint.GPU_KIND,
        Constraint.ISOLATION,
        Constraint.GPU_SHARING,
        Constraint.GPU_TOTAL,
        Constraint.CPU_TOTAL,
        Constraint.MEMORY_TOTAL,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why one node can't take one instance of an ask now."""

    node_id: str
    constraint: Constraint
    text: str


Failed = tuple[Constraint, str] | None


def refusal(use: NodeUse, ask: Ask, kinds: frozenset[str] | None, gpus: int) -> Refusal | None:
    """The first constraint that keeps one instance with `gpus` GPUs from this node, or None if it fits now."""
    parts = parts_of(use, ask, kinds, gpus)
    need = need_of(use, ask, parts, gpus)
    gpu = ask.gpu if gpus else None
    failed = (
        (_gpus_never(use, ask, gpu, kinds, parts, gpus) if gpu else None)
        or _too_small(use, need)
        or ((Constraint.NODE_STATE, use.blocked) if use.node.state is not NodeState.READY else None)
        or (_gpus_unusable(use, parts, gpus) or _gpus_held(use, gpu, parts, gpus) if gpu else None)
        or _too_full(use, need)
    )
    return Refusal(node_id=use.id, constraint=failed[0], text=failed[1]) if failed else None


def _gpus_never(
    use: NodeUse, ask: Ask, gpu: GpuAsk, kinds: frozenset[str] | None, parts: list[Part], gpus: int
) -> Failed:
    there = matching(use, gpu, kinds)
    if not there:
        return Constraint.GPU_KIND, f"has {_counts(use.node.devices)}, {gpu.describe()} asked"
    if not isolates(ask):
        return Constraint.ISOLATION, "a fraction of a GPU is shared with others, hard isolation asked"
    if not parts:
        return Constraint.GPU_SHARING, _unshareable(use, gpu, there)
    most = max(most_by_model(parts).values())
    if most >= gpus:
        return None
    if gpu.mig_profile:
        return Constraint.GPU_TOTAL, f"takes {most} {gpu.mig_profile} at most, {gpus} asked on one node"
    return Constraint.GPU_TOTAL, f"has {_counts(part.device for part in parts)}, {gpus} asked on one node"


def _unshareable(use: NodeUse, gpu: GpuAsk, there: list[Device]) -> str:
    """Why none of the devices, which are of the right kind, can be shared as asked."""
    modes = {mode: None for device in there for mode in use.modes(device)}
    only = f"{_counts(there)} can only be held as {' or '.join(modes)} here"
    if gpu.mig_profile is None:
        return f"{only}, {gpu.describe()} asked"
    models = sorted({device.model for device in there})
    with_mig = [model for model in models if mig_layout(model)]
    if not with_mig:
        return f"{' and '.join(models)} ha{'s' if len(models) == 1 else 've'} no MIG, {gpu.describe()} asked"
    if not any(profile.name == gpu.mig_profile for model in with_mig for profile in mig_profiles(model)):
        listed = "; ".join(", ".join(profile.name for profile in mig_profiles(model)) for model in with_mig)
        return f"no MIG profile {gpu.mig_profile} on {' or '.join(with_mig)}; there are {listed}"
    return f"{only}, {gpu.describe()} asked"


def _too_small(use: NodeUse, need: Need) -> Failed:
    node = use.node
    if need.cpus_milli > node.cpus_milli:
        text = f"has {format_cpus(node.cpus_milli)} CPUs, {format_cpus(need.cpus_milli)} asked"
        return Constraint.CPU_TOTAL, text
    if need.memory_bytes > node.memory_bytes:
        text = f"has {format_memory(node.memory_bytes)} of memory, {format_memory(need.memory_bytes)} asked"
        return Constraint.MEMORY_TOTAL, text
    return None


def _gpus_unusable(use: NodeUse, parts: list[Part], gpus: int) -> Failed:
    usable = [part for part in parts if use.usable(part.device)]
    if max(most_by_model(usable).values(), default=0) >= gpus:
        return None
    bad = [part.device for part in parts if not use.usable(part.device)]
    why = "; ".join(
        f"GPU {device.index} " + (f"used by {device.foreign}" if device.foreign else f"{device.health}")
        for device in bad[:4]
    )
    text = f"{len(bad)} of {_counts(part.device for part in parts)} can't be used ({why}), {gpus} asked"
    return Constraint.GPU_HEALTH, text


def _gpus_held(use: NodeUse, gpu: GpuAsk, parts: list[Part], gpus: int) -> Failed:
    usable = [part for part in parts if use.usable(part.device)]
    free = Counter[str]()
    for part in usable:
        free[part.device.model] += room(use, part)
    if max(free.values(), default=0) >= gpus:
        return None
    devices = [part.device for part in usable]
    held = [device for device in devices if not use.empty(device)]
    modes = Counter(str(use.held(device).mode) for device in held)
    how = f" ({', '.join(f'{count} {mode}' for mode, count in sorted(modes.items()))})"
    if gpu.mig_profile:
        slices = f"{sum(free.values()) or 'no'} {gpu.mig_profile} slice{'s' if sum(free.values()) > 1 else ''} free"
        return Constraint.GPU_HELD, f"{slices}: {len(held)} of {_counts(devices)} held{how}, {gpus} asked"
    if gpu.fraction:
        return Constraint.GPU_HELD, _fraction_held(use, usable, f"{len(held)} of {_counts(devices)} held{how}")
    shared = how if set(modes) - {SharingMode.EXCLUSIVE} else ""
    left = len(devices) - len(held)
    return Constraint.GPU_HELD, f"{len(held)} of {_counts(devices)} held{shared}, {left} free, {gpus} asked"


def _fraction_held(use: NodeUse, usable: list[Part], held: str) -> str:
    """Why no device has room for a fraction; all of them are held. `held` says how."""
    open_ones = [part for part in usable if use.held(part.device).mode in (None, part.slice.mode)]
    asked = min(part.slice.milli for part in usable)
    if not open_ones:
        return f"{held}, {asked} milli asked"
    best = max(open_ones, key=lambda part: share_free(use, part.device))
    where = f"the emptiest of {_counts(part.device for part in usable)}" if len(usable) > 1 else best.device.model
    free = share_free(use, best.device)
    return f"{free} of {WHOLE_MILLI} milli free on {where}, {best.slice.milli} asked"


def _too_full(use: NodeUse, need: Need) -> Failed:
    node = use.node
    if need.cpus_milli > use.cpus_free:
        total, free_cpus = format_cpus(node.cpus_milli), format_cpus(max(0, use.cpus_free))
        text = f"{free_cpus} of {total} CPUs free, {format_cpus(need.cpus_milli)} asked"
        return Constraint.CPU_HELD, text
    if need.memory_bytes > use.memory_free:
        total, free_memory = format_memory(node.memory_bytes), format_memory(max(0, use.memory_free))
        text = f"{free_memory} of {total} of memory free, {format_memory(need.memory_bytes)} asked"
        return Constraint.MEMORY_HELD, text
    return None


def _counts(devices: Iterable[Device]) -> str:
    counts = Counter(device.model for device in devices)
    return " + ".join(f"{count} {model}" for model, count in sorted(counts.items())) or "no GPU"
