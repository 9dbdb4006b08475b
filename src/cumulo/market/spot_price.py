"""The spot price of a pool, and who wins its GPUs: a uniform price, the highest bid that loses.

All bids are for a whole GPU for an hour; a fraction pays its part. Bids are served from the highest on, equal ones in
the order in which they came, each whole or not at all. Then everybody pays the same,

    price = min(on-demand, max(floor, highest losing bid that no winner is below))

so no winner pays above its bid, nor what another would have outbid. A losing bid above some winner's lost for want of
room, not of money (eight GPUs asked, three left): with bids that can't be divided there need be no price at which
exactly the winners want to buy (Bikhchandani and Mamer, J. Econ. Theory 74, 1997), and such a bid sets none.

Whoever started a moment ago can't be outbid yet (`Bid.kept`): it stays, whatever it bids, and pays its bid at most.
With one GPU a bidder and one round this is Vickrey's auction and it is best to bid what a GPU is worth; with more GPUs,
or over rounds, it is not: see docs/market.md.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

# A price that is shown has come half as far as the real one after so long.
HALF_LIFE_S: Final = 1800.0


class Bid(NamedTuple):
    """An attempt that runs or waits as spot: thousandths of a GPU that it takes, and nano-USD per GPU-hour at most."""

    key: str
    milli: int
    nano_h: int
    since: float  # when it was accepted
    kept: bool = False  # runs, and can't be outbid yet


class Clearing(NamedTuple):
    """The price of a GPU for an hour in nano-USD, and the keys of those who have theirs."""

    price_nano_h: int
    winners: frozenset[str]


def clear(bids: Iterable[Bid], *, capacity_milli: int, floor_nano_h: int, on_demand_nano_h: int) -> Clearing:
    """Who wins of `capacity_milli`, and what it costs. Bids above on-demand count as that."""
    several = list(bids)
    kept = [bid for bid in several if bid.kept]
    left = capacity_milli - sum(bid.milli for bid in kept)
    won, lost = [], []
    for bid in sorted((bid for bid in several if not bid.kept), key=lambda bid: (-bid.nano_h, bid.since, bid.key)):
        if bid.nano_h >= floor_nano_h and bid.milli <= left:
            left -= bid.milli
            won.append(bid)
        else:
            lost.append(bid.nano_h)
    least = min((bid.nano_h for bid in won), default=on_demand_nano_h)
    price = max((nano_h for nano_h in lost if nano_h <= least), default=0) if won else max(lost, default=0)
    price = min(on_demand_nano_h, max(floor_nano_h, price))
    return Clearing(price, frozenset(bid.key for bid in (*kept, *won)))


def paid(price_nano_h: int, bid_nano_h: int | None) -> int:
    """What a GPU costs somebody who bid that (None: whatever it costs): never more than the bid."""
    return price_nano_h if bid_nano_h is None else min(price_nano_h, bid_nano_h)


def smoothed(shown_nano_h: int, price_nano_h: int, seconds: float) -> int:
    """What is shown `seconds` after `shown_nano_h` was, the price having been `price_nano_h` since."""
    left = float(2.0 ** (-max(0.0, seconds) / HALF_LIFE_S))
    return round(price_nano_h + (shown_nano_h - price_nano_h) * left)
