"""Server-sent events, as bytes. What breaks while a stream is open becomes its last event, `error`, with a problem."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from pydantic_core import to_json
from starlette.responses import StreamingResponse

from cumulo.domain.errors import CumuloError
from cumulo.server import problems
from cumulo.server.services import Services

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT_S: Final = 10.0
HEARTBEAT: Final = b": still here\n\n"

Events = AsyncGenerator[bytes]


def event(kind: str, data: Any, cursor: str | int | None = None) -> bytes:
    """One event; `cursor` is what a reader sends back to go on right after it."""
    id_line = b"" if cursor is None else f"id: {cursor}\n".encode()
    return b"event: " + kind.encode() + b"\n" + id_line + b"data: " + to_json(data) + b"\n\n"


def answer(events: Events, services: Services) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_told(events, services), media_type=MEDIA_TYPE, headers=headers)


async def _told(events: Events, services: Services) -> Events:
    services.counters.followers += 1
    try:
        async for one in events:
            yield one
    except CumuloError as error:
        yield event("error", problems.problem(error))
    except Exception as error:
        yield event("error", problems.problem(problems.fault(error, "a stream")))
    finally:
        services.counters.followers -= 1
        await events.aclose()
