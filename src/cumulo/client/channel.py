"""A websocket into a run: a command's terminal or pipes, or a TCP connection to a port it listens on.

Bytes are the data; text frames are control messages, JSON objects. Safe to send from one thread while another receives.
"""

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect, unix_connect

from cumulo.client.endpoint import Endpoint
from cumulo.client.transport import BROKEN, Query, target, tls_context, unreachable
from cumulo.domain.errors import KINDS, CumuloError

_OPEN_S = 20.0
_CHUNK = 1 << 16


class Channel:
    """An open websocket. `receive` gives bytes, then None at the end; `exit_code` is known once it has."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.exit_code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Sends bytes. Raises BrokenPipeError once the other side has closed."""
        for begin in range(0, len(data), _CHUNK):
            self._send(data[begin : begin + _CHUNK])

    def control(self, message: Mapping[str, object]) -> None:
        self._send(json.dumps(message))

    def eof(self) -> None:
        """Nothing more will be sent; what comes back still does."""
        self.control({"eof": True})

    def resize(self, rows: int, columns: int) -> None:
        self.control({"resize": [rows, columns]})

    def receive(self) -> bytes | None:
        """The next bytes; None at the end. Raises CumuloError if the server says what went wrong."""
        while True:
            try:
                frame = self._connection.recv()
            except ConnectionClosed as closed:
                if closed.rcvd is not None and closed.rcvd.code >= 4000:
                    raise CumuloError("conflict", closed.rcvd.reason or "the server closed the connection") from None
                return None
            if isinstance(frame, bytes):
                return frame
            self._told(json.loads(frame))

    def close(self) -> None:
        self._connection.close()

    def _send(self, data: bytes | str) -> None:
        try:
            self._connection.send(data)
        except ConnectionClosed:
            raise BrokenPipeError("the other side has closed the connection") from None

    def _told(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        if isinstance(message.get("exit_code"), int):
            self.exit_code = message["exit_code"]
        if error := message.get("error"):
            raise _problem(error, "the command could not be run")


def open_channel(endpoint: Endpoint, path: str, query: Query) -> Channel:
    """Opens a websocket to a path of the API. Raises CumuloError."""
    headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    options: dict[str, Any] = {"additional_headers": headers, "open_timeout": _OPEN_S, "close_timeout": 2.0}
    options |= {"max_size": None, "compression": None}
    try:
        if endpoint.socket:
            uri = f"ws://localhost{target(path, query)}"
            return Channel(unix_connect(endpoint.socket, uri, **options))
        uri = endpoint.url.replace("http", "ws", 1) + target(path, query)
        tls = tls_context(endpoint) if uri.startswith("wss:") else None
        return Channel(connect(uri, ssl=tls, proxy=None, **options))
    except InvalidStatus as refused:
        try:
            told = json.loads(refused.response.body or b"")
        except ValueError:
            told = None
        raise _problem(told, f"{endpoint.where} answered {refused.response.status_code}") from None
    except (InvalidHandshake, *BROKEN) as error:
        raise unreachable(endpoint, error) from None


def _problem(told: Any, otherwise: str) -> CumuloError:
    if not isinstance(told, dict):
        return CumuloError("internal", str(told) if isinstance(told, str) else otherwise)
    code = str(told.get("code"))
    return CumuloError(
        code if code in KINDS else "internal", str(told.get("detail") or otherwise), hint=str(told.get("hint") or "")
    )
