"""Accepting a run: checked, then written with its event in one transaction. What was answered is in the store."""

import json
import secrets
from dataclasses import replace

from sqlalchemy import Connection

from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import TERMINAL, RunStatus
from cumulo.domain.names import make_id, printable
from cumulo.domain.run import RunSpec, to_wire
from cumulo.store import events, market, people, picture, views
from cumulo.store.database import Database


def accept(
    db: Database, spec: RunSpec, *, account: str, key: str | None, fingerprint: str, now: float
) -> tuple[str, bool]:
    """Writes the run and returns (its id, whether it is new); a repeated key answers with the run of the first time.

    Raises CumuloError: idempotency_mismatch, not_found (project, reservation), forbidden (another project's
    reservation), run_not_found (a run it comes after), conflict.
    """
    with db.write() as tx:
        if key and (before := _before(tx, account, key, fingerprint)):
            return before, False
        if not people.project_exists(tx, spec.project):
            raise CumuloError("not_found", f"there is no project {spec.project!r}")
        spec, waits_for = _dependencies(tx, _with_reservation(tx, spec), account)
        run_id = make_id(now, secrets.token_bytes(4))
        while picture.run_statuses(tx, [run_id]):  # its twin of the same second
            run_id = make_id(now, secrets.token_bytes(4))
        picture.insert_run(tx, _row(run_id, spec, account, waits_for, now))
        if key:
            picture.insert_idempotency(
                tx,
                {
                    "account": account,
                    "key": key,
                    "project": spec.project,
                    "fingerprint": fingerprint,
                    "run_id": run_id,
                    "created_at": now,
                },
            )
        message = f"{spec.name} was accepted: {spec.ask.describe()}"
        events.append(
            tx,
            events.NewEvent(
                at=now, kind="run.accepted", message=message, project=spec.project, account=account, run_id=run_id
            ),
        )
    return run_id, True


def replayed(db: Database, *, account: str, key: str | None, fingerprint: str) -> str | None:
    """The run that the key was answered with before. What may have changed since does not matter to a repeat.

    Raises CumuloError idempotency_mismatch.
    """
    if not key:
        return None
    with db.read() as tx:
        return _before(tx, account, key, fingerprint)


def _before(tx: Connection, account: str, key: str, fingerprint: str) -> str | None:
    before = picture.idempotent_run(tx, account, key)
    if before is not None and before[1] != fingerprint:
        text = "this Idempotency-Key was used for another request"
        raise CumuloError("idempotency_mismatch", text, hint="use a new key for a new run")
    return before[0] if before else None


def _dependencies(tx: Connection, spec: RunSpec, account: str) -> tuple[RunSpec, list[str]]:
    """The spec with `after` as ids, and those of them that have not succeeded yet."""
    ids, waits = [], []
    for text in spec.after:
        row = views.find_run(tx, text, account=account, project=spec.project)
        if row is None:
            raise CumuloError("run_not_found", f"after: there is no run {text!r}")
        status = RunStatus(row.status)
        if status in TERMINAL and status is not RunStatus.SUCCEEDED:
            hint = "launch it again first, or leave `after` out"
            raise CumuloError("conflict", f"after: {row.name} ({row.id}) has ended: {status}", hint=hint)
        ids.append(row.id)
        if status is not RunStatus.SUCCEEDED:
            waits.append(row.id)
    return replace(spec, after=tuple(ids)), waits


def _with_reservation(tx: Connection, spec: RunSpec) -> RunSpec:
    """The spec with the reservation that it draws on as an id. Raises CumuloError not_found, forbidden."""
    if spec.reservation is None:
        return spec
    named = market.find_reservations(tx, spec.reservation)
    own = [row for row in named if row.project == spec.project]
    if own:
        return replace(spec, reservation=own[0].id)
    key, details = "resources.reservation", {"path": ["resources", "reservation"]}
    if named:
        text = f"reservation {named[0].name} is of project {named[0].project}, and the run of project {spec.project}"
        raise CumuloError("forbidden", f"{key}: {text}", details=details)
    hint = "`cumulo reservations` shows those that hold"
    text = f"project {spec.project} has no reservation {printable(spec.reservation, 64)!r}"
    raise CumuloError("not_found", f"{key}: {text}", hint=hint, details=details)


def _row(run_id: str, spec: RunSpec, account: str, waits_for: list[str], now: float) -> dict[str, object]:
    return {
        "id": run_id,
        "project": spec.project,
        "account": account,
        "name": spec.name,
        "kind": str(spec.kind),
        "status": str(RunStatus.QUEUED),
        "wanted": "running",
        "priority": spec.priority,
        "purchase": str(spec.purchase),
        "ask": spec.ask.describe(),
        "spec": json.dumps(to_wire(spec), separators=(",", ":")),
        "waits_for": ",".join(waits_for),
        "units": spec.units(),
        "units_started": 0,
        "units_active": 0,
        "units_succeeded": 0,
        "units_failed": 0,
        "attempts": 0,
        "exit_code": None,
        "reason": None,
        "message": "",
        "placed_on": "",
        "accepted_at": now,
        "placed_at": None,
        "started_at": None,
        "ended_at": None,
        "cost_nano": 0,
        "rental_nano": 0,
        "progress": None,
    }
