"""Spot prices as they were, and reservations."""

import time
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cumulo.control.reserving import Wanted
from cumulo.domain.ask import AskError, parse_gpu_ask
from cumulo.domain.errors import CumuloError
from cumulo.server import render, render_market
from cumulo.server.auth import Auth, require_admin
from cumulo.server.paging import Cursor, Limit, cursor_of, key_of
from cumulo.server.services import Serving
from cumulo.server.times import parse_since, parse_time
from cumulo.store import market, people
from cumulo.wire import api

router = APIRouter(tags=["market"])

_WEEK_S = 7 * 86400.0


@router.get("/v1/prices", response_model=api.SpotPrices)
def prices(
    services: Serving,
    _caller: Auth,
    gpu: Annotated[str | None, Query(max_length=96, description="a GPU kind, such as A100-80GB")] = None,
    since: Annotated[str | None, Query(max_length=64, description="ISO 8601 with its zone, or seconds ago")] = None,
) -> Response:
    """Spot prices since then (a week ago), oldest first; each pool from the one that held then on. The newest 2000."""
    begin = parse_since("since", since) if since else time.time() - _WEEK_S
    with services.db.read() as tx:
        rows = market.price_history(tx, kind=gpu, since=begin)
    return render.answer({"items": [render_market.spot_price(row) for row in rows]})


@router.get("/v1/reservations", response_model=api.ReservationPage)
def list_reservations(services: Serving, _caller: Auth, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Reservations that hold or are to hold, by when they begin."""
    after = key_of(cursor, float, str) if cursor else (float("-inf"), "")
    with services.db.read() as tx:
        rows = market.reservations(tx, now=time.time(), after=after, limit=limit)
        drawn = market.drawn_milli(tx, [row.id for row in rows])
    more = cursor_of(rows[-1].starts_at, rows[-1].id) if len(rows) == limit else None
    return render.page([render_market.reservation(row, drawn.get(row.id, 0)) for row in rows], more)


@router.post("/v1/reservations", response_model=api.Reservation, status_code=201)
def reserve(body: api.NewReservation, services: Serving, caller: Auth) -> Response:
    """Reserves GPUs for a project. Admins only: what is reserved, others can't have on demand."""
    require_admin(caller, "reserve GPUs")
    try:
        gpu = parse_gpu_ask(body.gpus)
    except AskError as error:
        raise CumuloError("invalid_ask", f"gpus: {error}") from None
    project = body.project or caller.project
    with services.db.read() as tx:
        if not people.project_exists(tx, project):
            raise CumuloError("not_found", f"there is no project {project!r}")
    made = services.control.reserve(
        Wanted(
            project=project,
            account=caller.account,
            gpu=gpu,
            term_s=body.term,
            starts_at=parse_time("starts_at", body.starts_at) if body.starts_at else None,
            upfront=body.upfront,
            name=body.name,
        )
    )
    return render.answer(render_market.reservation(made, 0), 201)


@router.delete("/v1/reservations/{reservation}", response_model=api.Reservation)
def give_back(reservation: str, services: Serving, caller: Auth) -> Response:
    """Ends a reservation now, by id or name. Admins only. What was paid upfront stays paid."""
    require_admin(caller, "give reservations back")
    return render.answer(render_market.reservation(services.control.give_back(reservation), 0))
