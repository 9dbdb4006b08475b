"""What an engine saw of an instance, taken in: states go forward only, usage opens and closes, progress is kept.

What follows for attempts, units and runs is `settling`'s business.
"""

import json
from dataclasses import asdict

from cumulo.control import metering
from cumulo.control.live import LiveInstance, LiveRun, Picture, hold_of
from cumulo.control.moves import move_instance, set_run, set_unit, tell
from cumulo.domain.instance import ObservedInstance
from cumulo.domain.lifecycle import EndReason, InstanceState, RunStatus, check_instance
from cumulo.domain.names import printable
from cumulo.domain.progress import Progress, parse_checkpoint, parse_line
from cumulo.store.batch import Batch

_STATES = tuple(InstanceState)


def observe(seen: Picture, batch: Batch, instance: LiveInstance, observed: ObservedInstance, now: float) -> None:
    """Takes in what an engine saw of an instance. States only go forward; what is known already changes nothing."""
    if instance.ended or observed is instance.last_seen:
        return
    instance.last_seen = observed
    run, _ = seen.unit_of(instance)
    if observed.started_at is not None and instance.started_at is None:
        _started(seen, batch, instance, observed.started_at)
    if observed.checkpoint is not None:  # also what it saved at the very end
        _observe_checkpoint(seen, batch, instance, observed.checkpoint, now)
    if observed.state is InstanceState.ENDED:
        end_instance(seen, batch, instance, observed, now)
    elif _STATES.index(observed.state) > _STATES.index(instance.state):
        move_instance(batch, run, instance, observed.state, now)
    if observed.progress is not None:
        observe_progress(batch, run, observed.progress, now)


def _started(seen: Picture, batch: Batch, instance: LiveInstance, at: float) -> None:
    run, unit = seen.unit_of(instance)
    instance.started_at = at
    batch.instance(instance.id, started_at=at)
    seen.world.declare_end(instance.id, hold_of(instance, run).until, started_at=at)
    metering.begin(batch, run, instance, at)
    if unit.started_at is None:
        unit.started_at = at
        batch.unit(run.id, unit.place, started_at=at)
    if run.started_at is None:
        run.started_at = at
        batch.run(run.id, started_at=at)
    if unit.status is RunStatus.STARTING and all(i.started_at is not None for i in unit.instances.values()):
        set_unit(batch, run, unit, RunStatus.RUNNING)
        if run.status is RunStatus.STARTING:
            set_run(batch, run, RunStatus.RUNNING)
            tell(batch, run, "run.running", f"{run.spec.name} is running", at, instance)


def observe_progress(batch: Batch, run: LiveRun, line: str, now: float) -> None:
    """`line` is the JSON that `domain.progress` gave or the run wrote; kept with its first value, for the rate, and
    with the furthest that it ever came to, since an attempt may begin further back."""
    progress = parse_line(line, now)
    last = run.last_progress
    if progress is None or (last and (last.done, last.total, last.metrics) == _values(progress)):
        return
    if (
        run.first_progress is None
        or progress.done < run.first_progress.done
        or progress.total != (last or progress).total
    ):
        run.first_progress = progress
    if run.furthest is None or progress.done > run.furthest.done or progress.total != run.furthest.total:
        run.furthest = progress
    run.last_progress = progress
    first, furthest = run.first_progress, run.furthest
    beside = {"since_done": first.done, "since_at": first.at, "most_done": furthest.done, "most_at": furthest.at}
    batch.run(run.id, progress=json.dumps(asdict(progress) | beside))


def _observe_checkpoint(seen: Picture, batch: Batch, instance: LiveInstance, line: str, now: float) -> None:
    """What one instance has saved is saved for its attempt: often one rank saves for all."""
    at = parse_checkpoint(line, now)
    if at is None:
        return
    for peer in seen.unit_of(instance)[1].instances.values():
        if not peer.ended and at > max(peer.checkpointed_at or 0.0, peer.started_at or 0.0):
            peer.checkpointed_at = at
            batch.instance(peer.id, checkpointed_at=at)
            seen.world.declare_saved(peer.id, at)


def _values(progress: Progress) -> tuple[float, float, dict[str, float | str]]:
    return progress.done, progress.total, progress.metrics


def end_instance(seen: Picture, batch: Batch, instance: LiveInstance, observed: ObservedInstance, now: float) -> None:
    """The instance is over: what it held is free, its usage is closed, and its attempt may be over with it."""
    run, _ = seen.unit_of(instance)
    check_instance(instance.state, InstanceState.ENDED)
    instance.state = InstanceState.ENDED
    instance.reason = _end_reason(instance, observed)
    instance.exit_code = observed.exit_code
    # Any text may come from a node: a database must be able to keep it, a terminal to show it.
    instance.message = printable(" ".join(observed.message.split()), 1000)
    instance.ended_at = max(observed.ended_at or now, instance.started_at or 0.0)
    batch.instance(
        instance.id,
        state=str(InstanceState.ENDED),
        reason=str(instance.reason),
        message=instance.message,
        exit_code=observed.exit_code,
        signal=observed.signal,
        ended_at=instance.ended_at,
        cpu_seconds=observed.cpu_seconds,
        max_memory_bytes=observed.max_memory_bytes,
    )
    metering.end(batch, run, instance, instance.ended_at)
    instance.slices = ()
    batch.released.append(instance.id)
    seen.world.release(instance.id)
    del seen.instances[instance.id]


def _end_reason(instance: LiveInstance, observed: ObservedInstance) -> EndReason:
    """What we asked for counts if the engine acted on it; what ended by itself keeps its own reason."""
    reason = observed.reason or EndReason.LOST
    asked = instance.stop_reason
    if reason in (EndReason.CANCELLED, EndReason.STOPPED):
        return asked or reason
    return reason
