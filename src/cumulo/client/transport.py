"""HTTP to one server: over TCP, TLS or a unix socket, with connections kept alive and requests tried again.

A server that restarts is the normal case, not a failure: a request that may be repeated (all but the few whose method
and path say otherwise) is repeated with growing pauses for `patience_s` seconds once the server has answered, and
briefly before that, since then nothing may be there at all.
"""

import http.client
import json
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from cumulo import __version__
from cumulo.client.endpoint import Endpoint
from cumulo.domain.errors import KINDS, CumuloError

BROKEN = (OSError, http.client.HTTPException)
_CODE_OF_STATUS = {401: "unauthenticated", 403: "forbidden", 404: "not_found", 409: "conflict", 413: "too_large"}
_FIRST_CONTACT_S = 0.5
TIMEOUT_S = 30.0  # of silence: three heartbeats of a stream

Query = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A request's body. `chunks` is called anew for every try; their lengths add up to `length`."""

    chunks: Callable[[], Iterable[bytes]]
    length: int | None
    content_type: str

    @classmethod
    def of_json(cls, value: object) -> "Payload":
        data = json.dumps(value).encode()
        return cls(chunks=lambda: (data,), length=len(data), content_type="application/json")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Transport:
    """Sends requests to one endpoint. Safe to use from several threads: each request has a connection to itself."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = 10.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self.timeout_s = timeout_s
        self.patience_s = patience_s
        self.sleep = sleep
        self.clock = clock
        self._idle: list[http.client.HTTPConnection] = []
        self._answered = False

    def json(
        self, method: str, path: str, *, query: Query | None = None, body: object = None,
        headers: Mapping[str, str] | None = None, repeat: bool = True,
    ) -> Any:  # fmt: skip
        """The answer to a request with a JSON body (or none). Raises CumuloError."""
        payload = None if body is None else Payload.of_json(body)
        return self.send(method, path, query=query, payload=payload, headers=headers, repeat=repeat)

    def send(
        self, method: str, path: str, *, query: Query | None = None, payload: Payload | None = None,
        headers: Mapping[str, str] | None = None, repeat: bool = True,
    ) -> Any:  # fmt: skip
        """Like `json`, with any body."""

        def once() -> Any:
            connection, response = self._exchange(method, target(path, query), payload, headers or {}, reuse=True)
            try:
                data = response.read()
            except BaseException:
                connection.close()
                raise
            self._keep(connection, response)
            return _answer(response, data, self.endpoint)

        return self.persist(once, repeat=repeat)

    @contextmanager
    def open(
        self, method: str, path: str, *, query: Query | None = None, payload: Payload | None = None,
        headers: Mapping[str, str] | None = None, repeat: bool = True,
        patience_s: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:  # fmt: skip
        """A response to be read as a stream, on a connection of its own that is closed at the end.

        `patience_s` says how long to try to get it.
        """

        def once() -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
            connection, response = self._exchange(method, target(path, query), payload, headers or {}, reuse=False)
            if response.status >= 400:
                data = response.read()
                connection.close()
                _answer(response, data, self.endpoint)
            return connection, response

        connection, response = self.persist(once, repeat=repeat, patience_s=patience_s)
        try:
            yield response
        finally:
            response.close()
            connection.close()

    def persist(self, once: Callable[[], Any], *, repeat: bool, patience_s: float | None = None) -> Any:
        """Calls `once` until it answers. A broken connection or a server that is still starting is tried again."""
        began, tries = self.clock(), 0
        while True:
            try:
                result = once()
                self._answered = True
                return result
            except CumuloError as error:
                self._answered = True
                if error.code != "starting" or not repeat:
                    raise
                failure: Exception = error
            except BROKEN as error:
                self.close()  # what lies idle is broken as well
                if not repeat and not isinstance(error, ConnectionRefusedError | FileNotFoundError):
                    raise unreachable(self.endpoint, error) from None
                failure = error
            patience = self.patience_s if patience_s is None else patience_s
            if not self._answered and not isinstance(failure, CumuloError):
                patience = min(patience, _FIRST_CONTACT_S)
            pause = min(1.0, 0.05 * 2.0**tries) * random.uniform(0.75, 1.25)  # noqa: S311
            if self.clock() - began + pause > patience:
                if isinstance(failure, CumuloError):
                    raise failure
                raise unreachable(self.endpoint, failure) from None
            tries += 1
            self.sleep(pause)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _exchange(
        self, method: str, path: str, payload: Payload | None, headers: Mapping[str, str], *, reuse: bool
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Sends one request and reads the head of its response. A kept connection that went stale is replaced once."""
        sent = self._headers(payload) | dict(headers)
        if reuse and self._idle:
            connection = self._idle.pop()
            try:
                return connection, _talk(connection, method, path, payload, sent)
            except (ConnectionError, http.client.BadStatusLine):
                # The server closed it while it lay idle: the request never arrived.
                connection.close()
        connection = self._connection()
        try:
            return connection, _talk(connection, method, path, payload, sent)
        except BaseException:
            connection.close()
            raise

    def _connection(self) -> http.client.HTTPConnection:
        if self.endpoint.socket:
            return _UnixConnection(self.endpoint.socket, self.timeout_s)
        parts = urlsplit(self.endpoint.url)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=self.timeout_s, context=tls_context(self.endpoint)
            )
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self.timeout_s)

    def _headers(self, payload: Payload | None) -> dict[str, str]:
        headers = {"User-Agent": f"cumulo/{__version__}", "Accept": "application/json"}
        if self.endpoint.token:
            headers["Authorization"] = f"Bearer {self.endpoint.token}"
        if payload is not None:
            headers["Content-Type"] = payload.content_type
            if payload.length is not None:
                headers["Content-Length"] = str(payload.length)
        return headers

    def _keep(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        if response.will_close or len(self._idle) >= 4:
            connection.close()
        else:
            self._idle.append(connection)


def target(path: str, query: Query | None) -> str:
    """A request's target. None in the query means not given; booleans are `true` and `false`."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in (query or {}).items()
        if value is not None
    }
    return path + ("?" + urlencode(given) if given else "")


def part(text: str) -> str:
    """`text` as one part of a path."""
    return quote(text, safe="")


def tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Verifies the server's certificate, by the endpoint's own authority where it names one."""
    try:
        return ssl.create_default_context(cafile=endpoint.ca_file)
    except OSError as error:
        raise CumuloError("unreachable", f"the CA file {endpoint.ca_file} can't be read: {error}") from None


def unreachable(endpoint: Endpoint, error: BaseException) -> CumuloError:
    """What to tell a person whose server does not answer."""
    if isinstance(error, ssl.SSLError):
        reason = f"TLS failed: {getattr(error, 'verify_message', '') or error.reason or error}"
        return CumuloError(
            "unreachable", f"{endpoint.where}: {reason}", hint="a certificate of your own? `cumulo login URL --ca FILE`"
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return CumuloError("unreachable", f"no server answers at {endpoint.where}: {reason}", hint=endpoint.hint)


def _talk(
    connection: http.client.HTTPConnection, method: str, path: str, payload: Payload | None, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    body = None if payload is None else payload.chunks()
    try:
        connection.request(method, path, body=body, headers=headers, encode_chunked=True)
    except (BrokenPipeError, ConnectionResetError):
        # The server may have refused before it read everything, and said why.
        if payload is None or connection.sock is None:
            raise
    return connection.getresponse()


def _answer(response: http.client.HTTPResponse, data: bytes, endpoint: Endpoint) -> Any:
    """The JSON of a response. Raises CumuloError for a problem, or for what is not our server's."""
    value: Any = None
    try:
        value = json.loads(data) if data else None
    except ValueError:
        if response.status < 400:
            raise _not_ours(endpoint) from None
    if response.status < 400:
        return value
    if not isinstance(value, dict) or "detail" not in value:
        code = _CODE_OF_STATUS.get(response.status, "internal")
        raise CumuloError(code, f"{endpoint.where} answered {response.status} {response.reason}")
    code = str(value.get("code", ""))
    if code not in KINDS:
        code = _CODE_OF_STATUS.get(response.status, "internal")
    hint = str(value.get("hint") or "")
    if code == "unauthenticated" and not hint:
        hint = f"log in with `cumulo login {endpoint.url}`"
    raise CumuloError(code, str(value["detail"]), hint=hint, details=value.get("details") or {})


def _not_ours(endpoint: Endpoint) -> CumuloError:
    return CumuloError(
        "unreachable", f"what answers at {endpoint.where} is not a Cumulo server", hint="check the address"
    )
