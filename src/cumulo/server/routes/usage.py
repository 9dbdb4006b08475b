"""What was used and what it cost, from observed start to observed end."""

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from cumulo.domain.errors import CumuloError
from cumulo.server import render
from cumulo.server.auth import Auth
from cumulo.server.services import Serving
from cumulo.server.times import parse_since
from cumulo.store import views
from cumulo.wire import api

router = APIRouter(tags=["usage"])

Time = Annotated[str | None, Query(max_length=64, description="ISO 8601 with its zone, or seconds ago")]


@router.get("/v1/usage", response_model=api.Usage)
def usage(
    services: Serving,
    caller: Auth,
    since: Time = None,
    until: Time = None,
    group: Literal["run", "account", "project"] = "run",
) -> Response:
    """The caller's own use; an admin sees everybody's. The dearest 500 rows; the total is of those."""
    begin = parse_since("since", since) if since else 0.0
    end = parse_since("until", until) if until else time.time()
    if end < begin:
        raise CumuloError("invalid_request", "until: lies before since")
    with services.db.read() as tx:
        rows = views.usage_totals(
            tx, since=begin, until=end, group=group, account=None if caller.admin else caller.account
        )
        names = views.names_of_runs(tx, [row.key for row in rows]) if group == "run" else {}
    items = [render.usage(row.key, [row], name=names.get(row.key)) for row in rows]
    return render.answer({"items": items, "total": render.usage("", rows)})
