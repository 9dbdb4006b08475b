"""Follows the logs of a run: nothing lost, nothing twice, and the end told once everything before it was.

Two facts make the end exact. The control loop ships an instance's whole log before the store says that it ended. And a
round here looks at how the run stands first and reads the logs after, so what was read after a terminal status was seen
is all there will ever be.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row
from starlette.concurrency import run_in_threadpool

from cumulo.domain.lifecycle import TERMINAL, InstanceState
from cumulo.domain.run import RunSpec
from cumulo.server import render, sse
from cumulo.server.feed import Watch
from cumulo.server.log_cursor import LogPosition, log_text, whole_characters
from cumulo.server.services import Services
from cumulo.store import views
from cumulo.store.logs import LogRef

_PIECE: Final = 64 << 10
_ROUND: Final = 512 << 10  # bytes read at most before they are sent
_LOOK_S: Final = 1.0  # new instances are looked for at least this often while the log grows
_PACE_S: Final = 0.03  # between rounds, so that a chatty run costs a bounded number of them
_OVER: Final = frozenset(str(status) for status in TERMINAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """What is wanted of a run's logs. `place` None: of all units. `since` is epoch seconds."""

    run_id: str
    spec: RunSpec
    place: int | None
    attempt: int | None = None
    rank: int | None = None
    tail: int | None = None
    since: float | None = None
    follow: bool = False


@dataclass(frozen=True, slots=True)
class _Piece:
    ref: LogRef
    text: str
    cursor: str


class LogStream:
    """One reader. `events` yields server-sent events until the end, or for what is there now."""

    def __init__(self, services: Services, query: LogQuery, *, position: LogPosition | None) -> None:
        self._services = services
        self._query = query
        self._fresh = position is None
        self._at = position or LogPosition(query.run_id)
        self._sources: Sequence[Row[Any]] = ()
        self._standing: Row[Any] | None = None
        self._verdict: Row[Any] | None = None  # once it is over: the row of the run, or of the one unit, that says so
        self._looked = 0.0
        self._progress: str | None = None

    async def events(self) -> AsyncGenerator[bytes]:
        feed = self._services.feed
        with feed.watch(self._query.run_id) as watch:
            while True:
                pieces, more = await run_in_threadpool(self._round, watch)
                standing = self._standing
                if standing is None:  # the run's row is never deleted; a database restored under us may lack it
                    return
                if standing.status != self._at.status and standing.status not in _OVER:
                    self._at.status = standing.status
                    yield sse.event("status", _status(standing), self._at.cursor())
                for piece in pieces:
                    yield sse.event("log", self._line(piece), piece.cursor)
                if standing.progress != self._progress:
                    self._progress = standing.progress
                    yield sse.event("progress", render.progress(standing.progress))
                if more:
                    continue
                if self._verdict is not None:
                    yield sse.event("end", _end(self._verdict), self._at.cursor())
                    return
                if not self._query.follow or feed.closed:
                    return
                if not await watch.wait(sse.HEARTBEAT_S):
                    self._looked = 0.0
                    yield sse.HEARTBEAT
                await asyncio.sleep(_PACE_S)

    def _line(self, piece: _Piece) -> dict[str, Any]:
        ref, spec = piece.ref, self._query.spec
        parts = [str(spec.array.index(ref.unit))] if spec.array else []
        if spec.ask.nodes > 1 or not parts:
            parts.append(f"rank {ref.rank}")
        return {
            "source": " ".join(parts),
            "unit": render.index_of(spec, ref.unit),
            "attempt": ref.attempt,
            "rank": ref.rank,
            "text": piece.text,
        }

    def _round(self, watch: Watch) -> tuple[list[_Piece], bool]:
        """Looks at the run, then reads what is new of its logs: the pieces, and whether there is more."""
        self._look(watch)
        pieces: list[_Piece] = []
        room = _ROUND
        # A log that always has more must not keep the others from being read: each gives one piece in its turn.
        left = deque(self._wanted())
        unread = Counter(source.unit for source in left)
        while left and room > 0:
            source = left.popleft()
            if data := self._read(source):
                pieces.append(self._take(source, data))
                room -= len(data)
                left.append(source)
                continue
            unread[source.unit] -= 1
            if unread[source.unit]:
                continue
            if following := self._next_attempt(source):
                left += following
                unread[source.unit] = len(following)
            elif self._query.spec.array and source.unit_status in _OVER:
                self._finish(source.unit)
        return pieces, bool(left)

    def _next_attempt(self, source: Row[Any]) -> list[Row[Any]]:
        """What to read of a unit once an attempt has been read: the next attempt, if this one is over and it is there.

        All instances of an attempt have ended before the next one is placed.
        """
        unit, attempt = source.unit, source.attempt
        if self._query.attempt is not None or not any(s.unit == unit and s.attempt > attempt for s in self._sources):
            return []
        for ref in [ref for ref in self._at.offsets if ref.unit == unit and ref.attempt <= attempt]:
            del self._at.offsets[ref]
        following = min(s.attempt for s in self._sources if s.unit == unit and s.attempt > attempt)
        for later in self._sources:
            if later.unit == unit and later.attempt == following:
                self._at.offsets.setdefault(_ref(self._query.run_id, later), 0)
        return [later for later in self._wanted() if later.unit == unit]

    def _look(self, watch: Watch) -> None:
        now = time.monotonic()
        if not watch.moved and now - self._looked < _LOOK_S:
            return
        watch.moved, self._looked = False, now
        query = self._query
        with self._services.db.read() as tx:
            standing = next(iter(views.standings(tx, [query.run_id])), None)
            one = query.place is not None and query.spec.array is not None
            unit = views.find_unit(tx, query.run_id, query.place or 0) if one else None
            self._sources = views.log_sources(tx, query.run_id, place=query.place)
        self._standing = standing
        self._verdict = next((row for row in (unit, standing) if row is not None and row.status in _OVER), None)
        if self._fresh:
            self._fresh = False
            self._begin()

    def _begin(self) -> None:
        """Sets where a first connection starts: with the attempt named, or the last if only its tail is asked for.

        Else with the first of each unit, as far as it goes back in time.
        """
        query, logs = self._query, self._services.logs
        newest = {source.unit: source.attempt for source in self._sources}
        for source in self._sources:
            begins = query.attempt or (newest[source.unit] if query.tail is not None else source.attempt)
            if source.attempt != begins:
                continue
            ref = _ref(query.run_id, source)
            offset = 0
            if query.tail is not None:
                offset = logs.tail(ref, query.tail)
            if query.since is not None:
                offset = max(offset, logs.since(ref, query.since))
            self._at.offsets[ref] = offset

    def _wanted(self) -> list[Row[Any]]:
        """The instances whose logs are to be read now, in the order of the store: of each unit one attempt."""
        query = self._query
        left = [
            source
            for source in self._sources
            if source.unit not in self._at.done
            and (query.rank is None or source.rank == query.rank)
            and (query.attempt is None or source.attempt == query.attempt)
            and source.attempt >= (self._at.first_attempt(source.unit) or 0)
        ]
        first = {source.unit: source.attempt for source in reversed(left)}
        return [source for source in left if source.attempt == first[source.unit]]

    def _read(self, source: Row[Any]) -> bytes:
        ref = _ref(self._query.run_id, source)
        data = self._services.logs.read(ref, self._at.offsets.get(ref, 0), _PIECE)
        last = len(data) < _PIECE
        return data if last and source.state == InstanceState.ENDED else data[: whole_characters(data)]

    def _take(self, source: Row[Any], data: bytes) -> _Piece:
        ref = _ref(self._query.run_id, source)
        self._at.offsets[ref] = self._at.offsets.get(ref, 0) + len(data)
        return _Piece(ref, log_text(data), self._at.cursor())

    def _finish(self, unit: int) -> None:
        """Nothing more will come of this unit of an array: one number in the cursor stands for all its logs."""
        self._at.done.add(unit)
        for ref in [ref for ref in self._at.offsets if ref.unit == unit]:
            del self._at.offsets[ref]


def _ref(run_id: str, source: Row[Any]) -> LogRef:
    return LogRef(run_id, source.unit, source.attempt, source.rank)


def _status(standing: Row[Any]) -> dict[str, Any]:
    return {"status": standing.status, "message": standing.message}


def _end(standing: Row[Any]) -> dict[str, Any]:
    return {
        "status": standing.status,
        "exit_code": standing.exit_code,
        "reason": standing.reason,
        "message": standing.message,
    }
