"""Logs on their way from the engines to the store, since engines forget them.

What the store has is where the next read begins, so a crash loses and doubles nothing. Instances whose log somebody
follows are read several times a second, the others once.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from json import dumps
from typing import Any, Final

from cumulo.domain.instance import parse_instance_id
from cumulo.domain.progress import Progress, parse_match
from cumulo.engines.protocol import Engine
from cumulo.store.logs import LogRef, Logs

log = logging.getLogger(__name__)

FOLLOWED_S: Final = 0.1
UNFOLLOWED_S: Final = 1.0
_CHUNK: Final = 1 << 20
# A person's pattern may be one that backtracks for ever; looking at a piece of log must not take longer than this.
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A running instance whose log is to be shipped. `progress` finds progress in it, if the run named a pattern."""

    engine: Engine
    instance_id: str
    run_id: str
    progress: str | None = None


@cache
def _compiled(pattern: str) -> Any:
    """A run's pattern, checked when the run was accepted. `re` would do but for its lack of a time limit."""
    import regex  # for those alone who use it

    return regex.compile(pattern)


class Shipper:
    """Ships the logs of running instances on a thread of its own, and of ended ones when told to."""

    def __init__(self, logs: Logs, *, clock: Callable[[], float], progress: Callable[[str, str], None]) -> None:
        self._logs, self._clock, self._tell_progress = logs, clock, progress
        self._sources: dict[str, Source] = {}
        self._of_run: dict[str, dict[str, Source]] = {}  # the same, by run
        self._sizes: dict[str, int] = {}  # how much the store has of each
        self._tails: dict[str, str] = {}
        self._too_slow: set[str] = set()  # patterns that are no longer tried
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="log-shipper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def watch(self, sources: list[Source]) -> None:
        """These instances run now; others are no longer looked at."""
        with self._guard:
            self._sources, self._of_run, self._sizes = {}, {}, {}
        self.change(sources, ())

    def change(self, came: Iterable[Source], gone: Iterable[str]) -> None:
        """These run now too, and those no longer are to be looked at."""
        with self._guard:
            for source in came:
                self._sources[source.instance_id] = source
                self._of_run.setdefault(source.run_id, {})[source.instance_id] = source
            for instance_id in gone:
                self._sizes.pop(instance_id, None)
                left = self._sources.pop(instance_id, None)
                if left is not None:
                    of_run = self._of_run[left.run_id]
                    del of_run[instance_id]
                    if not of_run:
                        del self._of_run[left.run_id]

    def finish(self, engine: Engine, instance_id: str) -> None:
        """Ships what is left of an ended instance's log. Raises nothing: a log must not hold up an end."""
        try:
            run_id = parse_instance_id(instance_id).run_id
            known = self._sources.get(instance_id)
            self._ship(known or Source(engine=engine, instance_id=instance_id, run_id=run_id))
        except Exception:
            log.warning("the log of %s could not be fetched", instance_id, exc_info=True)
        with self._guard:
            self._locks.pop(instance_id, None)
            self._tails.pop(instance_id, None)
            self._sizes.pop(instance_id, None)

    def _loop(self) -> None:
        ticks = 0
        every = round(UNFOLLOWED_S / FOLLOWED_S)
        while not self._closing.wait(FOLLOWED_S):
            ticks += 1
            for source in self._due(all_of_them=ticks % every == 0):
                try:
                    self._ship(source)
                except KeyError:
                    continue  # the engine has not made it yet, or has forgotten it
                except Exception:
                    log.warning("the log of %s could not be fetched", source.instance_id, exc_info=True)

    def _due(self, *, all_of_them: bool) -> list[Source]:
        followed = self._logs.followed_runs()
        with self._guard:
            if all_of_them:
                return list(self._sources.values())
            return [source for run_id in followed for source in self._of_run.get(run_id, {}).values()]

    def _ship(self, source: Source) -> None:
        with self._guard:
            lock = self._locks.setdefault(source.instance_id, threading.Lock())
        ref = LogRef.of(source.instance_id)
        with lock:
            known = self._sizes.get(source.instance_id)
            offset = self._logs.size(ref) if known is None else known
            while data := source.engine.read_log(source.instance_id, offset, _CHUNK):
                self._logs.append(ref, offset, data)
                offset += len(data)
                if source.progress is not None and source.progress not in self._too_slow:
                    self._find_progress(source, source.progress, data)
            if source.instance_id in self._sources:
                self._sizes[source.instance_id] = offset

    def _find_progress(self, source: Source, pattern: str, data: bytes) -> None:
        """The last match counts; the end of the text is kept, since a line may arrive in two pieces."""
        text = self._tails.get(source.instance_id, "") + data.decode(errors="replace")
        found: Progress | None = None
        end = 0
        try:
            for match in _compiled(pattern).finditer(text, timeout=_LOOK_S, concurrent=True):
                found, end = parse_match(match, self._clock()) or found, match.end()
        except TimeoutError:
            log.warning("the progress pattern %r of %s takes too long; it is left", pattern, source.instance_id)
            self._too_slow.add(pattern)
        self._tails[source.instance_id] = text[max(end, len(text) - 512) :]
        if found is not None:
            self._tell_progress(source.instance_id, dumps(asdict(found)))
