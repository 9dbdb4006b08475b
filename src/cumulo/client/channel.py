"""A websocket into a run: a command's terminal or pipes, or a TCP connection to a port it listens on.

Bytes are the data; text frames are control messages, JSON objects. One thread owns the socket and never blocks on it,
so that much data both ways at once can't stand still: with a sender that holds what the receiver needs, it did.
"""

import contextlib
import json
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Event
from websockets.uri import parse_uri

from cumulo.client.endpoint import Endpoint
from cumulo.client.transport import BROKEN, Query, target, tls_context, unreachable
from cumulo.domain.errors import KINDS, CumuloError

_OPEN_S = 20.0
_CLOSE_S = 2.0
_CHUNK = 1 << 16
_MOST = 1 << 20  # bytes that may lie in either direction before whoever brings more has to wait


class Channel:
    """An open websocket. `receive` gives bytes, then None at the end; `exit_code` is known once it has."""

    def __init__(self, connection: socket.socket, protocol: ClientProtocol, early: Iterable[Event] = ()) -> None:
        """`early` is what came together with the answer to the handshake."""
        self._socket = connection
        self._protocol = protocol
        self._changed = threading.Condition()
        self._inbox: deque[bytes] = deque()
        self._arrived = 0  # bytes in the inbox
        self._outbox = bytearray()
        self._over = False
        self._problem: CumuloError | None = None
        self._text = bytearray()
        self._binary = True  # what an unfinished message is made of
        self._left = False  # we closed it, not the other side
        self.exit_code: int | None = None
        for event in early:
            self._take(event)
        connection.setblocking(False)
        self._wake, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._thread = threading.Thread(target=self._carry, name="cumulo-channel", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Sends bytes; waits while too many are on their way. Raises BrokenPipeError once the other side has closed."""
        for begin in range(0, len(data), _CHUNK):
            with self._changed:
                self._changed.wait_for(lambda: self._over or len(self._outbox) < _MOST)
                self._frame(Opcode.BINARY, data[begin : begin + _CHUNK])

    def control(self, message: Mapping[str, object]) -> None:
        with self._changed:
            self._frame(Opcode.TEXT, json.dumps(message).encode())

    def eof(self) -> None:
        """Nothing more will be sent; what comes back still does."""
        self.control({"eof": True})

    def resize(self, rows: int, columns: int) -> None:
        self.control({"resize": [rows, columns]})

    def receive(self) -> bytes | None:
        """The next bytes; None at the end. Raises CumuloError if the server says what went wrong."""
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._over)
            if self._inbox:
                data = self._inbox.popleft()
                self._arrived -= len(data)
                self._stir()
                return data
            if self._problem:
                raise self._problem
            return None

    def close(self) -> None:
        with self._changed:
            self._left = True
            if not self._over:
                with contextlib.suppress(Exception):  # it may be closing already: that is what we want
                    self._protocol.send_close()
                self._collect()
        self._thread.join(_CLOSE_S)
        with self._changed:
            self._over = True
            self._stir()
        self._thread.join()
        for one in (self._socket, self._wake, self._waker):
            one.close()

    def _frame(self, opcode: Opcode, data: bytes) -> None:
        """Puts one frame on its way. The lock is held."""
        if self._over or self._protocol.close_expected():
            raise BrokenPipeError("the other side has closed the connection")
        self._protocol.send_frame(Frame(opcode, data))
        self._collect()

    def _collect(self) -> None:
        for data in self._protocol.data_to_send():
            self._outbox += data
        self._stir()

    def _stir(self) -> None:
        self._changed.notify_all()
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: nobody is left to wake
            self._waker.send(b"x")

    def _carry(self) -> None:
        """The thread that owns the socket: carries bytes both ways until the end."""
        try:
            while not self._over:
                with self._changed:
                    writes = bool(self._outbox)
                    reads = self._arrived < _MOST
                self._wait(reads=reads, writes=writes)
                if writes:
                    self._write()
                if reads and not self._read():
                    break
        except OSError as error:
            with self._changed:
                self._problem = self._problem or CumuloError("unreachable", f"the connection broke: {error}")
        finally:
            with self._changed:
                self._over = True
                if not (self._left or self._problem) and self._protocol.close_code != CloseCode.NORMAL_CLOSURE:
                    self._problem = CumuloError("unreachable", "the connection broke off", hint="try again")
                self._changed.notify_all()

    def _wait(self, *, reads: bool, writes: bool) -> None:
        if reads and isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return
        reading = [self._wake, self._socket] if reads else [self._wake]
        ready, _, _ = select.select(reading, [self._socket] if writes else [], [])
        if self._wake in ready:
            self._wake.recv(4096)

    def _write(self) -> None:
        with self._changed:
            piece = bytes(self._outbox[:_CHUNK])
        try:
            sent = self._socket.send(piece)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        with self._changed:
            del self._outbox[:sent]
            self._changed.notify_all()

    def _read(self) -> bool:
        """Takes what has arrived; whether more may come."""
        try:
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        with self._changed:
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            for event in self._protocol.events_received():
                self._take(event)
            self._collect()
        return bool(data)

    def _take(self, frame: Event) -> None:
        if not isinstance(frame, Frame):
            return
        if frame.opcode in (Opcode.BINARY, Opcode.TEXT):
            self._binary = frame.opcode is Opcode.BINARY
        elif frame.opcode is not Opcode.CONT:
            return
        if self._binary:
            if frame.data:
                self._inbox.append(bytes(frame.data))
                self._arrived += len(frame.data)
            return
        self._text += frame.data
        if frame.fin:
            text, self._text = bytes(self._text), bytearray()
            self._told(json.loads(text))

    def _told(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        if isinstance(message.get("exit_code"), int):
            self.exit_code = message["exit_code"]
        if error := message.get("error"):
            self._problem = _problem(error, "the server could not do it")


def open_channel(endpoint: Endpoint, path: str, query: Query) -> Channel:
    """Opens a websocket to a path of the API. Raises CumuloError."""
    url = endpoint.url.replace("http", "ws", 1) + target(path, query)
    protocol = ClientProtocol(parse_uri(url), max_size=None)
    connection: socket.socket | None = None
    try:
        connection = _connect(endpoint)
        request = protocol.connect()
        if endpoint.token:
            request.headers["Authorization"] = f"Bearer {endpoint.token}"
        protocol.send_request(request)
        for data in protocol.data_to_send():
            connection.sendall(data)
        while not (events := protocol.events_received()) and protocol.handshake_exc is None:
            if data := connection.recv(_CHUNK):
                protocol.receive_data(data)
            else:
                protocol.receive_eof()
        if protocol.handshake_exc is not None:
            raise protocol.handshake_exc
        return Channel(connection, protocol, events)
    except BaseException as error:
        if connection is not None:
            connection.close()
        raise _refusal(endpoint, error) from None


def _connect(endpoint: Endpoint) -> socket.socket:
    if endpoint.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_OPEN_S)
        connection.connect(endpoint.socket)
        return connection
    parts = urlsplit(endpoint.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = socket.create_connection((parts.hostname or "", port), _OPEN_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if parts.scheme == "https":
        return tls_context(endpoint).wrap_socket(connection, server_hostname=parts.hostname)
    return connection


def _refusal(endpoint: Endpoint, error: BaseException) -> BaseException:
    if isinstance(error, InvalidStatus):
        try:
            told = json.loads(error.response.body or b"")
        except ValueError:
            told = None
        return _problem(told, f"{endpoint.where} answered {error.response.status_code}")
    if isinstance(error, (InvalidHandshake, *BROKEN)):
        return unreachable(endpoint, error)
    return error


def _problem(told: Any, otherwise: str) -> CumuloError:
    if not isinstance(told, dict):
        return CumuloError("internal", otherwise)
    code = str(told.get("code"))
    return CumuloError(
        code if code in KINDS else "internal", str(told.get("detail") or otherwise), hint=str(told.get("hint") or "")
    )
