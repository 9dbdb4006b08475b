"""Those that make room for others: they are stopped, go back to the queue, and the room is kept for whom they left.

What a pass decided is promised until it is done: the attempts that leave are stopped with the attempt's name that they
leave for, which the store keeps, so that a control plane that comes after this one knows whose room it is.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cumulo.control.deciding import MOST_PER_STEP
from cumulo.control.live import LiveInstance, LiveRun, LiveUnit, Picture
from cumulo.control.moves import set_run, set_unit, stop_instance, tell
from cumulo.domain.instance import parse_instance_id
from cumulo.domain.lifecycle import EndReason, RunStatus
from cumulo.placement.clearing import leaving
from cumulo.placement.fit import choose
from cumulo.placement.order import Pass
from cumulo.placement.preempt import Preemption, Victim
from cumulo.placement.reserve import held_places
from cumulo.placement.room import Move, Room
from cumulo.placement.world import Waiting
from cumulo.store.batch import Batch

# What binds a unit whose room others have yet to leave, beside the constraints of placement.
PREEMPTION: Final = "preemption"

Key = tuple[str, int, int]


def _found(decided: Pass) -> list[Preemption | Room]:
    return [*decided.preemptions, *decided.rooms]


def carry_out(seen: Picture, batch: Batch, queue: Iterable[Waiting], decided: Pass, now: float) -> None:
    """Stops those that make room, and keeps what was promised before for as long as it can still be."""
    placed = {decision.waiting.key for decision in decided.decisions}
    waits = {waiting.key for waiting in queue} - placed
    promised = {
        found.waiting.key: found
        for found in seen.promises
        if found.waiting.key in waits and any(name in seen.world.holds for name in leaving(found))
    }
    for found in _found(decided):
        there = [name for name in leaving(found) if name in seen.world.holds]
        if all(name in seen.instances for name in there):  # what is nobody's (a leak) can't be asked to leave
            promised[found.waiting.key] = found
            _stop(seen, batch, found, [seen.instances[name] for name in there], now)
    seen.promises = list(promised.values())


def _stop(seen: Picture, batch: Batch, found: Preemption | Room, instances: list[LiveInstance], now: float) -> None:
    told: set[str] = set()
    for instance in instances:
        run, _ = seen.unit_of(instance)
        if instance.stop_reason is None and run.id not in told:
            told.add(run.id)
            tell(batch, run, "run.preempted", f"{run.spec.name} {_in_words(found)}", now, instance)
        instance.stopped_for = _name(found.waiting)
        instance.preempt_at = now + run.spec.grace_s
        batch.instance(instance.id, stopped_for=instance.stopped_for, preempt_at=instance.preempt_at)
        stop_instance(batch, run, instance, EndReason.PREEMPTED, None, now)


def _in_words(found: Preemption | Room) -> str:
    how = "is moved" if isinstance(found, Room) else "was preempted"
    return f"{how} to make room for {found.waiting.name} ({found.waiting.key[0]})"


def requeue(batch: Batch, run: LiveRun, unit: LiveUnit, now: float) -> None:
    """The attempt made room for another: the unit waits for its turn again. That counts as no failure."""
    unit.preemptions += 1
    unit.not_before = now
    set_unit(batch, run, unit, RunStatus.RECOVERING, not_before=now, preemptions=unit.preemptions)
    if len(run.units) == 1 and run.spec.array is None:
        set_run(batch, run, RunStatus.RECOVERING)
    tell(batch, run, "run.recovering", f"attempt {unit.attempts} made room for another; it is queued again", now)


# ---- what is under way ----------------------------------------------------------------------------------------------


def restore(seen: Picture, now: float) -> None:
    """Promises anew what was under way, by a picture that was just read."""
    by_name: dict[str, list[LiveInstance]] = {}
    for instance in seen.instances.values():
        if instance.stopped_for is not None:
            by_name.setdefault(instance.stopped_for, []).append(instance)
    trial = seen.world.copy()
    for instances in by_name.values():
        for instance in instances:
            trial.release(instance.id)
    seen.promises = []
    for name, instances in sorted(by_name.items()):
        waiting = _waiting(seen, name, now)
        places = choose(trial, waiting.ask) if waiting else None
        if waiting is not None and places is not None:
            for hold in held_places(waiting, places):
                trial.hold(hold)
            victims = tuple(_victim(seen, instance) for instance in instances)
            seen.promises.append(Preemption(waiting=waiting, victims=victims, places=places))


def _name(waiting: Waiting) -> str:
    return "-".join(map(str, waiting.key))


def _waiting(seen: Picture, name: str, now: float) -> Waiting | None:
    """Who room is made for, unless it does not wait any more."""
    run_id, place, attempt, _ = parse_instance_id(f"{name}-0")
    run = seen.runs.get(run_id)
    waits = run.waiting(now, MOST_PER_STEP) if run else ()
    return next((each for each in waits if each.key == (run_id, place, attempt)), None)


def _victim(seen: Picture, instance: LiveInstance) -> Victim:
    return Victim(
        attempt=instance.id.rpartition("-")[0],
        run_id=instance.run_id,
        run_name=seen.runs[instance.run_id].spec.name,
        instance_ids=(instance.id,),
        lost_gpu_s=0.0,
    )


class MakesRoom(NamedTuple):
    """Who makes room for a unit, in words, and when all have left at the latest."""

    text: str
    by: float


def makes_room(seen: Picture, decided: Pass, key: Key, now: float) -> MakesRoom | None:
    """Who leaves for a unit, or would by what a pass decides; None if nobody does."""
    promised = next((found for found in seen.promises if found.waiting.key == key), None)
    found = promised or next((found for found in _found(decided) if found.waiting.key == key), None)
    if found is None:
        return None
    leave = dict.fromkeys((each.run_name, each.run_id) for each in _leaving(found))
    names = ", ".join(f"{name} ({run_id})" for name, run_id in leave)
    if promised is None:
        how = f"would be {'moved' if isinstance(found, Room) else 'stopped'}"
    else:
        how = f"{'is' if len(leave) == 1 else 'are'} stopping"
    grace_s = max((seen.runs[run_id].spec.grace_s for _, run_id in leave if run_id in seen.runs), default=0.0)
    return MakesRoom(f"{names} {how} to make room for it", now + grace_s)


def _leaving(found: Preemption | Room) -> Sequence[Move | Victim]:
    return found.moves if isinstance(found, Room) else found.victims


def yields_to(seen: Picture, run: LiveRun) -> str:
    """For whom a run is being stopped, in words; empty if for nobody."""
    for unit in run.units.values():
        for instance in unit.instances.values():
            if instance.stopped_for is not None and instance.stop_reason is EndReason.PREEMPTED:
                other = instance.stopped_for.partition("-")[0]
                known = seen.runs.get(other)
                return f"{known.spec.name} ({other})" if known else other
    return ""
