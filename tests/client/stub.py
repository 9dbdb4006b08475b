"""A scripted HTTP server: each request is answered by what the test laid out for its method and path, in order."""

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Request:
    """What arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """An answer: JSON, or `chunks` as a chunked stream. `cut` breaks the connection instead of ending it properly."""

    data: Any = None
    status: int = 200
    chunks: Iterable[bytes] | None = None
    cut: bool = False
    headers: dict[str, str] = field(default_factory=dict)


Answer = Reply | Callable[[Request], Reply]


def problem(code: str, status: int, detail: str, *, hint: str = "", **details: Any) -> Reply:
    return Reply({"code": code, "status": status, "detail": detail, "hint": hint, "details": details}, status)


class Stub:
    """Answers by (method, path); the last answer laid out for one is repeated. `requests` is all that came."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[Answer]] = {}
        self.requests: list[Request] = []
        self.connections = 0
        self.url = ""

    def on(self, method: str, path: str, *answers: Answer) -> None:
        self.answers.setdefault((method, path), []).extend(answers)

    def seen(self, method: str, path: str) -> list[Request]:
        return [one for one in self.requests if (one.method, one.path) == (method, path)]

    def answer(self, request: Request) -> Reply:
        self.requests.append(request)
        waiting = self.answers.get((request.method, request.path))
        if not waiting:
            return problem("not_found", 404, f"the stub has no {request.method} {request.path}")
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return answer if isinstance(answer, Reply) else answer(request)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: Stub

    def setup(self) -> None:
        self.stub.connections += 1
        super().setup()

    def handle(self) -> None:
        with suppress(ConnectionError):  # some tests break connections on purpose
            super().handle()

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.stub.answer(Request(self.command, parts.path, query, headers, body))
        self.close_connection = self.close_connection or reply.cut
        if reply.chunks is not None:
            self._stream(reply)
            return
        if reply.cut:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        data = b"" if reply.data is None else json.dumps(reply.data).encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in reply.chunks or ():
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        if not reply.cut:
            self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _handle


class _UnixServer(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


@contextmanager
def serving(stub: Stub, *, unix: Path | None = None) -> Iterator[Stub]:
    """Runs the stub on a free port of loopback, or on a unix socket."""
    handler = type("Handler", (_Handler,), {"stub": stub})
    server: Any = _UnixServer(str(unix), handler) if unix else ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    stub.url = f"unix:{unix}" if unix else f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def event(kind: str, data: Any, cursor: str = "") -> bytes:
    """One server-sent event."""
    head = f"id: {cursor}\n" if cursor else ""
    return f"{head}event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def log(text: str, cursor: str, **more: Any) -> bytes:
    return event("log", {"source": "rank 0", "unit": 0, "attempt": 1, "rank": 0, "text": text, **more}, cursor)
