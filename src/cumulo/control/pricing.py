"""The spot market of this cloud: what is offered and bid in each pool, the price of it, and what instances pay.

A price falls at once, since that harms nobody, and rises once in `Terms.price_every_s` at most, so that who launches
knows for a while what it costs. Who is outbid is stopped by placement, once somebody who bids more can take its place;
until then it pays its bid at most.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cumulo.control import metering
from cumulo.control.live import LiveInstance, LiveRun, Picture
from cumulo.control.prices import Pool, SpotPrice
from cumulo.control.rates import Rates
from cumulo.domain.ask import Ask
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import NANO
from cumulo.domain.run import PurchaseOption, RunSpec
from cumulo.domain.sharing import WHOLE_MILLI, share_milli
from cumulo.market.spot_price import Bid, clear, paid
from cumulo.placement.fit import admitted_kinds
from cumulo.placement.quota import least_milli
from cumulo.placement.world import Waiting, World
from cumulo.store.batch import Batch

# The market is looked at so often at most: a look costs as much as there is held and waiting.
LOOK_EVERY_S: Final = 1.0
# So many units of a run that waits are counted as bids.
MOST_BIDS: Final = 64
_MOMENT_S: Final = 0.001


def price_of(
    seen: Picture, rates: Rates, *, node_id: str, kind: str, milli: int, option: PurchaseOption, bid_nano_h: int | None
) -> int:
    """What so much of a GPU costs an hour now, bought so (nano-USD); nothing where it is emulated.

    What draws on a reservation costs nothing by itself: the reservation is paid for, used or not.
    """
    if option is PurchaseOption.RESERVED or seen.world.nodes[node_id].node.emulated:
        return 0
    if option is PurchaseOption.ON_DEMAND:
        return rates.price_nano_h(kind, milli)
    known = seen.prices.pools.get(Pool(node_id.partition("/")[0], kind))
    price = known.price_nano_h if known else rates.floor_nano_h(kind)
    return paid(price, bid_nano_h) * milli // WHOLE_MILLI


def instance_price(seen: Picture, instance: LiveInstance, option: PurchaseOption, rates: Rates) -> int:
    """What an instance costs an hour now, bought so."""
    return price_of(
        seen,
        rates,
        node_id=instance.node_id,
        kind=instance.device_model,
        milli=share_milli(instance.slices),
        option=option,
        bid_nano_h=seen.runs[instance.run_id].spec.max_price_nano_h,
    )


def check_bid(world: World, spec: RunSpec, rates: Rates) -> None:
    """Raises CumuloError `invalid_run_file` for a bid that is below what spot costs at the least, of every kind."""
    if spec.max_price_nano_h is None or spec.ask.gpu is None:
        return
    kinds = admitted_kinds(spec.ask.gpu, world)
    devices = [device for use in world.nodes.values() for device in use.node.devices]
    there = {device.model for device in devices if kinds is None or device.model in kinds}
    free = {device.model for device in devices if device.emulated}
    floors = {kind: rates.floor_nano_h(kind) for kind in there - free}
    kind = min(floors, key=lambda each: (floors[each], each), default=None)
    if kind is not None and not there & free and spec.max_price_nano_h < floors[kind]:
        bid, floor = (usd(amount) for amount in (spec.max_price_nano_h, floors[kind]))
        raise CumuloError(
            "invalid_run_file",
            f"resources.max_price: {bid} USD per GPU-hour is less than spot ever costs: {kind} costs at least {floor}",
            hint=f"bid {floor} or more, or name no price to pay whatever it costs, up to on-demand",
            details={"path": ["resources", "max_price"]},
        )


def usd(nano: int) -> str:
    """`0.80`; as many places as it takes to tell it from nothing, rounded up so that bidding it is enough."""
    places = 2 if nano >= NANO // 10 or not nano else 5
    step = 10 ** (9 - places)
    return f"{-(-nano // step) * step / NANO:.{places}f}"


def look(seen: Picture, batch: Batch, rates: Rates, now: float) -> bool:
    """Prices every pool anew where it is time, and what spot instances pay with it. True if any price changed."""
    if not rates.gpu_nano_h or 0 <= now - seen.prices.looked_at < LOOK_EVERY_S:
        return False
    seen.prices.looked_at = now
    offered = _offered(seen, rates)
    running, waiting = _running(seen, rates, now), _waiting(seen, rates, offered, now)
    trades = [
        Trade(pool, capacity, tuple(running.get(pool, ())), tuple(waiting.get(pool, ())))
        for pool, capacity in offered.items()
    ]
    changed = [_price(seen, batch, trade, rates, now) for trade in trades]
    for instance in seen.instances.values():
        if instance.purchase is PurchaseOption.SPOT and instance.slices:
            price = instance_price(seen, instance, PurchaseOption.SPOT, rates)
            run = seen.runs[instance.run_id]
            metering.reprice(batch, run, instance, price_nano_h=price, purchase=PurchaseOption.SPOT, at=now)
    return any(changed)


class Trade(NamedTuple):
    """What is traded in a pool: what spot runs could have in milli, and the bids of those that run and that wait."""

    pool: Pool
    capacity_milli: int
    running: tuple[Bid, ...]
    waiting: tuple[Bid, ...]


def _price(seen: Picture, batch: Batch, trade: Trade, rates: Rates, now: float) -> bool:
    """Prices one pool; True if its price changes now."""
    pool = trade.pool
    on_demand, known = rates.gpu_nano_h[pool.kind], seen.prices.pools.get(pool)
    cleared = clear(
        (*trade.running, *trade.waiting),
        capacity_milli=trade.capacity_milli,
        floor_nano_h=rates.floor_nano_h(pool.kind),
        on_demand_nano_h=on_demand,
    )
    price = cleared.price_nano_h
    if known is not None and (
        price == known.price_nano_h or (price > known.price_nano_h and now - known.at < rates.terms.price_every_s)
    ):
        return False
    shown = price if known is None else known.shown(now)
    # Prices follow one another, also where the clock stands still or goes back.
    at = now if known is None else max(now, known.at + _MOMENT_S)
    seen.prices.pools[pool] = SpotPrice(price, shown, at)
    batch.spot_prices.append(
        {
            "region": pool.region,
            "kind": pool.kind,
            "at": at,
            "price_nano_h": price,
            "shown_nano_h": shown,
            "on_demand_nano_h": on_demand,
            "capacity_milli": trade.capacity_milli,
            "held_milli": sum(bid.milli for bid in trade.running),
            "wanted_milli": sum(bid.milli for bid in trade.waiting),
        }
    )
    return True


def _offered(seen: Picture, rates: Rates) -> Mapping[Pool, int]:
    """What spot runs could have of each pool that has a price, in milli: what no other run holds."""
    found: Counter[Pool] = Counter()
    for use in seen.world.nodes.values():
        if use.node.emulated:
            continue
        for device in use.node.devices:
            if device.model in rates.gpu_nano_h and use.usable(device):
                found[Pool(use.id.partition("/")[0], device.model)] += WHOLE_MILLI
    for instance in seen.instances.values():
        pool = Pool(instance.region, instance.device_model)
        if pool in found and instance.purchase is not PurchaseOption.SPOT:
            found[pool] -= share_milli(instance.slices)
    return {pool: max(0, milli) for pool, milli in found.items()}


def _bid_of(run: LiveRun, kind: str, rates: Rates) -> int:
    """Who names no price pays whatever it costs, which is never more than on demand."""
    on_demand, bid = rates.gpu_nano_h[kind], run.spec.max_price_nano_h
    return on_demand if bid is None else min(bid, on_demand)


def _running(seen: Picture, rates: Rates, now: float) -> Mapping[Pool, list[Bid]]:
    """The spot attempts that run. What is being stopped leaves its room to others."""
    attempts: dict[tuple[Pool, str], list[LiveInstance]] = defaultdict(list)
    for one in seen.instances.values():
        if one.purchase is PurchaseOption.SPOT and one.device_model in rates.gpu_nano_h and one.stop_reason is None:
            attempts[Pool(one.region, one.device_model), f"{one.run_id}-{one.unit}"].append(one)
    found: dict[Pool, list[Bid]] = defaultdict(list)
    for (pool, key), several in attempts.items():
        run = seen.runs[several[0].run_id]
        young = any(one.started_at is None or now - one.started_at < rates.terms.min_run_s for one in several)
        milli = sum(share_milli(one.slices) for one in several)
        found[pool].append(Bid(key, milli, _bid_of(run, pool.kind, rates), run.accepted_at, kept=young))
    return found


def _waiting(seen: Picture, rates: Rates, offered: Iterable[Pool], now: float) -> Mapping[Pool, list[Bid]]:
    """The spot units that wait, each in the cheapest of the pools that it would do with."""
    found: dict[Pool, list[Bid]] = defaultdict(list)
    pools: dict[Ask, Pool | None] = {}
    for unit in seen.waiting(now, MOST_BIDS):
        if unit.purchase is PurchaseOption.SPOT and unit.ask.gpu is not None:
            if unit.ask not in pools:
                pools[unit.ask] = _cheapest(seen, unit, rates, offered)
            pool = pools[unit.ask]
            if pool is not None:
                run, key = seen.runs[unit.key[0]], f"{unit.key[0]}-{unit.key[1]}"
                milli = max(1, least_milli(unit.ask))
                found[pool].append(Bid(key, milli, _bid_of(run, pool.kind, rates), run.accepted_at))
    return found


def _cheapest(seen: Picture, unit: Waiting, rates: Rates, offered: Iterable[Pool]) -> Pool | None:
    kinds = admitted_kinds(unit.ask.gpu, seen.world) if unit.ask.gpu else None
    able = [pool for pool in offered if kinds is None or pool.kind in kinds]

    def price(pool: Pool) -> tuple[int, Pool]:
        known = seen.prices.pools.get(pool)
        return known.price_nano_h if known else rates.floor_nano_h(pool.kind), pool

    return min(able, key=price, default=None)
