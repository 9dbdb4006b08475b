"""Server-sent events, read so that nothing is lost and nothing comes twice.

Each event's id is a cursor that resumes right after it. When the connection breaks, or falls silent for longer than the
server's heartbeats allow, the reader opens it again with the last cursor.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cumulo.client.transport import BROKEN, Query, Transport
from cumulo.domain.errors import CumuloError

PATIENCE_S = 120.0  # how long a follower waits for a server that went away


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event as it came: `data` is JSON text, `cursor` the id it carried or the last one before it."""

    kind: str
    data: str
    cursor: str


class Parser:
    """Turns the bytes of a stream into events, whatever pieces they come in.

    `cursor` is that of the last event that came whole: one that was cut off must be sent again.
    """

    def __init__(self, cursor: str = "") -> None:
        self.cursor = cursor
        self._rest = bytearray()
        self._searched = 0
        self._kind = ""
        self._data: list[str] = []
        self._id = cursor

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        self._rest += data
        begin = 0
        while (end := self._rest.find(b"\n", max(begin, self._searched))) >= 0:
            line = self._rest[begin:end].decode("utf-8", "replace").removesuffix("\r")
            begin = end + 1
            if event := self._line(line):
                yield event
        del self._rest[:begin]
        self._searched = len(self._rest)

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            self.cursor = self._id
            event = ServerEvent(self._kind or "message", "\n".join(self._data), self.cursor) if self._data else None
            self._kind, self._data = "", []
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id":
            self._id = value
        return None  # the rest are comments (heartbeats) and fields we have no use for


def read(
    transport: Transport,
    path: str,
    *,
    query: Query,
    follow: bool,
    start_only: frozenset[str] = frozenset(),
    on_trouble: Callable[[str], None] | None = None,
) -> Iterator[ServerEvent]:
    """The events of `path`. With `follow` it never ends by itself: the caller stops at the event that says so.

    Without, it ends where the server ends it. `start_only` names the parameters that say where to begin; they are
    dropped once a cursor does. `on_trouble` hears each time that the connection broke. Raises CumuloError.
    """
    cursor, fruitless = "", 0
    while True:
        sent = dict(query)
        if cursor:
            sent = {name: value for name, value in sent.items() if name not in start_only} | {"cursor": cursor}
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": cursor} if cursor else {})
        parser = Parser(cursor)
        patience_s = PATIENCE_S if follow else None
        try:
            with transport.open("GET", path, query=sent, headers=headers, patience_s=patience_s) as response:
                while data := response.read1(65536):
                    for event in parser.feed(data):
                        fruitless = 0
                        yield event
            if not follow:
                return
            trouble = "it closed the stream"
        except BROKEN as error:
            trouble = str(error) or type(error).__name__
        if on_trouble:
            on_trouble(trouble)
        cursor = parser.cursor
        fruitless += 1
        transport.sleep(min(2.0, 0.05 * 2.0**fruitless))


def value(event: ServerEvent) -> dict[str, Any]:
    """The JSON object an event carries. Raises CumuloError for anything else."""
    try:
        data = json.loads(event.data)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise CumuloError("internal", f"the server sent a {event.kind!r} event that is no JSON object")
    return data
