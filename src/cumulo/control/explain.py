"""Plans, reasons, the queue and offers: worked out from the loop's picture when somebody asks."""

from collections import Counter
from dataclasses import replace

from cumulo.catalog.kinds import resolve
from cumulo.catalog.kinds import suggest as suggest_kinds
from cumulo.control.answers import Ahead, Change, Choice, Count, NodeAnswer, Plan, Why
from cumulo.control.live import LiveRun, Picture
from cumulo.control.scheduling import STRETCH, Rates, decide, rental_nano_h
from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import RunStatus
from cumulo.domain.names import printable
from cumulo.domain.quantities import format_duration
from cumulo.domain.run import PurchaseOption, RunSpec
from cumulo.domain.sharing import WHOLE_MILLI, Slice, described, share_milli
from cumulo.placement.explain import Reasons, explain
from cumulo.placement.fit import choose
from cumulo.placement.forecast import Expectation, expect
from cumulo.placement.order import hold_places
from cumulo.placement.refuse import Constraint
from cumulo.placement.suggest import Suggestion, suggest
from cumulo.placement.world import Waiting, World, in_order

# How many of the runs ahead are told by name, and how far the queue is played forward for an estimate.
MOST_AHEAD = 20
MOST_QUEUED = 2000


def waiting_units(seen: Picture, now: float) -> list[Waiting]:
    """All that waits to be placed, in order; of an array its next few."""
    return in_order(seen.waiting(now, 64))[:MOST_QUEUED]


def check_gpu_names(gpu: GpuAsk | None, world: World) -> None:
    """Raises CumuloError `unknown_gpu` for a name that neither the catalogue nor this cloud knows."""
    for name in gpu.names if gpu else ():
        if resolve(name, present=world.models()):
            continue
        close = suggest_kinds(name)
        hint = f"did you mean {' or '.join(close)}?" if close else "see `cumulo offers` for what is there"
        raise CumuloError("unknown_gpu", f"no GPU is called {printable(name)!r}", hint=hint)


# ---- plans ----------------------------------------------------------------------------------------------------------


def plan(seen: Picture, spec: RunSpec, rates: Rates, now: float) -> Plan:
    """What would happen to `spec` if it were submitted now. Raises CumuloError `unknown_gpu`."""
    check_gpu_names(spec.ask.gpu, seen.world)
    queue = waiting_units(seen, now)
    target = as_waiting(spec, now)
    why, expected, change = _explained(seen, queue, target, now)
    starts = expected.likely is not None and expected.likely <= now
    ahead = sum(other.order < target.order for other in queue)
    return Plan(
        name=spec.name,
        kind=str(spec.kind),
        ask=spec.ask.describe(),
        units=spec.units(),
        nodes=spec.ask.nodes,
        satisfiable=why.ever,
        starts_now=starts,
        queue_position=0 if starts else ahead + 1,
        choices=tuple(_choices(seen.world, spec.ask, rates)),
        problems=() if starts else (why.summary(),),
        suggestions=(change.text,) if change else (),
        warnings=tuple(_warnings(seen.world, spec)),
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
    )


def _explained(
    seen: Picture, queue: list[Waiting], target: Waiting, now: float
) -> tuple[Reasons, Expectation, Suggestion | None]:
    """Why `target` waits beside `queue`, when it starts, and what would start it now."""
    everybody = in_order([*(each for each in queue if each.key != target.key), target])
    decided = decide(seen.world, everybody)
    why = explain(seen.world, target, decided)
    expected = expect(seen.world, everybody, target, decided, now=now, past=seen.learning.past, stretch=STRETCH)
    starts = any(decision.waiting.key == target.key for decision in decided.decisions)
    change = None if starts else suggest(seen.world, everybody, target, now=now, decide=decide)
    return why, expected, change


def _choices(world: World, ask: Ask, rates: Rates) -> list[Choice]:
    """Where it could go now, best first: one line for each node placement would take in turn."""
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
                price_nano_h=0 if emulated else rates.price_nano_h(model, milli),
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
        warnings.append("spot is taken as on-demand for now: nothing preempts it")
    if spec.retry is None and spec.ask.nodes > 1:
        warnings.append("without `retry` the run ends when one of its nodes does")
    return warnings


# ---- why ------------------------------------------------------------------------------------------------------------


def why_waiting(seen: Picture, run: LiveRun, now: float) -> Why:
    """Why a run that is not over stands where it does."""
    if run.waits_for:
        names = [f"{seen.runs[i].spec.name} ({i})" if i in seen.runs else i for i in sorted(run.waits_for)]
        return _plain(run, f"it comes after {', '.join(names)}, which has not ended", binding="after")
    if run.status is RunStatus.STOPPED:
        return _plain(run, "it is stopped; `cumulo start` queues it again")
    mine = run.waiting(now, 1)
    if mine and mine[0].key in seen.leaked:
        text = "an earlier instance of it that the store has forgotten still runs; it starts once that has ended"
        return _plain(run, text, binding="leak")
    if mine:
        return _why_unplaced(seen, run, mine[0], now)
    later = [unit.not_before for unit in run.units.values() if not unit.instances and unit.not_before]
    if later and not any(unit.instances for unit in run.units.values()):
        left = format_duration(min(later) - now)
        return _plain(run, f"attempt {run.attempts} ended; the next begins in {left}", binding="backoff")
    return _plain(run, _active_text(run, now))


def _plain(run: LiveRun, summary: str, binding: str | None = None) -> Why:
    return Why(run_id=run.id, status=str(run.status), summary=summary, binding=binding)


def _active_text(run: LiveRun, now: float) -> str:
    instances = [instance for unit in run.units.values() for instance in unit.instances.values()]
    states = Counter(str(instance.state) for instance in instances)
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common())
    if run.status is RunStatus.STOPPING:
        return f"it is stopping: its instances ({counted}) have their grace to end by themselves"
    parallel = run.spec.array.parallel if run.spec.array else None
    if parallel and not run.all_started and len(run.units) >= parallel:
        left = run.spec.units() - run.units_started
        return f"{parallel} indices run at once as its %{parallel} says; {left} wait for their turn"
    stands = f"it is {run.status}"
    if run.started_at:
        stands = f"it has been {run.status} for {format_duration(now - run.started_at)}"
    return f"{stands}: {counted}" if len(instances) > 1 else stands


def _why_unplaced(seen: Picture, run: LiveRun, target: Waiting, now: float) -> Why:
    queue = waiting_units(seen, now)
    why, expected, change = _explained(seen, queue, target, now)
    seen.learning.tell(target.key, now, expected.raw)
    text = why.summary()
    if why.binding is None:
        text = "it fits now and is about to start" if why.starts else "it would fit, but those ahead take the room"
    if not why.ever:
        text = f"no node here can ever take it: {text}"
    return Why(
        run_id=run.id,
        status=str(run.status),
        summary=text,
        binding=str(why.binding) if why.binding else None,
        counts=tuple(_counts(why)),
        nodes=tuple(_node_answers(why)),
        ahead=tuple(_ahead(seen, why, queue, target, now)),
        expected_start=expected.likely,
        expected_from=expected.low,
        expected_to=expected.high,
        expected_text=expected.text,
        suggestion=Change(text=change.text, change=change.change) if change else None,
    )


_CONSTRAINT_TEXT = {
    Constraint.GPU_KIND: "no such GPU",
    Constraint.ISOLATION: "can't be isolated as asked",
    Constraint.GPU_SHARING: "that GPU can't be shared as asked",
    Constraint.GPU_TOTAL: "too few of that GPU",
    Constraint.CPU_TOTAL: "too few CPUs",
    Constraint.MEMORY_TOTAL: "too little memory",
    Constraint.NODE_STATE: "not ready",
    Constraint.GPU_HEALTH: "GPUs that can't be used",
    Constraint.GPU_HELD: "others hold the GPUs",
    Constraint.CPU_HELD: "others hold the CPUs",
    Constraint.MEMORY_HELD: "others hold the memory",
    Constraint.NODES: "room for one instance, but too few such nodes at once",
    Constraint.QUOTA: "its project holds all that it may",
    Constraint.RESERVATION: "the room is kept for who is next",
}


def _counts(why: Reasons) -> list[Count]:
    total = len(why.refusals) + len(why.fitting)
    rows = [
        Count(constraint=str(constraint), nodes=nodes, text=f"{nodes} of {total} nodes: {_CONSTRAINT_TEXT[constraint]}")
        for constraint, nodes in why.counts()
    ]
    if why.fitting and why.binding is Constraint.NODES:
        rows.append(Count(constraint=str(Constraint.NODES), nodes=len(why.fitting), text=why.fitting_text))
    return rows


def _node_answers(why: Reasons) -> list[NodeAnswer]:
    fits = [NodeAnswer(node=node, fits=True, text="fits") for node in why.fitting]
    return fits + [NodeAnswer(node=r.node_id, fits=False, text=r.text) for r in why.refusals]


def _ahead(seen: Picture, why: Reasons, queue: list[Waiting], target: Waiting, now: float) -> list[Ahead]:
    """Who holds what it needs, and who waits before it."""
    blocking = {r.node_id for r in why.refusals if not r.constraint.lasting}
    found: dict[str, Ahead] = {}
    for hold in seen.world.holds.values():
        if hold.node_id not in blocking or hold.run_id in found:
            continue
        if hold.until is None:
            left = "no end declared"
        else:
            left = f"ends in {format_duration(max(0.0, hold.until - now))} at the latest"
        gpus = f"{_held_of(hold.slices)} of " if hold.slices else ""
        found[hold.run_id] = Ahead(
            run_id=hold.run_id, name=hold.run_name, text=f"holds {gpus}{hold.node_id.partition('/')[2]}, {left}"
        )
    for other in queue:
        if other.order < target.order and other.key[0] != target.key[0] and other.key[0] not in found:
            text = f"waits before it (priority {other.priority})"
            found[other.key[0]] = Ahead(run_id=other.key[0], name=other.name, text=text)
    return list(found.values())[:MOST_AHEAD]


def _held_of(slices: tuple[Slice, ...]) -> str:
    """`2 GPUs`, `0.25 GPU`, `2 1g.10gb slices`."""
    first, several = slices[0], "s" if len(slices) > 1 else ""
    if first.mode.fraction:
        return f"{first.milli / WHOLE_MILLI:g} GPU"
    return f"{len(slices)} {first.profile} slice{several}" if first.profile else f"{len(slices)} GPU{several}"
