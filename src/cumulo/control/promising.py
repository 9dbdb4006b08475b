"""Spot prices and reservations as placement is told of them."""

from cumulo.control.live import Picture
from cumulo.placement.purchase import Market, Promised


def market_of(seen: Picture) -> Market:
    """The market as it stands."""
    promised = tuple(
        Promised(
            id=one.id,
            name=one.name,
            project=one.project,
            kind=one.kind,
            count=one.count,
            starts_at=one.starts_at,
            ends_at=one.ends_at,
        )
        for one in seen.reservations.values()
    )
    return Market(prices=seen.prices.by_kind(), promised=promised)
