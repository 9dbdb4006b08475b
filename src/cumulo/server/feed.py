"""Tells followers that something changed: one thread for all of them, however many there are.

The thread waits for the next committed change, looks once at how all followed runs stand, and wakes only those whose
run moved. A run's log wakes its followers by itself. A follower is a coroutine that waits on a `Watch`; it costs no
thread, and a slow one delays nobody.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

from sqlalchemy import Row

from cumulo.store import views
from cumulo.store.database import Database
from cumulo.store.logs import Logs

logger = logging.getLogger(__name__)

# Changes that follow one another closely are told together. A first one is told at once.
_TOGETHER_S: Final = 0.05
_WAIT_S: Final = 1.0


class Changes(Protocol):
    """A counter that rises with every committed change."""

    def wait_change(self, seq: int, timeout: float) -> int:
        """Waits until it is above `seq`, at most `timeout` seconds, and returns it."""
        ...


class Watch:
    """What one follower waits on. `moved` says that its run may stand otherwise than when it was last taken down."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.moved = True
        self.told: Row[Any] | None = None  # the feed's own: how the run stood when it told last
        self._loop = loop
        self._woken = asyncio.Event()

    async def wait(self, patience_s: float) -> bool:
        """Whether something happened since the last call, within `patience_s`."""
        try:
            async with asyncio.timeout(patience_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    def wake(self) -> None:
        """From any thread. Whoever was woken and has not looked yet will see this change too."""
        if not self._woken.is_set():
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._woken.set)


class Feed:
    """`start` and `close` are called in the event loop; `close` wakes everybody, who then see `closed`."""

    def __init__(self, *, db: Database, logs: Logs, changes: Changes) -> None:
        self.closed = False
        self.closing = asyncio.Event()  # for coroutines that wait for something else as well
        self._db, self._logs, self._changes = db, logs, changes
        self._lock = threading.Lock()
        self._by_run: dict[str, set[Watch]] = {}
        self._any: set[Watch] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="cumulo-feed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.closed = True
        self.closing.set()
        for watch in self._all():
            watch.wake()

    @contextmanager
    def watch(self, run_id: str | None = None) -> Iterator[Watch]:
        """A watch on one run, or on every change. Look at things after entering, and nothing is missed."""
        watch = Watch(asyncio.get_running_loop())
        stop: Callable[[], None] = lambda: None  # noqa: E731
        with self._lock:
            (self._any if run_id is None else self._by_run.setdefault(run_id, set())).add(watch)
        if run_id is not None:
            stop = self._logs.subscribe(run_id, watch.wake)
        try:
            yield watch
        finally:
            stop()
            with self._lock:
                self._any.discard(watch)
                if run_id is not None:
                    watches = self._by_run.get(run_id, set())
                    watches.discard(watch)
                    if not watches:
                        self._by_run.pop(run_id, None)

    def _all(self) -> list[Watch]:
        with self._lock:
            return [*self._any, *(watch for watches in self._by_run.values() for watch in watches)]

    def _work(self) -> None:
        seq = 0
        while not self.closed:
            try:
                now = self._changes.wait_change(seq, _WAIT_S)
                if now == seq:
                    continue
                seq = now
                self._tell()
            except Exception:
                # Followers also look by themselves now and then, so a database that is away only delays them.
                logger.exception("the feed could not look at what changed")
                time.sleep(_WAIT_S)
            time.sleep(_TOGETHER_S)

    def _tell(self) -> None:
        with self._lock:
            everybody, followed = list(self._any), list(self._by_run)
        for watch in everybody:
            watch.wake()
        if not followed:
            return
        with self._db.read() as tx:
            standings = views.standings(tx, followed)
        for standing in standings:
            with self._lock:
                watches = list(self._by_run.get(standing.id, ()))
            for watch in watches:
                if watch.told != standing:
                    watch.told, watch.moved = standing, True
                    watch.wake()
