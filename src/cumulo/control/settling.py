"""What follows once instances have ended: attempts end, units end or recover, runs end, dependents are freed."""

from collections.abc import Iterable

from cumulo.control.attempts import ended_text, loop_text
from cumulo.control.live import LiveInstance, LiveRun, LiveUnit, Picture
from cumulo.control.moves import end_unit, set_run, set_unit, stop_instance, tell
from cumulo.control.yielding import requeue
from cumulo.domain.lifecycle import RETRY_EVENT, TERMINAL, EndReason, RunStatus
from cumulo.domain.quantities import format_duration
from cumulo.domain.run import PurchaseOption, RunKind
from cumulo.store.batch import Batch


def settle(seen: Picture, batch: Batch, run_ids: Iterable[str], now: float) -> None:
    """Ends the attempts, units and runs that are over. Runs that waited for one that ended are freed or fail too."""
    pending = list(dict.fromkeys(run_ids))
    while pending:
        run = seen.runs.get(pending.pop())
        if run is None:
            continue
        for unit in list(run.units.values()):
            if unit.instances:
                _settle_attempt(batch, run, unit, now)
        if _settle_run(batch, run, now):
            del seen.runs[run.id]
            pending += _free_dependents(seen, batch, run, now)


def _settle_attempt(batch: Batch, run: LiveRun, unit: LiveUnit, now: float) -> None:
    """The instances of an attempt live and die together: one that did not succeed takes its peers with it."""
    bad = [i for i in unit.instances.values() if i.ended and i.reason is not EndReason.SUCCEEDED]
    if bad:
        for peer in unit.instances.values():
            stop_instance(batch, run, peer, EndReason.PEER_ENDED, None, now)
    if not all(instance.ended for instance in unit.instances.values()):
        return
    causes = [i for i in bad if i.reason is not EndReason.PEER_ENDED] or bad
    cause = min(causes or unit.instances.values(), key=lambda i: (i.ended_at or now, i.rank))
    reason = cause.reason or EndReason.LOST
    wished = any(i.stop_reason in (EndReason.CANCELLED, EndReason.STOPPED) for i in unit.instances.values())
    made_room = any(i.stop_reason is EndReason.PREEMPTED for i in unit.instances.values())
    unit.attempt_over()
    if not wished and bad and _made_room(run, reason, made_room):
        requeue(batch, run, unit, now)
        return
    looping = loop_text(unit.past, run.furthest.at if run.furthest else None)
    if not wished and not looping and _recovers(batch, run, unit, reason, now):
        return
    message = cause.message or _in_words(cause, run)
    if looping and _may_retry(run, reason):
        message = looping if cause.exit_code is not None else f"{looping}: {message}"
    if causes and run.spec.ask.nodes > 1 and reason not in (EndReason.CANCELLED, EndReason.STOPPED):
        message = f"rank {cause.rank}: {message}"
    end_unit(batch, run, unit, reason, cause.exit_code, message, cause.ended_at or now)


def _made_room(run: LiveRun, reason: EndReason, asked: bool) -> bool:
    """Whether an attempt ended for others, so that its unit goes back to the queue; whatever else befell it then.

    What an engine itself preempts is queued again if the run was launched as one that expects that.
    """
    expected = run.spec.purchase is PurchaseOption.SPOT or run.spec.deadline_at is not None
    taken = reason is EndReason.PREEMPTED and expected
    return run.wanted == "running" and (asked or taken)


def _recovers(batch: Batch, run: LiveRun, unit: LiveUnit, reason: EndReason, now: float) -> bool:
    """Whether the unit gets another attempt; then it waits for its turn."""
    retry = run.spec.retry
    if retry is None or not _may_retry(run, reason):
        return False
    failures = unit.attempts - unit.preemptions
    if failures >= retry.max_attempts:
        return False
    unit.not_before = now + retry.delay(failures)
    set_unit(batch, run, unit, RunStatus.RECOVERING, not_before=unit.not_before)
    if len(run.units) == 1 and run.spec.array is None:
        set_run(batch, run, RunStatus.RECOVERING)
    how = ended_text(unit.past[-1])
    text = f"attempt {unit.attempts} {how}; the next begins in {format_duration(unit.not_before - now)}"
    tell(batch, run, "run.recovering", text, now)
    return True


def _may_retry(run: LiveRun, reason: EndReason) -> bool:
    """Whether another attempt after such an end was asked for, as far as there are some left."""
    retry = run.spec.retry
    return retry is not None and run.wanted == "running" and RETRY_EVENT.get(reason) in retry.on_events


def _in_words(instance: LiveInstance, run: LiveRun) -> str:
    ran = (instance.ended_at or 0.0) - (instance.started_at or instance.ended_at or 0.0)
    match instance.reason:
        case EndReason.SUCCEEDED:
            return ""
        case EndReason.FAILED:
            return f"its command exited with code {instance.exit_code} after {format_duration(ran)}"
        case EndReason.TIMEOUT:
            return f"max_duration of {format_duration(run.spec.max_duration_s or ran)} was over"
        case EndReason.CANCELLED:
            return f"cancelled after {format_duration(ran)}" if instance.started_at else "cancelled before it started"
        case _:
            return ""


def _settle_run(batch: Batch, run: LiveRun, now: float) -> bool:
    """Brings the run's own status after its units'. True when it is over."""
    if run.status in TERMINAL:
        return True
    active = sum(bool(unit.instances) for unit in run.units.values())
    failed = run.outcomes[RunStatus.FAILED] + run.outcomes[RunStatus.LOST]
    batch.run(run.id, units_active=active, units_succeeded=run.outcomes[RunStatus.SUCCEEDED], units_failed=failed)
    if active:
        return False
    if run.wanted == "stopped" and run.spec.kind is RunKind.DEV and not _over(run):
        if run.status is not RunStatus.STOPPED:
            set_run(batch, run, RunStatus.STOPPED)
            tell(batch, run, "run.stopped", f"{run.spec.name} is stopped", now)
        return False
    if run.wanted != "cancelled" and not _over(run):
        return False
    status = _outcome(run)
    set_run(batch, run, status, ended_at=(run.last_ended_at if _over(run) else None) or now)
    if status is RunStatus.CANCELLED and (run.spec.array or not run.outcomes):
        batch.run(run.id, exit_code=None, reason=str(EndReason.CANCELLED), message="cancelled before it started")
    if run.spec.array is not None:
        batch.run(run.id, message=_array_message(run))
        if status is RunStatus.SUCCEEDED:
            batch.run(run.id, exit_code=0, reason=str(EndReason.SUCCEEDED))
    tell(batch, run, f"run.{status}", f"{run.spec.name} {status}", now)
    return True


def _over(run: LiveRun) -> bool:
    return not run.units and sum(run.outcomes.values()) >= run.spec.units()


def _outcome(run: LiveRun) -> RunStatus:
    for status in (RunStatus.FAILED, RunStatus.LOST):
        if run.outcomes[status] and (run.wanted != "cancelled" or run.spec.array is None):
            return status
    if run.wanted == "cancelled" and not (_over(run) and run.outcomes[RunStatus.SUCCEEDED] == run.spec.units()):
        return RunStatus.CANCELLED
    return RunStatus.SUCCEEDED if run.outcomes[RunStatus.SUCCEEDED] else RunStatus.CANCELLED


def _array_message(run: LiveRun) -> str:
    counts = sorted(((-run.outcomes[status], place, status) for place, status in enumerate(RunStatus)))
    parts = [f"{-count} {status}" for count, _, status in counts if count]
    left = run.spec.units() - sum(run.outcomes.values())
    return ", ".join(parts + ([f"{left} never started"] if left else []))


def _free_dependents(seen: Picture, batch: Batch, ended: LiveRun, now: float) -> list[str]:
    """Frees runs that waited for `ended` if it succeeded, and fails them if it did not. Returns those that changed."""
    changed = []
    for run in seen.runs.values():
        if ended.id not in run.waits_for or run.status in TERMINAL:
            continue
        changed.append(run.id)
        run.waits_for.discard(ended.id)
        batch.run(run.id, waits_for=",".join(sorted(run.waits_for)))
        if ended.status is not RunStatus.SUCCEEDED:
            fail_dependent(batch, run, f"{ended.spec.name} ({ended.id})", ended.status, now)
    return changed


def fail_dependent(batch: Batch, run: LiveRun, of: str, status: RunStatus, now: float) -> None:
    """A run whose dependency did not succeed can never start."""
    message = f"it comes after {of}, which {'was ' if status in (RunStatus.CANCELLED, RunStatus.LOST) else ''}{status}"
    set_run(batch, run, RunStatus.FAILED, ended_at=now, reason=str(EndReason.DEPENDENCY_FAILED), message=message)
    tell(batch, run, "run.failed", f"{run.spec.name} failed: {message}", now)
