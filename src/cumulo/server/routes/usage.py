"""What was used and what it cost, from observed start to observed end."""

import time
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Query
from starlette.responses import Response

from cumulo.domain.errors import CumuloError
from cumulo.domain.run import PurchaseOption
from cumulo.server import render
from cumulo.server.auth import Auth
from cumulo.server.services import Serving
from cumulo.server.times import parse_since
from cumulo.store import market, views
from cumulo.wire import api

router = APIRouter(tags=["usage"])


class _Reserved(NamedTuple):
    """A reservation as a row of a bill: the GPUs' seconds are in the rows of the runs that drew on it."""

    key: str
    cost_nano: int
    gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    rental_nano: int = 0


Time = Annotated[str | None, Query(max_length=64, description="ISO 8601 with its zone, or seconds ago")]


@router.get("/v1/usage", response_model=api.Usage)
def usage(
    services: Serving,
    caller: Auth,
    since: Time = None,
    until: Time = None,
    group: Literal["run", "account", "project", "purchase"] = "run",
) -> Response:
    """The caller's own use; an admin sees everybody's. The dearest 500 rows; the total is of those.

    Reservations cost the same, used or not: by run they are rows of their own, after the runs that draw on them.
    """
    begin = parse_since("since", since) if since else 0.0
    end = parse_since("until", until) if until else time.time()
    if end < begin:
        raise CumuloError("invalid_request", "until: lies before since")
    account = None if caller.admin else caller.account
    with services.db.read() as tx:
        rows: list[Any] = list(views.usage_totals(tx, since=begin, until=end, group=group, account=account))
        names = views.names_of_runs(tx, [row.key for row in rows]) if group == "run" else {}
        reserved = market.reservations_between(tx, since=begin, until=end, account=account)
    for one in reserved:
        keys = {"run": one.id, "account": one.account, "project": one.project, "purchase": PurchaseOption.RESERVED}
        key = str(keys[group])
        rows.append(_Reserved(key, one.cost_nano(begin, end)))
        names |= {one.id: f"reservation {one.name}"}
    by_key: dict[str, list[Any]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    items = [render.usage(key, several, name=names.get(key)) for key, several in by_key.items()]
    return render.answer({"items": items, "total": render.usage("", rows)})
