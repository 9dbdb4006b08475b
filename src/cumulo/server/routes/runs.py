"""Runs: plan, submit, list, look, change. Who may do what stands in `cumulo.server.auth`."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from sqlalchemy import Row
from starlette.responses import Response

from cumulo.control.answers import Deadline
from cumulo.control.deadlines_told import over
from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import TERMINAL, RunStatus
from cumulo.domain.run import RunKind, RunSpec
from cumulo.server import access, render, render_control
from cumulo.server.auth import Auth
from cumulo.server.paging import Cursor, Limit, cursor_of, key_of
from cumulo.server.services import Services, Serving
from cumulo.server.uploads import check_uploads
from cumulo.store import views
from cumulo.store.people import Caller
from cumulo.wire import api
from cumulo.wire.run_file import RunFile, to_spec

router = APIRouter(tags=["runs"])

IdempotencyKey = Annotated[
    str | None,
    Header(max_length=128, min_length=1, pattern=r"^[\x21-\x7e]+$", description="the same key gives the same run"),
]
Statuses = Annotated[str | None, Query(max_length=200, description="one or several statuses, comma-separated")]
Index = Annotated[int | None, Query(ge=0, lt=2**53, description="the array index")]


@router.post("/v1/plans", response_model=api.Plan)
def plan(body: api.Submission, services: Serving, caller: Auth) -> Response:
    """What would happen if the run were submitted now. Changes nothing."""
    spec = to_spec(body.run, planning=True)
    with services.db.read() as tx:
        for name in spec.after:
            access.find_run(tx, name, caller)
    with _pointing(body.run):
        planned = services.control.plan(spec, account=caller.account)
    return render.answer(render_control.plan(planned))


@contextmanager
def _pointing(file: RunFile) -> Iterator[None]:
    """Adds to an error about the GPUs that are there which key of the file asked for others."""
    try:
        yield
    except CumuloError as error:
        if error.code == "unknown_gpu":
            error.details["path"] = list(file.gpu_path)
        raise


@router.post(
    "/v1/runs",
    response_model=api.Run,
    status_code=201,
    responses={200: {"model": api.Run, "description": "The key was used for this run before"}},
)
def submit(body: api.Submission, services: Serving, caller: Auth, idempotency_key: IdempotencyKey = None) -> Response:
    """Submits a run. Once answered it is in the store, whatever dies next.

    An ask that no node could ever satisfy is refused (unsatisfiable) unless `queue` is true.
    """
    spec = to_spec(body.run)
    check_uploads(services.blobs, spec)
    with _pointing(body.run):
        run_id, created = services.control.submit(
            spec,
            account=caller.account,
            idempotency_key=idempotency_key,
            fingerprint=_fingerprint(body),
            queue=body.queue,
        )
    answer = render.answer(_whole(services, caller, run_id), 201 if created else 200)
    answer.headers["Location"] = f"/v1/runs/{run_id}"
    return answer


@router.get("/v1/runs", response_model=api.RunPage)
def list_runs(
    services: Serving,
    caller: Auth,
    status: Statuses = None,
    kind: Annotated[RunKind | None, Query()] = None,
    name: Annotated[str | None, Query(max_length=64)] = None,
    active: Annotated[bool, Query(description="only what is not over")] = False,
    recent_s: Annotated[
        float | None, Query(ge=0, le=1e9, description="what is not over, or ended so many seconds ago")
    ] = None,
    mine: Annotated[bool, Query(description="only your own")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Runs of everybody, newest first."""
    since = time.time() - recent_s if recent_s is not None else float("inf") if active else None
    wanted = views.RunFilter(
        statuses=_statuses(status),
        kind=kind,
        name=name,
        account=caller.account if mine else None,
        open_or_ended_since=None if since is None else min(since, 1e12),
    )
    before = key_of(cursor, float, str) if cursor else None
    with services.db.read() as tx:
        rows = views.runs(tx, wanted, before=before, limit=limit)
    more = cursor_of(rows[-1].accepted_at, rows[-1].id) if len(rows) == limit else None
    return render.page([render.run_row(row) for row in rows], more)


@router.get("/v1/names", response_model=api.Names)
def names(
    services: Serving,
    caller: Auth,
    beginning: Annotated[str, Query(max_length=64)] = "",
    limit: Limit = 50,
) -> Response:
    """Names of the caller's runs, the one used last first."""
    with services.db.read() as tx:
        found = views.run_names(tx, account=caller.account, beginning=beginning, limit=limit)
    return render.answer({"items": list(found)})


@router.get("/v1/runs/{run}", response_model=api.Run)
def get_run(run: str, services: Serving, caller: Auth) -> Response:
    return render.answer(_whole(services, caller, run))


@router.patch("/v1/runs/{run}", response_model=api.Run)
def change(run: str, body: api.Change, services: Serving, caller: Auth) -> Response:
    """Wants a run cancelled, a dev run stopped or started again. Answers once that is in the store."""
    with services.db.read() as tx:
        row = access.own_run(tx, run, caller, "change the state")
    if row.status in TERMINAL:
        how = f"{row.status}: {row.message}" if row.message else row.status
        raise CumuloError("conflict", f"{row.name} ({row.id}) has ended, so it can't be {body.wanted} ({how})")
    if body.unit is not None:
        if body.wanted != "cancelled":
            raise CumuloError("invalid_request", "unit: only cancelling takes one index")
        access.place_of(row, access.spec_of(row), body.unit)
    services.control.want(row.id, body.wanted, grace_s=body.grace_s, unit=body.unit)
    return render.answer(_whole(services, caller, row.id))


@router.get("/v1/runs/{run}/units", response_model=api.UnitPage)
def list_units(run: str, services: Serving, caller: Auth, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Units that have begun or been decided, by index. An array's others wait behind them."""
    after = key_of(cursor, int)[0] if cursor else -1
    with services.db.read() as tx:
        row = access.find_run(tx, run, caller)
        rows = views.units(tx, row.id, after=after, limit=limit)
    spec = access.spec_of(row)
    more = cursor_of(rows[-1].place) if len(rows) == limit else None
    return render.page([render.unit(one, spec) for one in rows], more)


@router.get("/v1/runs/{run}/instances", response_model=api.InstancePage)
def list_instances(run: str, services: Serving, caller: Auth, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Instances by unit, attempt and rank."""
    after = key_of(cursor, int, int, int) if cursor else (-1, -1, -1)
    with services.db.read() as tx:
        row = access.find_run(tx, run, caller)
        rows = views.instances(tx, row.id, after=after, limit=limit)
    spec = access.spec_of(row)
    more = cursor_of(rows[-1].unit, rows[-1].attempt, rows[-1].rank) if len(rows) == limit else None
    return render.page([render.instance(one, spec) for one in rows], more)


@router.get("/v1/runs/{run}/why", response_model=api.Why)
def why(run: str, services: Serving, caller: Auth) -> Response:
    """Why a run stands where it stands. The last log lines of an ended one are for its owner."""
    with services.db.read() as tx:
        row = access.find_run(tx, run, caller)
    told = render_control.why(services.control.why(row.id))
    if told["ended"] and not access.is_own(row, caller):
        told["ended"]["last_log_lines"] = []
    return render.answer(told)


def _whole(services: Services, caller: Caller, run: str) -> dict[str, Any]:
    """A run with its newest instances, and to its owner what was asked for."""
    with services.db.read() as tx:
        row = access.find_run(tx, run, caller)
        instances = views.newest_instances(tx, row.id)
    spec = access.spec_of(row)
    return {
        **render.run_row(row),
        "spec": render.spec_summary(spec) if access.is_own(row, caller) else None,
        "deadline": _deadline(services, row, spec),
        "instances": [render.instance(one, spec) for one in instances],
    }


def _deadline(services: Services, row: Row[Any], spec: RunSpec) -> dict[str, Any] | None:
    """How it stands to its deadline, as the control loop says; without that when the loop does not answer."""
    if spec.deadline_at is None:
        return None
    if row.status in TERMINAL:
        return render_control.deadline(over(spec.deadline_at, row.status, row.ended_at))
    try:
        told = services.control.deadline(row.id)
    except CumuloError:
        told = None
    return render_control.deadline(told or Deadline(at=spec.deadline_at, work_s=spec.work_s))


def _fingerprint(body: api.Submission) -> str:
    """Tells whether two requests under one key are the same, whatever the order of their keys."""
    text = json.dumps(body.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _statuses(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    try:
        return tuple(str(RunStatus(one.strip())) for one in text.split(","))
    except ValueError:
        known = ", ".join(RunStatus)
        raise CumuloError("invalid_request", f"status: {text[:60]!r} is not a status; they are {known}") from None
