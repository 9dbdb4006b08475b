"""How a run file says that its GPUs are bought: on demand, as spot with or without a bid, or from a reservation.

Each key is fine by itself; what is checked here is whether together they mean something.
"""

from typing import Final, NamedTuple

from cumulo.domain.run import PurchaseOption
from cumulo.wire.gpu_ask import Contradiction

_MAX_PRICE: Final = ("resources", "max_price")
_PURCHASE: Final = ("resources", "purchase")
_RESERVATION: Final = ("resources", "reservation")


class Bought(NamedTuple):
    """The option, the bid in nano-USD per GPU-hour, and the reservation as it was named."""

    option: PurchaseOption
    max_price_nano_h: int | None
    reservation: str | None


def bought(
    *, purchase: str | None, use_spot: bool, max_price: int | None, reservation: str | None, gpus: bool, deadline: bool
) -> Bought:
    """What these keys say together; `gpus` and `deadline` tell whether the run has any. Raises Contradiction."""
    spoken = PurchaseOption(purchase) if purchase else None
    if use_spot and spoken not in (None, PurchaseOption.SPOT):
        raise Contradiction(_PURCHASE, f"says {spoken}, and use_spot says spot; give one")
    if reservation and (use_spot or spoken not in (None, PurchaseOption.RESERVED)):
        raise Contradiction(_RESERVATION, f"what draws on a reservation can't be {spoken or 'spot'} too; give one")
    option = spoken or PurchaseOption.ON_DEMAND
    if use_spot:
        option = PurchaseOption.SPOT
    elif reservation:
        option = PurchaseOption.RESERVED
    if max_price is not None and deadline:
        text = "a deadline takes spot as long as that costs less than on-demand; leave max_price out"
        raise Contradiction(_MAX_PRICE, text)
    if max_price is not None and option is not PurchaseOption.SPOT:
        raise Contradiction(_MAX_PRICE, "is what a spot run pays at most; add use_spot: true (--spot)")
    if option is PurchaseOption.RESERVED and not gpus:
        raise Contradiction(_RESERVATION if reservation else _PURCHASE, "only GPUs are reserved; ask for some")
    if deadline and (spoken or reservation):
        text = "a deadline chooses between spot and on-demand as time passes; leave it out"
        raise Contradiction(_RESERVATION if reservation else _PURCHASE, text)
    return Bought(option, max_price, reservation)
