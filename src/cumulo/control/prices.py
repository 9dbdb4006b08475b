"""Spot prices as they stand, by pool: what the loop knows between two looks at the market. `pricing` changes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import Connection

from cumulo.control.rates import Rates
from cumulo.market.spot_price import smoothed
from cumulo.store import market


class Pool(NamedTuple):
    """Where one spot price holds: the GPUs of a kind in a region."""

    region: str
    kind: str


class SpotPrice(NamedTuple):
    """Of a GPU for an hour in nano-USD, since `at`; `shown` is the same smoothed, as it was then."""

    price_nano_h: int
    shown_nano_h: int
    at: float

    def shown(self, now: float) -> int:
        """What people are shown at `now`."""
        return smoothed(self.shown_nano_h, self.price_nano_h, now - self.at)


@dataclass(slots=True)
class SpotPrices:
    """Part of the picture, read from the store with it. The market was looked at last at `looked_at`."""

    pools: dict[Pool, SpotPrice] = field(default_factory=dict)
    looked_at: float = float("-inf")

    def restore(self, tx: Connection, rates: Rates) -> None:
        """As the store has them, within what the admin charges now: rates may have changed, or be gone."""
        self.pools = {}
        for row in market.latest_prices(tx):
            if row.kind in rates.gpu_nano_h:
                price = min(rates.gpu_nano_h[row.kind], max(rates.floor_nano_h(row.kind), row.price_nano_h))
                self.pools[Pool(row.region, row.kind)] = SpotPrice(price, row.shown_nano_h, row.at)

    def by_kind(self) -> Mapping[str, int]:
        """The lowest price of each kind, of all regions: what a bid has to reach to be served anywhere."""
        found: dict[str, int] = {}
        for pool, price in self.pools.items():
            found[pool.kind] = min(price.price_nano_h, found.get(pool.kind, price.price_nano_h))
        return found
