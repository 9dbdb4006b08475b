"""Failures as they leave the server: RFC 9457 problems with one stable code each, never a traceback.

The codes and their statuses are those of `cumulo.domain.errors`. What is a fault of our own is logged with a number
that the answer carries, and tells nothing else.
"""

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket

from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable
from cumulo.wire.level import sentence_of

logger = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"


def problem(error: CumuloError, *, status: int | None = None) -> dict[str, Any]:
    """The body of a problem. `status` where HTTP's own says it better than the code's."""
    return {
        "type": f"urn:cumulo:error:{error.code}",
        "title": error.kind.title,
        "status": status or error.kind.http_status,
        "detail": error.message,
        "code": error.code,
        "hint": error.hint,
        "details": error.details,
    }


def answer(error: CumuloError, *, status: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """A problem as an answer."""
    body = problem(error, status=status)
    more = dict(headers or {})
    if error.code == "unauthenticated":
        more["WWW-Authenticate"] = "Bearer"
    if body["status"] == 503:
        more["Retry-After"] = "1"
    return Response(to_json(body, fallback=str), body["status"], more, MEDIA_TYPE)


def fault(error: BaseException, what: str) -> CumuloError:
    """Logs a fault of our own, and gives what may be told of it."""
    number = secrets.token_hex(4)
    logger.error("fault %s in %s", number, what, exc_info=error)
    return CumuloError(
        "internal", f"something went wrong inside Cumulo (fault {number})", hint="the server's log has the details"
    )


def install(app: FastAPI) -> None:
    """Makes every failure of a route a problem, also of a websocket that is not open yet."""
    app.add_exception_handler(CumuloError, _handler(_told))
    app.add_exception_handler(RequestValidationError, _handler(_not_valid))
    app.add_exception_handler(WebSocketRequestValidationError, _handler(_not_valid))
    app.add_exception_handler(HTTPException, _handler(_http))
    app.add_exception_handler(TimeoutError, _handler(_too_late))


def _handler(told: Callable[[HTTPConnection, Any], Response]) -> Callable[..., Any]:
    async def handle(connection: HTTPConnection, error: Exception) -> Response | None:
        response = told(connection, error)
        if isinstance(connection, WebSocket):
            await connection.send_denial_response(response)
            return None
        return response

    return handle


def _told(_connection: HTTPConnection, error: CumuloError) -> Response:
    if error.code == "internal":
        logger.error("%s", error)
    return answer(error)


def _not_valid(
    _connection: HTTPConnection, error: RequestValidationError | WebSocketRequestValidationError
) -> Response:
    errors = error.errors()
    first = tuple(errors[0]["loc"])
    if errors[0]["type"] == "json_invalid":
        reason = errors[0].get("ctx", {}).get("error", "")
        return answer(CumuloError("invalid_request", f"the body is not valid JSON: {printable(str(reason), 100)}"))
    if first[:2] == ("body", "run"):
        inside = [one for one in errors if tuple(one["loc"])[:2] == ("body", "run")]
        return answer(sentence_of(inside, skip=2))
    return answer(sentence_of(errors, code="invalid_request", skip=1))


def _too_late(_connection: HTTPConnection, _error: TimeoutError) -> Response:
    """The control loop is alive but did not come to this in time, for example because the disk stands still."""
    return answer(CumuloError("starting", "the control loop did not answer in time", hint="see `cumulo doctor`"))


def _http(connection: HTTPConnection, error: HTTPException) -> Response:
    """What the framework itself refuses: no such URL, no such verb."""
    path = printable(connection.url.path, 100)
    told = {
        400: CumuloError("invalid_request", "the body can't be read: it is not JSON, or nested beyond all measure"),
        413: CumuloError("too_large", "the body is too large", hint="files travel as blobs"),
        404: CumuloError("not_found", f"there is nothing at {path}", hint="/openapi.json lists every URL"),
        405: CumuloError("invalid_request", f"{connection.scope.get('method')} can't be used on {path}"),
    }.get(error.status_code, CumuloError("invalid_request", printable(str(error.detail))))
    return answer(told, status=error.status_code, headers=error.headers)
