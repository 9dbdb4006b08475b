"""What happened, oldest first; or as it happens."""

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from cumulo.server import access, render, sse
from cumulo.server.auth import Auth
from cumulo.server.paging import Cursor, Limit, cursor_of, key_of
from cumulo.server.services import Services, Serving
from cumulo.store import events
from cumulo.store.people import Caller
from cumulo.wire import api

router = APIRouter(tags=["events"])

Seq = Annotated[int | None, Query(ge=0, lt=2**63, description="only what came after this one")]


@router.get(
    "/v1/events",
    response_model=api.EventPage,
    responses={200: {"content": {sse.MEDIA_TYPE: {}}, "description": "A page; with follow, server-sent events"}},
)
async def list_events(
    services: Serving,
    caller: Auth,
    run: Annotated[str | None, Query(max_length=64)] = None,
    after: Seq = None,
    kind: Annotated[str | None, Query(max_length=32, description="run.accepted, or run for all of runs")] = None,
    follow: Annotated[bool, Query(description="send events as they happen; without `after`, from now on")] = False,
    newest: Annotated[int | None, Query(ge=0, le=100_000, description="begin with the newest so many")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    last_event_id: Annotated[str | None, Header(max_length=4096)] = None,
) -> Response:
    resume = last_event_id or cursor if follow else cursor
    begin = key_of(resume, int)[0] if resume else after

    def look() -> tuple[str | None, int, tuple[events.Event, ...]]:
        run_id = _run_id(services, caller, run)
        with services.db.read() as tx:
            if begin is not None:
                first = begin
            elif newest is not None:
                first = events.before_newest(tx, newest, run_id=run_id, kind=kind)
            else:
                first = events.last_seq(tx) if follow else 0
            page = () if follow else events.page(tx, after=first, limit=limit, run_id=run_id, kind=kind)
        return run_id, first, page

    run_id, first, page = await run_in_threadpool(look)
    if follow:
        return sse.answer(_follow(services, run_id, kind, first), services)
    more = cursor_of(page[-1].seq) if len(page) == limit else None
    return render.page([render.event(one) for one in page], more)


def _run_id(services: Services, caller: Caller, run: str | None) -> str | None:
    if run is None:
        return None
    with services.db.read() as tx:
        return str(access.find_run(tx, run, caller).id)


async def _follow(services: Services, run_id: str | None, kind: str | None, after: int) -> AsyncGenerator[bytes]:
    def read(seq: int) -> tuple[events.Event, ...]:
        with services.db.read() as tx:
            return events.page(tx, after=seq, limit=events.MAX_PAGE, run_id=run_id, kind=kind)

    with services.feed.watch() as watch:
        while not services.feed.closed:
            page = await run_in_threadpool(read, after)
            for one in page:
                after = one.seq
                yield sse.event("event", render.event(one), cursor_of(after))
            if not page and not await watch.wait(sse.HEARTBEAT_S):
                yield sse.HEARTBEAT
