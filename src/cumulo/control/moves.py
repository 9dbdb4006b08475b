"""Single moves of runs, units and instances: each is checked against its lifecycle and noted in a batch.

The rest of this package composes these; nothing else changes a status. Nothing here does input or output.
"""

from typing import Final

from cumulo.control.driver import Stop
from cumulo.control.live import LiveInstance, LiveRun, LiveUnit
from cumulo.domain.lifecycle import (
    TERMINAL,
    UNIT_OUTCOME,
    EndReason,
    InstanceState,
    RunStatus,
    check_instance,
    check_run,
)
from cumulo.store.batch import Batch
from cumulo.store.events import NewEvent


def set_run(batch: Batch, run: LiveRun, status: RunStatus, **values: object) -> None:
    check_run(run.status, status)
    run.status = status
    batch.run(run.id, status=str(status), **values)


def set_unit(batch: Batch, run: LiveRun, unit: LiveUnit, status: RunStatus, **values: object) -> None:
    check_run(unit.status, status)
    unit.status = status
    batch.unit(run.id, unit.place, status=str(status), **values)


def end_unit(
    batch: Batch, run: LiveRun, unit: LiveUnit, reason: EndReason, exit_code: int | None, message: str, at: float
) -> None:
    """The unit's last attempt is over and no further one follows. A stopped dev unit stays."""
    outcome = UNIT_OUTCOME[reason]
    run.last_ended_at = max(at, run.last_ended_at or 0.0)
    set_unit(batch, run, unit, outcome, exit_code=exit_code, reason=str(reason), message=message, ended_at=at)
    if outcome in TERMINAL:
        del run.units[unit.place]
        run.outcomes[outcome] += 1
    if run.spec.array is not None:
        name = f"{run.spec.name}[{run.spec.array.index(unit.place)}]"
        tell(batch, run, f"unit.{outcome}", f"{name} {outcome}" + (f": {message}" if message else ""), at)
    first_bad = outcome in _BAD and sum(run.outcomes[bad] for bad in _BAD) == 1
    if run.spec.array is None or first_bad:
        batch.run(run.id, exit_code=exit_code, reason=str(reason), message=message)


_BAD: Final = (RunStatus.FAILED, RunStatus.LOST)


def advance(batch: Batch, run: LiveRun) -> None:
    """Passes over places that came, or were cancelled, before their turn."""
    before = run.units_started
    while run.units_started in run.skipped:
        run.skipped.discard(run.units_started)
        run.units_started += 1
    if run.units_started != before:
        batch.run(run.id, units_started=run.units_started)


def move_instance(batch: Batch, run: LiveRun, instance: LiveInstance, state: InstanceState, now: float) -> None:
    check_instance(instance.state, state)
    instance.state = state
    batch.instance(instance.id, state=str(state))
    if state in (InstanceState.PULLING, InstanceState.PREPARING):
        tell(batch, run, f"instance.{state}", f"{instance.id} is {state}", now, instance)


def stop_instance(
    batch: Batch, run: LiveRun, instance: LiveInstance, reason: EndReason, grace_s: float | None, now: float
) -> None:
    """Wants an instance to end. The engine is told after the batch is written, and again until it has ended.

    The first reason stays, but who is cancelled while it stops will not start again, and who is stopped while it makes
    room for others not by itself.
    """
    before = instance.stop_reason
    harder = reason in _HARDER.get(before, ())
    if instance.ended or (before is not None and grace_s is None and not harder):
        return
    instance.stop_reason = reason if harder else before or reason
    if before is None or grace_s is not None:
        instance.stop_grace_s = run.spec.grace_s if grace_s is None else grace_s
    if instance.state is not InstanceState.STOPPING:
        move_instance(batch, run, instance, InstanceState.STOPPING, now)
    batch.instance(instance.id, stop_reason=str(instance.stop_reason), stop_grace_s=instance.stop_grace_s)


def stop_of(instance: LiveInstance) -> Stop:
    """How its engine is to stop an instance that is wanted to end."""
    makes_room = instance.stop_reason is EndReason.PREEMPTED
    return Stop(instance.stop_grace_s or 0.0, instance.preempt_at if makes_room else None)


_HARDER: Final[dict[EndReason | None, tuple[EndReason, ...]]] = {
    EndReason.PREEMPTED: (EndReason.STOPPED, EndReason.CANCELLED),
    EndReason.STOPPED: (EndReason.CANCELLED,),
}


def tell(batch: Batch, run: LiveRun, kind: str, message: str, at: float, instance: LiveInstance | None = None) -> None:
    batch.event(
        NewEvent(
            at=at,
            kind=kind,
            message=message,
            project=run.project,
            account=run.account,
            run_id=run.id,
            instance_id=instance.id if instance else None,
            node_id=instance.node_id if instance else None,
        )
    )


def unit_row(run: LiveRun, unit: LiveUnit) -> dict[str, object]:
    """A new row of `unit`."""
    return {
        "run_id": run.id,
        "place": unit.place,
        "project": run.project,
        "account": run.account,
        "status": str(unit.status),
        "attempts": unit.attempts,
        "exit_code": None,
        "reason": None,
        "message": "",
        "placed_at": unit.placed_at,
        "started_at": unit.started_at,
        "ended_at": None,
        "not_before": unit.not_before,
        "preemptions": unit.preemptions,
        "purchase": str(unit.purchase) if unit.purchase else None,
    }
