"""What would happen to a run if it were submitted now: where it could go, at what price, and what to be warned of."""

from dataclasses import replace

from cumulo.control.answers import Choice, Plan
from cumulo.control.explain import check_gpu_names, explained, waiting_units
from cumulo.control.live import Picture
from cumulo.control.pricing import check_bid, price_of
from cumulo.control.rates import Rates
from cumulo.control.scheduling import rental_nano_h
from cumulo.domain.ask import Ask
from cumulo.domain.run import PurchaseOption, RunSpec
from cumulo.domain.sharing import described, share_milli
from cumulo.placement.fit import choose
from cumulo.placement.order import hold_places
from cumulo.placement.world import Waiting, World


def plan(seen: Picture, spec: RunSpec, rates: Rates, now: float) -> Plan:
    """What would happen to `spec` if it were submitted now. Raises CumuloError `unknown_gpu`, `invalid_run_file`."""
    check_gpu_names(spec.ask.gpu, seen.world)
    check_bid(seen.world, spec, rates)
    spec = _with_reservation(seen, spec)
    queue = waiting_units(seen, now)
    target = as_waiting(spec, now)
    told = explained(seen, queue, target, now)
    why, expected, change = told.why, told.expected, told.change
    return Plan(
        name=spec.name,
        kind=str(spec.kind),
        ask=spec.ask.describe(),
        units=spec.units(),
        nodes=spec.ask.nodes,
        satisfiable=why.ever,
        starts_now=told.starts,
        queue_position=0 if told.starts else told.ahead + 1,
        choices=tuple(_choices(seen, spec, rates)),
        problems=() if told.starts else (told.room or why.summary(),),
        suggestions=(change.text,) if change else (),
        warnings=tuple(_warnings(seen.world, spec)),
        purchase=str(spec.purchase),
        max_price_nano_h=spec.max_price_nano_h,
        runtime=spec.runtime,
        max_duration_s=spec.max_duration_s,
        expected_start=expected.likely,
        expected_from=expected.low,
        expected_to=expected.high,
        expected_text=expected.text,
    )


def as_waiting(spec: RunSpec, now: float) -> Waiting:
    """A run that was not submitted as it would stand in the queue."""
    return Waiting(
        key=("~", 0, 1),
        name=spec.name,
        ask=spec.ask,
        priority=spec.priority,
        accepted_at=now,
        duration_s=spec.max_duration_s,
        project=spec.project,
        purchase=spec.purchase,
        bid_nano_h=spec.max_price_nano_h,
        reservation=spec.reservation,
        migratable=spec.migratable,
    )


def _with_reservation(seen: Picture, spec: RunSpec) -> RunSpec:
    """The spec with its reservation as an id, as far as there is one of that name."""
    own = (one for one in seen.reservations.values() if one.project == spec.project)
    return replace(spec, reservation=next((one.id for one in own if one.name == spec.reservation), spec.reservation))


def _choices(seen: Picture, spec: RunSpec, rates: Rates) -> list[Choice]:
    """Where it could go now, best first: one line for each node placement would take in turn."""
    world, ask = seen.world, spec.ask
    trial = world.copy()
    found: list[Choice] = []
    while len(found) < 8 and (places := choose(trial, ask)) is not None:
        first, use = places[0], world.nodes[places[0].node_id]
        milli, model = sum(share_milli(spot.slices) for spot in places), first.device_model
        emulated = use.node.emulated
        label = f"{described(model, first.slices)}{' (emulated)' if emulated else ''}" if milli else "no GPU"
        names = [use.node.name] + [world.nodes[spot.node_id].node.name for spot in places[1:]]
        found.append(
            Choice(
                region=use.id.partition("/")[0],
                node=", ".join(names[:3]) + (f" +{len(names) - 3}" if len(names) > 3 else ""),
                devices=label if len(places) == 1 else f"{len(places)} nodes x {label}",
                price_nano_h=price_of(
                    seen,
                    rates,
                    node_id=use.id,
                    kind=model,
                    milli=milli,
                    option=spec.purchase,
                    bid_nano_h=spec.max_price_nano_h,
                ),
                rental_nano_h=None if emulated else rental_nano_h(model, milli) or None,
                free=_how_many(trial, ask, first.node_id),
            )
        )
        for spot in places:
            del trial.nodes[spot.node_id]
    return found


def _how_many(world: World, ask: Ask, node_id: str) -> int:
    """How many such instances the node takes now, counted up to 64."""
    alone = World(nodes={node_id: world.nodes[node_id].copy()})
    single = replace(ask, nodes=1)
    for number in range(64):
        places = choose(alone, single)
        if places is None:
            return number
        waiting = Waiting(key=("~", number, 1), name="", ask=single, priority=0, accepted_at=0.0)
        hold_places(alone, waiting, places)
    return 64


def _warnings(world: World, spec: RunSpec) -> list[str]:
    warnings = []
    if any(use.node.emulated for use in world.nodes.values()) and spec.ask.gpu is not None:
        warnings.append("the GPUs here are emulated: they are counted and accounted for, but compute nothing")
    if spec.purchase is PurchaseOption.SPOT:
        warnings.append("spot runs are stopped when others need their room; it would be queued again")
    if spec.retry is None and spec.ask.nodes > 1:
        warnings.append("without `retry` the run ends when one of its nodes does")
    return warnings
