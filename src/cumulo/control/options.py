"""Whole GPUs as they can be bought otherwise than on demand: as spot at the price of now, and reserved for a year.

Only kinds that the admin charges for have other prices; of all others, and of emulated devices, nothing is to be said.
"""

from dataclasses import replace

from cumulo.control.answers import Offer
from cumulo.control.live import Picture
from cumulo.control.prices import Pool
from cumulo.control.promising import market_of
from cumulo.control.rates import Rates
from cumulo.control.reserving import reservable
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import SharingMode
from cumulo.market.terms import YEAR_S
from cumulo.placement.purchase import Purchases


def with_options(seen: Picture, offers: tuple[Offer, ...], rates: Rates, now: float) -> tuple[Offer, ...]:
    """The offers, less what is reserved, and after each of whole GPUs that have a price its other options."""
    purchases = Purchases(seen.world, market_of(seen), now)
    found: list[Offer] = []
    for offer in offers:
        whole = offer.mode == SharingMode.EXCLUSIVE
        left = purchases.left(offer.gpu) if whole else None
        found.append(offer if left is None else replace(offer, free=max(0, min(offer.free, left))))
        if whole and offer.price_nano_h:
            found += [_spot(seen, offer, rates, now), _reserved(seen, offer, rates, now)]
    return tuple(found)


def _spot(seen: Picture, offer: Offer, rates: Rates, now: float) -> Offer:
    known = seen.prices.pools.get(Pool(offer.region, offer.gpu))
    price = known.price_nano_h if known else rates.floor_nano_h(offer.gpu)
    shown = known.shown(now) if known else price
    return replace(offer, purchase=str(PurchaseOption.SPOT), price_nano_h=price, shown_nano_h=shown)


def _reserved(seen: Picture, offer: Offer, rates: Rates, now: float) -> Offer:
    """What a year costs, and how many can be reserved for one from now."""
    price = rates.terms.reserved_nano_h(offer.gpu, rates.gpu_nano_h[offer.gpu], term_s=YEAR_S, upfront=False)
    free = max(0, reservable(seen, offer.gpu, since=now, term_s=YEAR_S, now=now))
    return replace(offer, purchase=str(PurchaseOption.RESERVED), price_nano_h=price, free=free, term_s=YEAR_S)
