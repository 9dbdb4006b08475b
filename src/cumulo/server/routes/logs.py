"""Logs of a run: as server-sent events with text, or as the bytes of one instance's log."""

from collections.abc import Iterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from cumulo.domain.errors import CumuloError
from cumulo.server import access, sse
from cumulo.server.auth import Auth
from cumulo.server.log_cursor import LogPosition
from cumulo.server.log_stream import LogQuery, LogStream
from cumulo.server.services import Services, Serving
from cumulo.server.times import parse_since
from cumulo.store import views
from cumulo.store.logs import LogRef

router = APIRouter(tags=["logs"])

BYTES: Final = "application/octet-stream"
_PIECE: Final = 256 << 10
# Whoever follows all units of an array at once reads a log for each.
_MOST_UNITS: Final = 10_000

LogCursor = Annotated[str | None, Query(max_length=60_000, description="the id of the last event seen")]
Number = Annotated[int | None, Query(ge=0, lt=2**31)]


@router.get(
    "/v1/runs/{run}/logs",
    response_class=StreamingResponse,
    responses={200: {"content": {sse.MEDIA_TYPE: {}, BYTES: {}}, "description": "Events, or bytes if asked for"}},
)
async def logs(
    run: str,
    services: Serving,
    caller: Auth,
    unit: Annotated[int | None, Query(ge=0, lt=2**53, description="the array index")] = None,
    attempt: Annotated[int | None, Query(ge=1, lt=2**31, description="all, one after the other, if left out")] = None,
    rank: Number = None,
    tail: Annotated[
        int | None, Query(ge=0, le=10**9, description="only so many last lines of each log of the last attempt")
    ] = None,
    since: Annotated[str | None, Query(max_length=64, description="ISO 8601, or seconds ago")] = None,
    follow: bool = False,
    cursor: LogCursor = None,
    offset: Annotated[int, Query(ge=0, lt=2**53, description="of bytes")] = 0,
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[str | None, Header(max_length=60_000)] = None,
) -> Response:
    """Server-sent events: `log` with text of one instance, `status`, `progress`, and `end` once the run is over and
    everything was sent. Of each unit one attempt comes after the other. Each event carries a cursor to go on from. With
    `Accept: application/octet-stream`, the bytes of one instance's log from `offset`, of the last attempt if none is
    named.
    """
    wants_bytes = BYTES in accept
    begin = parse_since("since", since) if since is not None else None

    def look() -> tuple[LogQuery, LogRef | None]:
        with services.db.read() as tx:
            row = access.own_run(tx, run, caller, "read the logs")
        spec = access.spec_of(row)
        every = follow and unit is None and spec.array is not None and not wants_bytes
        if every and row.units > _MOST_UNITS:
            raise CumuloError("invalid_request", f"unit: {row.name} has {row.units} indices; say which to follow")
        place = None if every else access.place_of(row, spec, unit)
        query = LogQuery(
            run_id=row.id,
            spec=spec,
            place=place,
            attempt=attempt,
            rank=rank,
            tail=tail,
            since=begin,
            follow=follow,
        )
        return query, _one(services, query) if wants_bytes else None

    query, ref = await run_in_threadpool(look)
    if wants_bytes:
        return StreamingResponse(_bytes(services, ref, offset), media_type=BYTES)
    resume = last_event_id or cursor
    position = LogPosition.read(resume, query.run_id) if resume else None
    return sse.answer(LogStream(services, query, position=position).events(), services)


def _one(services: Services, query: LogQuery) -> LogRef | None:
    """The one log that bytes are asked of; None where nothing has been placed."""
    with services.db.read() as tx:
        sources = views.log_sources(tx, query.run_id, place=query.place)
    attempts = [source.attempt for source in sources]
    attempt = query.attempt or max(attempts, default=0)
    ranks = {source.rank for source in sources if source.attempt == attempt}
    rank = query.rank or 0
    if query.attempt and attempt not in attempts:
        raise CumuloError("not_found", f"there is no attempt {attempt}")
    if ranks and rank not in ranks:
        raise CumuloError("not_found", f"there is no rank {rank} in attempt {attempt}")
    return LogRef(query.run_id, query.place or 0, attempt, rank) if ranks else None


def _bytes(services: Services, ref: LogRef | None, offset: int) -> Iterator[bytes]:
    while ref is not None and (data := services.logs.read(ref, offset, _PIECE)):
        yield data
        offset += len(data)
