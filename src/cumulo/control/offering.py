"""What can be launched here: whole GPUs, fractions of them and MIG instances, and how many of each now."""

from collections.abc import Iterator
from dataclasses import replace

from cumulo.catalog.mig import mig_profiles
from cumulo.control.answers import Offer
from cumulo.control.explain import check_gpu_names
from cumulo.control.live import Picture
from cumulo.control.options import with_options
from cumulo.control.rates import Rates
from cumulo.control.scheduling import rental_nano_h
from cumulo.domain.ask import GpuAsk
from cumulo.domain.node import Device, NodeState
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import FRACTION_MODES, WHOLE_MILLI, SharingMode
from cumulo.placement.fit import admitted_kinds, matching
from cumulo.placement.slicing import Part, fraction_mode, part_of, room, share_free
from cumulo.placement.world import NodeUse

# What stands for a fraction of any size: the smallest there is.
_ANY_FRACTION = 1
# Rows by region, GPU kind, whether emulated, and in the order of the modes.
_Key = tuple[str, str, bool, int, str]
_ORDER = tuple(SharingMode)


def offers(seen: Picture, gpu: GpuAsk | None, rates: Rates, now: float) -> tuple[Offer, ...]:
    """What serves an ask, or all there is: a row for each region, GPU kind, sharing mode, MIG profile and option.

    Raises CumuloError `unknown_gpu`.
    """
    check_gpu_names(gpu, seen.world)
    kinds = admitted_kinds(gpu, seen.world) if gpu else None
    rows: dict[_Key, Offer] = {}
    for use in seen.world.nodes.values():
        on_node: dict[_Key, int] = {}
        for device in matching(use, gpu or GpuAsk(), kinds):
            for one in _ways(use, device) if gpu is None else [gpu]:
                part = part_of(use, device, one)
                if part is None:
                    continue
                key, row = _row(use, part, rates, any_size=gpu is None and one.fraction)
                before = rows.get(key)
                on_node[key] = on_node.get(key, 0) + row.total
                rows[key] = replace(
                    row,
                    total=row.total + (before.total if before else 0),
                    free=row.free + (before.free if before else 0),
                    free_milli=row.free_milli + (before.free_milli if before else 0),
                    max_per_node=max(on_node[key], before.max_per_node if before else 0),
                )
    return with_options(seen, tuple(rows[key] for key in sorted(rows)), rates, now)


def _ways(use: NodeUse, device: Device) -> Iterator[GpuAsk]:
    """Every way in which something of a device can be asked for."""
    yield GpuAsk()
    for profile in mig_profiles(device.model):
        yield GpuAsk(mig_profile=profile.name)
    for mode in FRACTION_MODES:
        if fraction_mode(use.modes(device), GpuAsk(sharing=mode)):
            yield GpuAsk(milli=_ANY_FRACTION, sharing=mode)


def _row(use: NodeUse, part: Part, rates: Rates, *, any_size: bool) -> tuple[_Key, Offer]:
    """What one device adds to the offer it belongs to; `any_size` of fractions whose size is not said."""
    device, mode = part.device, part.slice.mode
    there = use.node.state is NodeState.READY and use.usable(device)
    count = room(use, part) if there else 0
    milli = WHOLE_MILLI if any_size else part.slice.milli
    offer = Offer(
        region=use.id.partition("/")[0],
        gpu=device.model,
        memory_bytes=device.memory_bytes if any_size else part.slice.memory_bytes,
        emulated=device.emulated,
        mode=str(mode),
        profile=part.slice.profile,
        isolation=mode.isolation,
        purchase=str(PurchaseOption.ON_DEMAND),
        milli=milli,
        price_nano_h=0 if device.emulated else rates.price_nano_h(device.model, milli),
        rental_nano_h=None if device.emulated else rental_nano_h(device.model, milli) or None,
        total=1 if any_size else WHOLE_MILLI // milli if mode.fraction else part.most,
        free=min(count, 1) if any_size else count,
        free_milli=share_free(use, device) if mode.fraction and count else count * milli,
        max_per_node=0,
    )
    return (offer.region, offer.gpu, offer.emulated, _ORDER.index(mode), _size(part)), offer


def _size(part: Part) -> str:
    """Sorts MIG profiles by their share of the GPU, then by name."""
    return f"{part.slice.milli:04} {part.slice.profile}" if part.slice.profile else ""
