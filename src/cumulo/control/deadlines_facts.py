"""What a course is charted from, as far as the picture tells: what a unit runs on, its pool, prices, and room."""

from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

from cumulo.catalog.terms import list_terms
from cumulo.control.deadlines_work import first_of
from cumulo.control.deciding import decide, doomed, in_turn
from cumulo.control.hazards import pool_of
from cumulo.control.live import LiveInstance, LiveRun, LiveUnit, Picture
from cumulo.control.prices import Pool
from cumulo.control.promising import market_of
from cumulo.control.rates import Rates
from cumulo.control.yielding import makes_room
from cumulo.domain.ask import Ask
from cumulo.domain.lifecycle import RunStatus
from cumulo.domain.run import PurchaseOption, RunSpec
from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.market.deadline import Choice
from cumulo.placement.fit import Place, admitted_kinds, choose
from cumulo.placement.forecast import expect
from cumulo.placement.purchase import Purchases
from cumulo.placement.quota import least_milli
from cumulo.placement.refuse import Constraint
from cumulo.placement.world import Waiting, World

# What a start takes where this unit has not started yet; with an environment to prepare, that too.
START_S: Final = 2.0
PREPARE_S: Final = 60.0
# What a program is given to read its checkpoint and warm up: a hundredth of its work, at most this.
MOST_WARM_S: Final = 600.0


def runs_on(unit: LiveUnit | None) -> Choice:
    """What a unit runs on; WAIT for what waits, and for what is leaving or has just ended."""
    first = first_of(unit)
    if first is None or first.ended or first.stop_reason is not None:
        return Choice.WAIT
    return Choice.SPOT if first.purchase is PurchaseOption.SPOT else Choice.ON_DEMAND


def least_start(measured_s: float | None) -> float:
    """Seconds from a placement until the command runs, at the least: what is needed may be there already."""
    return START_S if measured_s is None else min(START_S, measured_s)


def start_of(spec: RunSpec, measured_s: float | None) -> float:
    """The same as it is reckoned with: as the last time, or with all there may be to prepare."""
    if measured_s is not None:
        return measured_s
    return START_S + (PREPARE_S if spec.setup or spec.requirements else 0.0)


def warm_up(work_s: float) -> float:
    """Seconds that are kept for what a program does at its start before it gets on."""
    return min(MOST_WARM_S, work_s / 100)


def pool(seen: Picture, ask: Ask, unit: LiveUnit | None = None) -> Pool:
    """The pool that a unit runs in, or would most likely: of several kinds the first by name."""
    first = first_of(unit)
    if first is not None:
        return pool_of(first)
    region = next((node_id.partition("/")[0] for node_id in seen.world.nodes), "")
    if ask.gpu is None:
        return Pool(region, "")
    kinds = seen.world.models() & (admitted_kinds(ask.gpu, seen.world) or seen.world.models())
    return Pool(region, min(kinds, default=""))


def spot_milli(seen: Picture, rates: Rates, where: Pool) -> int:
    """The spot price of a pool now, in thousandths of on-demand's.

    Where nothing is charged it is that of public clouds' lists: spot leaves the room of on-demand runs to others.
    """
    on_demand = rates.price_nano_h(where.kind, WHOLE_MILLI)
    if not on_demand:
        return list_terms(where.kind).spot_milli
    known = seen.prices.pools.get(where)
    spot = known.price_nano_h if known else rates.floor_nano_h(where.kind)
    return min(WHOLE_MILLI, WHOLE_MILLI * spot // on_demand)


def on_demand_price(seen: Picture, rates: Rates, ask: Ask, where: Pool) -> int:
    """What all that is asked for costs an hour on-demand in nano-USD; 0 where nothing is charged."""
    if ask.gpu is None or all(use.node.emulated for use in seen.world.nodes.values()):
        return 0
    return rates.price_nano_h(where.kind, least_milli(ask))


def fits(seen: Picture, ask: Ask) -> bool:
    """Whether there is idle room for it now."""
    return choose(seen.world, ask) is not None


class Room(NamedTuple):
    """Seconds until there is room on-demand (inf: nobody can tell). `barred`: none that is free is for on-demand."""

    in_s: float
    barred: bool = False


AT_ONCE: Final = Room(0.0)


def on_demand_room(seen: Picture, waiting: Waiting, now: float) -> Room:
    """When there is room for it as an on-demand run, made by spot runs or not."""
    if fits(seen, waiting.ask) and not market_of(seen).promised:
        return AT_ONCE
    target = replace(waiting, purchase=PurchaseOption.ON_DEMAND)
    others = [each for each in seen.waiting(now, 64) if each.key != target.key]
    queue = list(in_turn(seen, [*others, target], now))
    decided = decide(seen, queue, now)
    room = makes_room(seen, decided, target.key, now)
    if room is not None:
        return Room(max(0.0, room.by - now))
    policy, past = seen.rules.policy, seen.learning.past
    expected = expect(seen.world, queue, target, decided, now=now, past=past, policy=policy)
    bars = [held.constraint for held in decided.held_back if held.waiting.key == target.key]
    return Room(inf if expected.likely is None else max(0.0, expected.likely - now), Constraint.RESERVED in bars)


def may_be_on_demand(seen: Picture, run: LiveRun, unit: LiveUnit, now: float) -> bool:
    """Whether what runs may be bought on-demand where it is: not on what is reserved, which spot only borrows."""
    market = market_of(seen)
    if not market.promised:
        return True
    target = replace(waiting_of(run, unit.place), purchase=PurchaseOption.ON_DEMAND)
    places = tuple(
        Place(
            node_id=each.node_id,
            slices=each.slices,
            cpus_milli=each.cpus_milli,
            memory_bytes=each.memory_bytes,
            device_model=each.device_model,
        )
        for each in unit.instances.values()
    )
    return Purchases(seen.world, market, now).exceeded(target, places) is None


def would_go(seen: Picture, instances: list[LiveInstance], now: float) -> bool:
    """Whether these instances would be stopped at once for somebody who waits, if they were spot."""
    trial: World = seen.world.copy()
    for instance in instances:
        hold = trial.holds[instance.id]
        trial.release(instance.id)
        trial.hold(replace(hold, purchase=PurchaseOption.SPOT))
    gone = doomed(decide(replace(seen, world=trial), seen.waiting(now, 64), now))
    return any(instance.id in gone for instance in instances)


def most_grace(seen: Picture) -> float:
    """How long it takes at most until what runs as spot has made room."""
    spot = (each.run_id for each in seen.instances.values() if each.purchase is PurchaseOption.SPOT)
    return max((seen.runs[run_id].spec.grace_s for run_id in set(spot)), default=0.0)


def waiting_of(run: LiveRun, place: int) -> Waiting:
    """A unit as it would stand in the queue."""
    unit = run.units.get(place)
    return run.waits_as(place if unit else run.units_started, (unit.attempts if unit else 0) + 1)


def new_run(run_id: str, spec: RunSpec, now: float) -> LiveRun:
    """A run as it is when it is accepted."""
    return LiveRun(
        id=run_id,
        spec=spec,
        account="",
        unix_uid=None,
        status=RunStatus.QUEUED,
        wanted="running",
        accepted_at=now,
        waits_for=set(),
        units_started=0,
        attempts=0,
        placed_at=None,
        started_at=None,
        cost_nano=0,
        rental_nano=0,
    )
