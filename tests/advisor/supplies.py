"""GPUs to be had, as tests need them: of real boards, at prices that are easy to reckon with."""

from cumulo.advisor.plans import Price, Supply
from cumulo.catalog.kinds import find
from cumulo.domain.quantities import NANO
from cumulo.domain.run import PurchaseOption


def supply(
    kind: str,
    *,
    per_node: int = 8,
    usd_h: float | None = 2.0,
    spot: float | None = None,
    reserved: float | None = None,
    own: bool = False,
    most: int | None = None,
    free: int | None = None,
) -> Supply:
    found = find(kind)[0]  # H100 is then the one of 80 GB
    assert found.typical is not None
    given = {PurchaseOption.ON_DEMAND: usd_h, PurchaseOption.SPOT: spot, PurchaseOption.RESERVED: reserved}
    place = "local" if own else "cloud region-1"
    prices = {
        option: Price(round(usd * NANO), place, "" if own else "big", None if own else "2026-05-20")
        for option, usd in given.items()
        if usd is not None
    }
    return Supply(
        kind=found,
        variant=found.typical,
        memory_bytes=found.memory_bytes,
        per_node=per_node,
        prices=prices,
        own=own,
        region="local" if own else "",
        most=most,
        free=most if free is None else free,
    )
