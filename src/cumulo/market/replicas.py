"""Which replicas a service should have where: spot with spares while that is cheap, on-demand where spot is not enough.

A pure, level-triggered rule: asked again after anything changed, it says what to launch and what to drop from what is
there now, so nothing depends on an answer having been carried out. It weighs what replicas cost against what missing
ones cost, at the end of a cold start, since what is launched now helps no sooner:

    sum of prices + launches + missing x E[replicas missing] + outage x P[none ready]

The chance that a pool loses its spot within a cold start comes from its hazards at the age of its capacity, which is
known only from our own replicas and refusals: no pool is known to be up unless we hold something there. Spares,
spreading over pools and regions, leaving a pool that has just come back, on-demand as a bridge: all follow from that
one sum. A replica that is ready is dropped only when as many as wanted are ready without it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cumulo.domain.run import PurchaseOption
from cumulo.market.hazards import Hazards, Rates
from cumulo.market.mix import Column, Weights, best_mix

PAYBACK_S: Final = 3600.0
"""A launch pays its cold start for nothing; it must be worth that within this time, which keeps mixes from flapping."""
RETRY_S: Final = 60.0
"""A pool that refused is asked again after this."""
UNSEEN_S: Final = 86400.0
"""A pool that was never seen down is taken to have been up for this long: asking costs nothing, a refusal corrects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Where replicas may run. Prices are per replica in any one unit of money over time; None: not sold there."""

    name: str
    region: str
    spot: float | None
    on_demand: float | None
    cold_start_s: float
    hazards: Hazards
    room: int | None = None  # how many of our replicas fit in all; None: no limit is known
    down_at: float | None = None  # when spot was last refused here, or taken from us


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One that starts or is ready."""

    id: str
    pool: str
    option: PurchaseOption
    ready: bool
    began_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What the service wants: `missing` is what a missing replica costs and `outage` what having none costs on top, in
    the unit of the pools' prices; `spare` is how many more than `target` may be held, and `most_in_pool` how many in
    one pool on spot."""

    target: int
    missing: float
    outage: float = 0.0
    spare: int = 4
    most_in_pool: int | None = None

    def __post_init__(self) -> None:
        if self.target < 0 or self.spare < 0:
            raise ValueError(f"{self.target} replicas and {self.spare} spares: neither may be below 0")
        if not (self.missing >= 0 and self.outage >= 0 and math.isfinite(self.missing + self.outage)):
            raise ValueError("what a missing replica or an outage costs must be 0 or more")
        if self.most_in_pool is not None and self.most_in_pool < 1:
            raise ValueError("most_in_pool must be 1 or more, or None")


@dataclass(frozen=True, slots=True)
class Launch:
    pool: str
    option: PurchaseOption


@dataclass(frozen=True, slots=True)
class Plan:
    """What to launch and what to drop now. `short` is the chance that fewer than wanted are ready after a cold start;
    `why` says it for people."""

    launch: tuple[Launch, ...]
    drop: tuple[str, ...]
    short: float
    why: str


def plan(goal: Goal, *, pools: Sequence[Pool], replicas: Sequence[Replica], now: float) -> Plan:
    """The next launches and drops.

    After a launch was refused, ask again with that pool's `down_at` set: it is left alone for `RETRY_S`. Replicas in
    pools that are not listed are dropped once others are ready. Raises ValueError for two pools of one name.
    """
    if len({pool.name for pool in pools}) < len(pools):
        raise ValueError("two pools have the same name")
    columns = _columns(goal, pools, replicas, now)
    held = Counter((replica.pool, replica.option) for replica in replicas)
    have = [held[column.pool, column.option] for column in columns]
    weights = Weights(
        target=goal.target, missing=goal.missing, outage=goal.outage, most=goal.target + goal.spare, payback_s=PAYBACK_S
    )
    found = best_mix(columns, have, weights)
    wanted = {(column.pool, column.option): count for column, count in zip(columns, found.counts, strict=True)}
    launch = tuple(_launches(pools, wanted, replicas))
    drop = _drops(goal, wanted, replicas)
    return Plan(launch, drop, found.short, _why(goal, pools, replicas, launch, drop, found.short_as_is, found.short))


def age_of(pool: Pool, replicas: Sequence[Replica], now: float) -> float:
    """For how long spot has been up in `pool`, in seconds, as far as we can know.

    It came up between when it was last seen down and our oldest spot replica there, or now; the middle is taken.
    """
    began = [r.began_at for r in replicas if r.pool == pool.name and r.option is PurchaseOption.SPOT]
    first = min(began, default=now)
    if pool.down_at is None:
        return now - first + UNSEEN_S
    if pool.down_at > first:  # some were taken, or no more were to be had: what is left is no safer than new
        return max(0.0, now - pool.down_at)
    return now - first + (first - pool.down_at) / 2


def _columns(goal: Goal, pools: Sequence[Pool], replicas: Sequence[Replica], now: float) -> tuple[Column, ...]:
    """Every pool and option that is held or could be: on-demand only where it is cheapest or held."""
    horizon = max((pool.cold_start_s for pool in pools), default=0.0)
    held = Counter((replica.pool, replica.option) for replica in replicas)
    columns = []
    for pool in pools:
        room = goal.target + goal.spare if pool.room is None else pool.room
        here = held[pool.name, PurchaseOption.SPOT]
        if pool.spot is not None or here:
            age = age_of(pool, replicas, now)
            lost = _lost_within(horizon, age, pool.hazards.lost)
            refused = pool.down_at is not None and now - pool.down_at < RETRY_S
            most = here if pool.spot is None or refused else min(room, goal.most_in_pool or room)
            columns.append(_column(pool, PurchaseOption.SPOT, pool.spot or 0.0, lost, max(most, here), room))
    sold = [pool for pool in pools if pool.on_demand is not None]
    free = [pool for pool in sold if pool.room is None or pool.room > sum(held[pool.name, o] for o in PurchaseOption)]
    cheapest = sorted(free, key=lambda pool: pool.on_demand or 0.0)
    room_left = goal.target
    for pool in (*cheapest, *(pool for pool in pools if pool not in cheapest)):
        here = held[pool.name, PurchaseOption.ON_DEMAND]
        room = goal.target + goal.spare if pool.room is None else pool.room
        if here or (pool in cheapest and room_left > 0):
            most = room if pool in cheapest and room_left > 0 else here
            columns.append(_column(pool, PurchaseOption.ON_DEMAND, pool.on_demand or 0.0, 0.0, max(most, here), room))
            room_left -= room
    return tuple(columns)


def _lost_within(seconds: float, age_s: float, rates: Rates) -> float:
    """The chance that spot which has been up for `age_s` is lost within `seconds`."""
    until = age_s + seconds
    ends = (*rates.ages_s[1:], math.inf)
    risk = sum(
        rate * max(0.0, min(end, until) - max(begin, age_s))
        for begin, end, rate in zip(rates.ages_s, ends, rates.per_s, strict=True)
        if begin < until and end > age_s
    )
    return -math.expm1(-risk)


def _column(pool: Pool, option: PurchaseOption, price: float, lost: float, most: int, room: int) -> Column:
    return Column(pool.name, option, pool.region, price, lost, pool.cold_start_s, most, room)


def _launches(
    pools: Sequence[Pool], wanted: Mapping[tuple[str, PurchaseOption], int], replicas: Sequence[Replica]
) -> Iterator[Launch]:
    """What is wanted and not there, as far as it fits beside what is still there."""
    held = Counter((replica.pool, replica.option) for replica in replicas)
    free = {
        p.name: math.inf if p.room is None else p.room - sum(held[p.name, o] for o in PurchaseOption) for p in pools
    }
    for (pool, option), count in wanted.items():
        for _ in range(int(min(count - held[pool, option], max(0, free[pool])))):
            free[pool] -= 1
            yield Launch(pool, option)


def _drops(
    goal: Goal, wanted: Mapping[tuple[str, PurchaseOption], int], replicas: Sequence[Replica]
) -> tuple[str, ...]:
    """The surplus of each column, what is not ready first, then the youngest; as many as wanted stay ready."""
    ready = sum(replica.ready for replica in replicas)
    surplus = Counter((replica.pool, replica.option) for replica in replicas)
    for column, count in wanted.items():
        surplus[column] -= count
    dropped = []
    for replica in sorted(replicas, key=lambda each: (each.ready, -each.began_at, each.id)):
        column = (replica.pool, replica.option)
        if surplus[column] <= 0 or (replica.ready and ready <= goal.target):
            continue
        surplus[column] -= 1
        ready -= replica.ready
        dropped.append(replica.id)
    return tuple(dropped)


def _why(
    goal: Goal,
    pools: Sequence[Pool],
    replicas: Sequence[Replica],
    launch: tuple[Launch, ...],
    drop: tuple[str, ...],
    before: float,
    after: float,
) -> str:
    """One sentence: what is there, what is done, and what that does to the chance of falling short."""
    ready = sum(replica.ready for replica in replicas)
    minutes = max((pool.cold_start_s for pool in pools), default=0.0) / 60
    parts = [f"{ready} of {goal.target} replicas are ready"]
    if starting := len(replicas) - ready:
        parts[0] += f", {starting} starting"
    if launch:
        where = Counter(f"{each.option} in {each.pool}" for each in launch)
        parts.append("launches " + ", ".join(f"{number} {name}" for name, number in where.items()))
    if drop:
        parts.append(f"drops {len(drop)}, which {'is' if len(drop) == 1 else 'are'} no longer worth the price")
    if len(replicas) + len(launch) - len(drop) < goal.target:
        parts.append("no pool has room for more now")
    chance = f"the chance to fall short in the next {minutes:.0f} min is {_share(after)}"
    if launch:
        chance += f" instead of {_share(before)}"
    return "; ".join((*parts, chance))


def _share(chance: float) -> str:
    return "under 0.1 %" if chance < 0.001 else f"{100 * min(chance, 1.0):.1f} %"
