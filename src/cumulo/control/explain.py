"""Why a run stands where it does, worked out from the loop's picture when somebody asks."""

from collections import Counter
from dataclasses import replace
from itertools import islice, takewhile
from typing import Final, NamedTuple

from cumulo.catalog.kinds import resolve, unknown_gpu
from cumulo.control.answers import Ahead, Change, Count, NodeAnswer, Why
from cumulo.control.attempts import Attempt
from cumulo.control.deadlines_told import deadline_of
from cumulo.control.deciding import decide, decider, in_turn
from cumulo.control.live import LiveRun, Picture
from cumulo.control.yielding import PREEMPTION, makes_room, yields_to
from cumulo.domain.ask import GpuAsk
from cumulo.domain.lifecycle import RunStatus
from cumulo.domain.quantities import format_duration
from cumulo.domain.sharing import WHOLE_MILLI, Slice
from cumulo.placement.explain import Reasons, explain
from cumulo.placement.forecast import Expectation, expect
from cumulo.placement.refuse import Constraint
from cumulo.placement.suggest import Suggestion, suggest
from cumulo.placement.world import Waiting, World

# What binds a unit that leaves alone the spot there is.
DEADLINE: Final = "deadline"
# How many of the runs ahead are told by name, and how far the queue is played forward for an estimate.
MOST_AHEAD = 20
MOST_QUEUED = 2000


def waiting_units(seen: Picture, now: float) -> list[Waiting]:
    """All that waits to be placed, in order; of an array its next few."""
    return list(islice(in_turn(seen, seen.waiting(now, 64), now), MOST_QUEUED))


def check_gpu_names(gpu: GpuAsk | None, world: World) -> None:
    """Raises CumuloError `unknown_gpu` for a name that neither the catalogue nor this cloud knows."""
    for name in gpu.names if gpu else ():
        if not resolve(name, present=world.models()):
            raise unknown_gpu(name)


class Explained(NamedTuple):
    """What is to be said of a unit that waits: why, when it starts, what would start it now, who makes room for it."""

    why: Reasons
    expected: Expectation
    change: Suggestion | None
    starts: bool
    room: str
    ahead: int  # how many have their turn before it


def explained(seen: Picture, queue: list[Waiting], target: Waiting, now: float) -> Explained:
    """Why `target` waits beside `queue`, when it starts, and what would start it now."""
    others = (each for each in queue if each.key != target.key)
    everybody = list(in_turn(seen, [*others, target], now))
    decided = decide(seen, everybody, now)
    starts = any(decision.waiting.key == target.key for decision in decided.decisions)
    room = makes_room(seen, decided, target.key, now)
    past, policy = seen.learning.past, seen.rules.policy
    if room is None or starts:
        expected = expect(seen.world, everybody, target, decided, now=now, past=past, policy=policy)
    else:
        expected = Expectation(low=now, likely=room.by, high=room.by, text="once they have left, by then at the latest")
    return Explained(
        why=explain(seen.world, target, decided),
        expected=expected,
        change=None if starts or room else suggest(seen.world, everybody, target, now=now, decide=decider(seen, now)),
        starts=starts,
        room=room.text if room else "",
        ahead=[each.key for each in everybody].index(target.key),
    )


# ---- why ------------------------------------------------------------------------------------------------------------


def why_waiting(seen: Picture, run: LiveRun, now: float) -> Why:
    """Why a run that is not over stands where it does."""
    return replace(_why_now(seen, run, now), deadline=deadline_of(run))


def last_attempt(run: LiveRun) -> Attempt | None:
    """What became of the attempt before; None for an array, where it is one of many."""
    unit = run.units.get(0) if run.spec.array is None else None
    return unit.past[-1] if unit and unit.past else None


def _why_now(seen: Picture, run: LiveRun, now: float) -> Why:
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
    if run.held:
        return _plain(run, f"it {run.charted[min(run.held)].course.why}", binding=DEADLINE)
    later = [unit.not_before for unit in run.units.values() if not unit.instances and unit.not_before]
    if later and not any(unit.instances for unit in run.units.values()):
        left = format_duration(min(later) - now)
        return _plain(run, f"attempt {run.attempts} ended; the next begins in {left}", binding="backoff")
    return _plain(run, _active_text(seen, run, now))


def _plain(run: LiveRun, summary: str, binding: str | None = None) -> Why:
    return Why(run_id=run.id, status=str(run.status), summary=summary, binding=binding)


def _active_text(seen: Picture, run: LiveRun, now: float) -> str:
    instances = [instance for unit in run.units.values() for instance in unit.instances.values()]
    states = Counter(str(instance.state) for instance in instances)
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common())
    if other := yields_to(seen, run):
        at = max((each.preempt_at for each in instances if each.preempt_at is not None), default=now)
        return f"it is being stopped to make room for {other}; it has {format_duration(max(0.0, at - now))} to leave"
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
    told = explained(seen, queue, target, now)
    why, expected, change = told.why, told.expected, told.change
    seen.learning.tell(target.key, now, expected.raw)
    text, binding = why.summary(), str(why.binding) if why.binding else None
    if told.room:
        text, binding = told.room, PREEMPTION
    elif why.binding is None:
        text = "it fits now and is about to start" if why.starts else "it would fit, but those ahead take the room"
    if not why.ever:
        text = f"no node here can ever take it: {text}"
    return Why(
        run_id=run.id,
        status=str(run.status),
        summary=text,
        binding=binding,
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
    Constraint.RESERVED: "the rest is reserved",
    Constraint.PRICE: "its bid is below the spot price",
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
    for other in takewhile(lambda each: each.key != target.key, queue):
        if other.key[0] != target.key[0] and other.key[0] not in found:
            text = f"waits before it (priority {other.priority})"
            found[other.key[0]] = Ahead(run_id=other.key[0], name=other.name, text=text)
    return list(found.values())[:MOST_AHEAD]


def _held_of(slices: tuple[Slice, ...]) -> str:
    """`2 GPUs`, `0.25 GPU`, `2 1g.10gb slices`."""
    first, several = slices[0], "s" if len(slices) > 1 else ""
    if first.mode.fraction:
        return f"{first.milli / WHOLE_MILLI:g} GPU"
    return f"{len(slices)} {first.profile} slice{several}" if first.profile else f"{len(slices)} GPU{several}"
