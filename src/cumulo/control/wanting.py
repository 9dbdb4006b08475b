"""What people want of what they launched: to end, to stop, to start again."""

from cumulo.control.live import LiveRun, LiveUnit, Picture
from cumulo.control.moves import advance, end_unit, set_run, set_unit, stop_instance, tell, unit_row
from cumulo.control.requests import Wish
from cumulo.control.settling import settle
from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import EndReason, RunStatus
from cumulo.domain.run import RunKind
from cumulo.store.batch import Batch


def cancel_run(seen: Picture, batch: Batch, run: LiveRun, grace_s: float | None, now: float) -> None:
    """Ends everything of a run: what runs is stopped, what waits never starts."""
    if run.wanted != "cancelled":
        tell(batch, run, "run.cancelling", f"{run.spec.name} was cancelled", now)
    _want(batch, run, "cancelled")
    _stop_units(batch, run, EndReason.CANCELLED, grace_s, now)
    settle(seen, batch, [run.id], now)


def stop_run(seen: Picture, batch: Batch, run: LiveRun, grace_s: float | None, now: float) -> None:
    """Stops a dev run, which may start again."""
    if run.wanted != "stopped":
        tell(batch, run, "run.stopping", f"{run.spec.name} was stopped", now)
    _want(batch, run, "stopped")
    _stop_units(batch, run, EndReason.STOPPED, grace_s, now)
    settle(seen, batch, [run.id], now)


def start_run(batch: Batch, run: LiveRun, now: float) -> None:
    """Queues a stopped dev run again."""
    _want(batch, run, "running")
    set_run(batch, run, RunStatus.QUEUED)
    fresh = {"ended_at": None, "exit_code": None, "reason": None, "message": ""}
    batch.run(run.id, **fresh)
    for unit in run.units.values():
        set_unit(batch, run, unit, RunStatus.QUEUED, **fresh)
    tell(batch, run, "run.queued", f"{run.spec.name} was started again", now)


def cancel_unit(seen: Picture, batch: Batch, run: LiveRun, place: int, grace_s: float | None, now: float) -> bool:
    """Ends one unit of an array; False when it is over already."""
    unit = run.units.get(place)
    if unit is not None:
        for instance in unit.instances.values():
            stop_instance(batch, run, instance, EndReason.CANCELLED, grace_s, now)
        if unit.instances:
            set_unit(batch, run, unit, RunStatus.STOPPING)
        else:
            end_unit(batch, run, unit, EndReason.CANCELLED, None, "", now)
    elif place >= run.units_started and place not in run.skipped:
        run.skipped.add(place)
        new = LiveUnit(place=place, status=RunStatus.QUEUED, attempts=0)
        batch.new_units[run.id, place] = unit_row(run, new)
        run.units[place] = new
        end_unit(batch, run, new, EndReason.CANCELLED, None, "", now)
        advance(batch, run)
    else:
        return False
    settle(seen, batch, [run.id], now)
    return True


def _stop_units(batch: Batch, run: LiveRun, reason: EndReason, grace_s: float | None, now: float) -> None:
    for unit in list(run.units.values()):
        for instance in unit.instances.values():
            stop_instance(batch, run, instance, reason, grace_s, now)
        if unit.instances:
            set_unit(batch, run, unit, RunStatus.STOPPING)
        elif reason is EndReason.CANCELLED:
            end_unit(batch, run, unit, reason, None, "", now)
        else:
            unit.not_before = None
            set_unit(batch, run, unit, RunStatus.STOPPED, not_before=None)
    if any(unit.instances for unit in run.units.values()):
        set_run(batch, run, RunStatus.STOPPING)


def _want(batch: Batch, run: LiveRun, wanted: str) -> None:
    run.wanted = wanted
    batch.run(run.id, wanted=wanted)


def grant(seen: Picture, batch: Batch, wish: Wish, now: float) -> None:
    """Does what a person wants of a run. Raises CumuloError `conflict` when the run is not in a state for it."""
    run = seen.runs.get(wish.run_id)
    if run is None:
        raise CumuloError("conflict", f"the run has ended, so it can't be {_DONE[wish.wanted]}")
    if wish.index is not None:
        _grant_unit(seen, batch, run, wish, now)
    elif wish.wanted == "cancelled":
        cancel_run(seen, batch, run, wish.grace_s, now)
    elif run.spec.kind is not RunKind.DEV:
        hint = "cancel it instead" if wish.wanted == "stopped" else "launch it again"
        raise CumuloError(
            "conflict", f"{run.spec.name} is a {run.spec.kind}; only a dev run stops and starts", hint=hint
        )
    elif run.wanted == "cancelled":
        raise CumuloError("conflict", f"{run.spec.name} is being cancelled, so it can't be {_DONE[wish.wanted]}")
    elif wish.wanted == "stopped":
        stop_run(seen, batch, run, wish.grace_s, now)
    elif run.status is RunStatus.STOPPED:
        start_run(batch, run, now)
    elif run.wanted != "running":
        raise CumuloError("conflict", f"{run.spec.name} is still stopping", hint="start it again in a moment")


_DONE = {"cancelled": "cancelled", "stopped": "stopped", "running": "started"}


def _grant_unit(seen: Picture, batch: Batch, run: LiveRun, wish: Wish, now: float) -> None:
    array, index = run.spec.array, wish.index or 0
    if array is None or wish.wanted != "cancelled":
        raise CumuloError("conflict", "only an index of an array can be cancelled by itself")
    place, beside = divmod(index - array.first, array.step)
    if beside or not 0 <= place < len(array):
        raise CumuloError("not_found", f"{run.spec.name} has no index {index}; it has {array.canonical}")
    if not cancel_unit(seen, batch, run, place, wish.grace_s, now):
        raise CumuloError("conflict", f"index {index} of {run.spec.name} has ended already")
