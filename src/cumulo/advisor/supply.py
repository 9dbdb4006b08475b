"""Where GPUs can be had: this cloud's own first, then what public clouds list, then boards that nobody lists.

Of each board and size of node the cheapest place counts, for each purchase option by itself: which of 30 regions is
meant is a matter of price alone until a person names one.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from cumulo.advisor.plans import Price, Supply
from cumulo.catalog.kinds import GpuKind, all_kinds, find
from cumulo.catalog.mig import mig_profiles
from cumulo.catalog.prices import Rental, list_date, price, rentals
from cumulo.catalog.variants import Variant
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import WHOLE_MILLI, SharingMode

_SINGLE_HOSTS: Final = frozenset({"vast"})
"""Marketplaces of hosts that stand alone: nothing joins two of them."""
_FRACTIONS: Final = (0.5, 0.25)
"""Parts of a shared GPU that are looked at, where any size can be asked for."""
_FORM = re.compile(r"pcie|nvl|sxm", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGpus:
    """What this cloud has of one GPU or slice, as its offers tell it. Prices are nano-USD an hour for one."""

    region: str
    gpu: str
    memory_bytes: int
    mode: SharingMode
    profile: str
    milli: int
    per_node: int
    total: int
    free: int
    price_nano_h: int
    rental_nano_h: int | None
    emulated: bool


def own_supplies(found: Iterable[OwnGpus]) -> list[Supply]:
    """This cloud's GPUs as supplies. A GPU that the catalogue lacks has no known rates: nothing is said of it."""
    supplies: list[Supply] = []
    for one in found:
        kinds = find(one.gpu)
        if len(kinds) != 1 or kinds[0].typical is None or one.total < 1 or "+" in one.profile:
            continue  # (a profile with media extensions computes as the one without)
        supply = _own(one, kinds[0], kinds[0].typical)
        if supply.profile and supply.share == 1:
            continue  # the whole GPU, which stands in the list already
        any_size = one.mode.fraction and one.milli == WHOLE_MILLI
        supplies += [fraction_of(supply, share) for share in _FRACTIONS] if any_size else [supply]
    return supplies


def _own(one: OwnGpus, kind: GpuKind, variant: Variant) -> Supply:
    profile = next((each for each in mig_profiles(kind.name) if each.name == one.profile), None)
    share = profile.compute_slices / _slices(kind.name) if profile else one.milli / WHOLE_MILLI
    return Supply(
        kind=kind,
        variant=variant,
        memory_bytes=one.memory_bytes or kind.memory_bytes,
        per_node=max(one.per_node, 1),
        prices={PurchaseOption.ON_DEMAND: Price(one.price_nano_h, one.region, "", None)},
        own=True,
        region=one.region,
        most=one.total,
        free=one.free,
        rental_nano_h=one.rental_nano_h,
        emulated=one.emulated,
        mode=one.mode,
        profile=one.profile,
        share=share,
    )


def _slices(kind: str) -> int:
    return max((profile.compute_slices for profile in mig_profiles(kind)), default=1)


def rented_supplies(*, clouds: frozenset[str] = frozenset(), regions: frozenset[str] = frozenset()) -> list[Supply]:
    """What public clouds list, and boards that none of them does; only of these `clouds` and `regions` if any."""
    if not clouds and not regions:
        return list(_everywhere())
    return list(_rented(clouds, regions))


@cache
def _everywhere() -> tuple[Supply, ...]:
    return (*_rented(frozenset(), frozenset()), *_unlisted())


def _rented(clouds: frozenset[str], regions: frozenset[str]) -> Iterator[Supply]:
    for kind in all_kinds():
        if kind.typical is None:
            continue
        groups: dict[tuple[str, int, bool], list[Rental]] = {}
        bare = price(kind.name)
        for rental in rentals(kind.name):
            if rental.bare != (bare is not None and bare.bare):
                continue
            if (clouds and rental.cloud not in clouds) or (regions and rental.region not in regions):
                continue
            key = (_board(kind, rental).name, rental.gpus, rental.cloud in _SINGLE_HOSTS)
            groups.setdefault(key, []).append(rental)
        boards = {variant.name: variant for variant in kind.variants}
        for (board, size, alone), found in sorted(groups.items()):
            yield _listed(kind, boards[board], size, found, most=size if alone else None)


def _listed(kind: GpuKind, variant: Variant, size: int, found: list[Rental], *, most: int | None) -> Supply:
    places: dict[PurchaseOption, list[Price]] = {}
    for rental in found:
        offered = {
            PurchaseOption.ON_DEMAND: rental.on_demand_per_gpu(),
            PurchaseOption.SPOT: rental.spot_per_gpu(),
            PurchaseOption.RESERVED: None if rental.reserved_1y is None else rental.reserved_1y // rental.gpus,
        }
        for option, amount in offered.items():
            if amount:
                place, day = f"{rental.cloud} {rental.region}", list_date(rental.cloud)
                each = Price(amount, place, rental.instance_type, day, rental.memory_bytes)
                places.setdefault(option, []).append(each)
    kept = {option: _worth_a_look(each) for option, each in places.items()}
    return Supply(
        kind=kind,
        variant=variant,
        memory_bytes=kind.memory_bytes,
        per_node=size,
        prices={option: each[0] for option, each in kept.items()},
        roomier={option: each[1:] for option, each in kept.items()},
        most=most,
    )


def _worth_a_look(places: list[Price]) -> tuple[Price, ...]:
    """The cheapest, and each that has more memory beside its GPUs than all that cost less."""
    kept: list[Price] = []
    for each in sorted(places, key=lambda price: price.nano_h):
        if not kept or (kept[-1].host_bytes is not None and (each.host_bytes or 0) > kept[-1].host_bytes):
            kept.append(each)
    return tuple(kept)


def _board(kind: GpuKind, rental: Rental) -> Variant:
    """The board that an instance type names; the usual one where it names none."""
    if named := _FORM.search(rental.instance_type):
        word = named[0].lower()
        for variant in kind.variants:
            if word in variant.name.lower():
                return variant
    return kind.variants[0]


def _unlisted() -> Iterator[Supply]:
    """Boards that no price list has, so that a person can see what they would do."""
    listed = {(supply.kind.name, supply.variant.name) for supply in _rented(frozenset(), frozenset())}
    for kind in all_kinds():
        for variant in kind.variants:
            if (kind.name, variant.name) not in listed:
                yield Supply(kind=kind, variant=variant, memory_bytes=kind.memory_bytes, per_node=8)


def fraction_of(supply: Supply, share: float) -> Supply:
    """A part of a GPU that is shared: its share of the memory and, while others are busy too, of everything else."""
    prices = {option: each._replace(nano_h=int(each.nano_h * share)) for option, each in supply.prices.items()}
    rental = None if supply.rental_nano_h is None else int(supply.rental_nano_h * share)
    memory = int(supply.memory_bytes * share)
    return replace(supply, share=share, memory_bytes=memory, prices=prices, rental_nano_h=rental)


@cache
def known_clouds() -> tuple[str, ...]:
    """The clouds whose price lists are here."""
    return tuple(sorted({rental.cloud for kind in all_kinds() for rental in rentals(kind.name)}))
