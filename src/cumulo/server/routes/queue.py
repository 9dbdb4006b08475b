"""What waits, and what could be launched."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cumulo.domain.ask import AskError, parse_gpu_ask
from cumulo.domain.errors import CumuloError
from cumulo.server import render, render_control
from cumulo.server.auth import Auth
from cumulo.server.paging import Cursor, Limit, cursor_of, key_of
from cumulo.server.services import Serving
from cumulo.wire import api

router = APIRouter(tags=["queue"])


@router.get("/v1/queue", response_model=api.QueuePage)
def queue(services: Serving, _caller: Auth, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Runs that wait, in the order in which they are tried. A page is of one moment; the next may be of a later one."""
    after = key_of(cursor, int)[0] if cursor else 0
    rows = [row for row in services.control.queue() if row.place > after]
    more = cursor_of(rows[limit - 1].place) if len(rows) > limit else None
    return render.page([render_control.queue_row(row) for row in rows[:limit]], more)


@router.get("/v1/offers", response_model=api.Offers)
def offers(
    services: Serving,
    _caller: Auth,
    gpu: Annotated[
        str | None, Query(max_length=256, description="an ask such as A100:2; everything if left out")
    ] = None,
) -> Response:
    """What can be launched: where, at which price, and how much of it is free now."""
    try:
        ask = parse_gpu_ask(gpu) if gpu is not None else None
    except AskError as error:
        raise CumuloError("invalid_ask", f"gpu: {error}") from None
    return render.answer({"items": [render_control.offer(one) for one in services.control.offers(ask)]})
