"""What every request passes before a route sees it: its Host, its size, and a net for faults of our own.

The Host check keeps web pages away from a server on loopback: a page whose name was made to resolve to 127.0.0.1 (DNS
rebinding) still sends its own name. There is no CORS for the same reason: no other origin has business here.
"""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable
from cumulo.server import problems
from cumulo.server.auth import peer_uid
from cumulo.server.counters import Counters

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY: Final = 4 << 20
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def too_large() -> CumuloError:
    """A body beyond what any JSON of ours needs."""
    return CumuloError("too_large", f"the body is larger than {MAX_BODY >> 20} MB", hint="files travel as blobs")


class Gate:
    """Wraps the application. With `loopback_only`, TCP requests must name this machine as their host."""

    def __init__(self, app: App, *, counters: Counters, loopback_only: bool) -> None:
        self.app = app
        self.counters = counters
        self.loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket" and not self._host_allowed(scope):
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self.app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.perf_counter(), 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # Only a request that had a verdict counts; how long a stream stays open is not a latency.
                self.counters.requests[scope["method"], status] += 1
                self.counters.seconds += time.perf_counter() - began
            await send(message)

        try:
            if error := self._refusal(scope):
                await problems.answer(error)(scope, receive, counted)
                return
            await self.app(scope, receive if _streams(scope) else _bounded(receive), counted)
        except Exception as error:
            if status:
                problems.fault(error, f"{scope['method']} {printable(scope['path'], 100)}")
                raise
            told = error if isinstance(error, CumuloError) else problems.fault(error, printable(scope["path"], 100))
            await problems.answer(told)(scope, receive, counted)

    def _refusal(self, scope: Scope) -> CumuloError | None:
        if not self._host_allowed(scope):
            return CumuloError(
                "forbidden", "the request names another host than this machine", hint="use http://127.0.0.1:PORT"
            )
        if not _streams(scope) and _announced_size(scope) > MAX_BODY:
            return too_large()
        return None

    def _host_allowed(self, scope: Scope) -> bool:
        if not self.loopback_only or peer_uid(scope) is not None:
            return True
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        try:
            return urlsplit(f"//{host.decode('latin-1')}").hostname in _LOOPBACK
        except ValueError:
            return False


def _streams(scope: Scope) -> bool:
    """Whether the body is taken in as it comes, and so may be as long as the disk is large."""
    return bool(scope["path"] == "/v1/blobs" or scope["path"].endswith("/files"))


def _announced_size(scope: Scope) -> int:
    text = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(text) if text.isdigit() else 0


def _bounded(receive: Receive) -> Receive:
    """`receive`, refusing a body as soon as it has grown past the limit."""
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY:
            # As the framework's own exception: it takes any other one for a body that can't be parsed.
            raise HTTPException(413)
        return message

    return bounded
