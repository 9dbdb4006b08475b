"""The rules that are replayed: published ones as they are told, and Cumulo's.

SpotHedge: Mao et al., "SkyServe: Serving AI Models across Regions and Clouds with Spot Instances", EuroSys 2025. Each
missing replica has one try a tick, in an active zone: the first that is not in use, else the least used. A zone that
took or refused a replica becomes inactive; once fewer than two are active, all are. On-demand covers what spot lacks:
min(target, target + extra - ready spot).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.spot.replicas_world import Cloud, Zones
from cumulo.domain.run import PurchaseOption
from cumulo.market.hazards import Hazards
from cumulo.market.replicas import Goal, Plan, Pool, Replica, plan


@dataclass(slots=True)
class OneZone:
    """Everything in one zone, on spot alone."""

    zone: int
    target: int

    def step(self, cloud: Cloud, lost: Sequence[int]) -> None:
        for _ in range(self.target - len(cloud.held)):
            cloud.launch(self.zone)


@dataclass(slots=True)
class EvenSpread:
    """Round robin over all zones, on spot alone: each missing replica has one try a tick, in the next zone."""

    target: int
    _next: int = 0

    def step(self, cloud: Cloud, lost: Sequence[int]) -> None:
        for _ in range(self.target - len(cloud.held)):
            cloud.launch(self._next % len(cloud.zones.names))
            self._next += 1


@dataclass(slots=True)
class SpotHedge:
    """`order` ranks the zones. `spread` False: where all active zones are in use, the first rather than the least.
    `tries` is how often each missing replica may be asked for in a tick."""

    target: int
    order: tuple[int, ...]
    extra: int = 1
    spread: bool = True
    tries: int = 1
    _inactive: set[int] = field(default_factory=set)

    def step(self, cloud: Cloud, lost: Sequence[int]) -> None:
        for zone in lost:
            self._leave(zone)
        for _ in range(self.target + self.extra - len(cloud.spot)):
            for _ in range(self.tries):
                zone = self._choose(Counter(each.zone for each in cloud.spot))
                if cloud.launch(zone):
                    break
                self._leave(zone)
        ready = sum(cloud.is_ready(each) for each in cloud.spot)
        wanted = min(self.target, self.target + self.extra - ready)
        for replica in cloud.on_demand[wanted:]:
            cloud.drop(replica)
        for _ in range(wanted - len(cloud.on_demand)):
            cloud.launch(None)

    def _choose(self, used: Counter[int | None]) -> int:
        active = [zone for zone in self.order if zone not in self._inactive]
        free = [zone for zone in active if not used[zone]]
        if free:
            return free[0]
        return min(active, key=lambda zone: used[zone]) if self.spread else active[0]

    def _leave(self, zone: int) -> None:
        self._inactive.add(zone)
        if len(self.order) - len(self._inactive) < 2:
            self._inactive.clear()


@dataclass(slots=True)
class Cumulo:
    """`cumulo.market.replicas`, asked after every change and otherwise once a cold start.

    A refusal is answered within seconds, so the plan is asked again in the same tick, unless `one_round`.
    """

    goal: Goal
    pools: tuple[Pool, ...]
    one_round: bool = False
    _down_at: dict[int, float] = field(default_factory=dict)
    _quiet: int = 0

    def step(self, cloud: Cloud, lost: Sequence[int]) -> None:
        now = cloud.tick * cloud.zones.gap_s
        self._down_at |= dict.fromkeys(lost, now)
        news = any(cloud.tick - each.began == cloud.cold_ticks for each in cloud.held)
        self._quiet += 1
        if not lost and not news and len(cloud.held) >= self.goal.target and self._quiet < cloud.cold_ticks:
            return
        for _ in range(1 if self.one_round else len(self.pools) + 1):
            found = self._plan(cloud, now)
            refused = [zone for zone in self._launched(cloud, found) if zone is not None]
            self._down_at |= dict.fromkeys(refused, now)
            if not refused:
                break
        if not found.launch:
            self._quiet = 0
        for replica in [each for each in cloud.held if each.id in found.drop]:
            cloud.drop(replica)

    def _plan(self, cloud: Cloud, now: float) -> Plan:
        names = cloud.zones.names
        pools = [
            Pool(
                name=pool.name,
                region=pool.region,
                spot=pool.spot,
                on_demand=pool.on_demand,
                cold_start_s=pool.cold_start_s,
                hazards=pool.hazards,
                down_at=self._down_at.get(zone),
            )
            for zone, pool in enumerate(self.pools)
        ]
        replicas = [
            Replica(
                id=each.id,
                pool=names[0 if each.zone is None else each.zone],
                option=PurchaseOption.ON_DEMAND if each.zone is None else PurchaseOption.SPOT,
                ready=cloud.is_ready(each),
                began_at=each.began * cloud.zones.gap_s,
            )
            for each in cloud.held
        ]
        return plan(self.goal, pools=pools, replicas=replicas, now=now)

    def _launched(self, cloud: Cloud, found: Plan) -> list[int | None]:
        """Tries every launch and returns the zones that refused."""
        where = {name: zone for zone, name in enumerate(cloud.zones.names)}
        wanted = [None if each.option is PurchaseOption.ON_DEMAND else where[each.pool] for each in found.launch]
        return [zone for zone in wanted if not cloud.launch(zone)]


def cumulo_pools(
    zones: Zones, hazards: Sequence[Hazards], *, on_demand: float, cold_start_s: float
) -> tuple[Pool, ...]:
    """The zones as pools: spot at 1, on-demand in any of them."""
    return tuple(
        Pool(name=name, region=region, spot=1.0, on_demand=on_demand, cold_start_s=cold_start_s, hazards=of_zone)
        for name, region, of_zone in zip(zones.names, zones.regions, hazards, strict=True)
    )
