"""Logs: what instances print, as files under `logs/RUN/UNIT-ATTEMPT-RANK.log` of the state folder.

Bytes are kept as they came. `append` says at which offset they belong, so a repeat changes nothing and a gap is
noticed. Beside a log that grew for more than a second lies an index of (offset, time), for `since`. Most logs are
tiny, so an empty one has no file, one written at once has no index, and no file stays open between calls.

Logs are not flushed to the disk one by one: after a power cut the engine still has what was not released.
"""

import contextlib
import errno
import os
import shutil
import struct
import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import InstanceParts, parse_instance_id
from cumulo.store.blobs import Amount

_INDEX_EVERY_S: Final = 1.0
_MARK: Final = struct.Struct("<Qd")  # bytes from this offset on arrived at this time or later
_BLOCK: Final = 64 << 10
_REMEMBERED: Final = 1024


class LogRef(InstanceParts):
    """Whose log: an instance, named as its id is."""

    @classmethod
    def of(cls, instance_id: str) -> Self:
        """Raises ValueError for what is not the id of an instance."""
        return cls(*parse_instance_id(instance_id))


class LogGap(Exception):
    """Bytes were to be appended past the end; `size` is what is there."""

    def __init__(self, ref: LogRef, *, size: int, offset: int) -> None:
        super().__init__(f"the log of {'-'.join(map(str, ref))} has {size} bytes, and was given those from {offset}")
        self.size = size


class Logs:
    """The logs of one state folder. Safe to use from many threads."""

    def __init__(self, home: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.root = home / "logs"
        self._clock = clock
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(16)]  # a log has one writer at a time
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._marked: OrderedDict[LogRef, float] = OrderedDict()  # the time last written to an index

    def append(self, ref: LogRef, offset: int, data: bytes) -> int:
        """Writes `data`, which begins at `offset` of the log and arrives now, and returns the log's size.

        What is there already is dropped. Raises LogGap when bytes before it are missing; CumuloError storage_full (what
        fitted is kept) and storage_read_only.
        """
        if not data:
            return self.size(ref)
        try:
            with self._turns[hash(ref) % len(self._turns)]:
                fd = self._open_to_append(self._path(ref))
                try:
                    size = self._append(fd, ref, offset, memoryview(data))
                finally:
                    os.close(fd)
        except OSError as error:
            raise self._told(error) from error
        self._notify(ref.run_id)
        return size

    def size(self, ref: LogRef) -> int:
        """Bytes there are; 0 for a log that is not there."""
        try:
            return self._path(ref).stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, ref: LogRef, offset: int, limit: int = 1 << 20) -> bytes:
        """At most `limit` bytes from `offset`; b"" when there are none."""
        try:
            with self._path(ref).open("rb", buffering=0) as file:
                return os.pread(file.fileno(), limit, offset)
        except FileNotFoundError:
            return b""

    def tail(self, ref: LogRef, lines: int) -> int:
        """The offset where the last `lines` lines begin. A last line without its newline counts as one."""
        try:
            with self._path(ref).open("rb", buffering=0) as file:
                return _tail(file.fileno(), lines)
        except FileNotFoundError:
            return 0

    def since(self, ref: LogRef, moment: float) -> int:
        """The offset from which on everything that arrived at `moment` or later lies; up to a second more than that."""
        try:
            last = self._path(ref).stat()
        except FileNotFoundError:
            return 0
        if last.st_mtime < moment:
            return last.st_size
        # What a mark begins arrived within a second of it, or the next mark would have begun it.
        marks = self._marks(ref)
        place = bisect_right(marks, moment - _INDEX_EVERY_S, key=lambda mark: mark[1])
        return min(marks[min(place, len(marks) - 1)][0], last.st_size) if marks else 0

    def subscribe(self, run_id: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` after every append to a log of the run, in the appending thread, so it must be quick.

        Returns what ends it. Subscribe first and read afterwards, and nothing is missed.
        """
        with self._lock:
            self._listeners.setdefault(run_id, []).append(listener)

        def unsubscribe() -> None:
            with self._lock, contextlib.suppress(KeyError, ValueError):
                self._listeners[run_id].remove(listener)
                if not self._listeners[run_id]:
                    del self._listeners[run_id]

        return unsubscribe

    def follow(self, run_id: str) -> "Follower":
        """For a thread that waits for a run's logs to grow."""
        return Follower(self, run_id)

    def followed_runs(self) -> frozenset[str]:
        """The runs that somebody follows now, whose logs should arrive quickly."""
        with self._lock:
            return frozenset(self._listeners)

    def wake(self, run_id: str) -> None:
        """Wakes the run's followers though no log grew, for example because the run ended."""
        self._notify(run_id)

    def runs(self) -> Iterator[str]:
        """The ids of runs that have logs."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root) as folders:
            yield from (folder.name for folder in folders if folder.name.isalnum())

    def total(self, run_id: str | None = None) -> Amount:
        """How much is kept of one run, or of all. Indexes count as bytes."""
        files = size = 0
        for run in self.runs() if run_id is None else (run_id,):
            with contextlib.suppress(FileNotFoundError), os.scandir(self.root / run) as entries:
                for entry in entries:
                    size += entry.stat().st_size
                    files += entry.name.endswith(".log")
        return Amount(files, size)

    def changed_at(self, run_id: str) -> float:
        """When the run's newest log was begun, in epoch seconds; 0 if there is none."""
        try:
            return (self.root / _safe(run_id)).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def delete(self, run_id: str) -> None:
        """Removes the logs of a run that has ended."""
        shutil.rmtree(self.root / _safe(run_id), ignore_errors=True)

    def _path(self, ref: LogRef) -> Path:
        return self.root / _safe(ref.run_id) / f"{ref.unit}-{ref.attempt}-{ref.rank}.log"

    def _open_to_append(self, path: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(path, flags, 0o600)

    def _append(self, fd: int, ref: LogRef, offset: int, data: memoryview) -> int:
        known = os.fstat(fd)
        size = known.st_size
        if offset > size:
            raise LogGap(ref, size=size, offset=offset)
        news = data[size - offset :]
        if news:
            # A clock that was set back must not make times go back: `since` looks for one by halving.
            at = max(self._clock(), known.st_mtime) if size else self._clock()
            self._mark(ref, size, at, before=known.st_mtime)
            while news:
                written = os.write(fd, news)
                size, news = size + written, news[written:]
            os.utime(fd, (at, at))
        return size

    def _mark(self, ref: LogRef, offset: int, at: float, *, before: float) -> None:
        """Notes in the index that bytes from `offset` on arrive now, unless the last note is less than a second old.

        The first bytes are noted when further ones come. After a restart their time is taken from `before`.
        """
        last = self._marked.get(ref)
        if offset:
            marks = [] if last is not None else self._marks(ref)
            last = last if last is not None else marks[-1][1] if marks else before
            if at < last + _INDEX_EVERY_S:
                return
            index = self._path(ref).with_suffix(".index")
            first = b"" if index.exists() else _MARK.pack(0, last)
            with index.open("ab", buffering=0) as file:
                file.write(first + _MARK.pack(offset, at))
        with self._lock:
            self._marked[ref] = at
            self._marked.move_to_end(ref)
            if len(self._marked) > _REMEMBERED:
                self._marked.popitem(last=False)

    def _marks(self, ref: LogRef) -> list[tuple[int, float]]:
        try:
            raw = self._path(ref).with_suffix(".index").read_bytes()
        except FileNotFoundError:
            return []
        return list(_MARK.iter_unpack(raw[: len(raw) - len(raw) % _MARK.size]))

    def _notify(self, run_id: str) -> None:
        with self._lock:
            listeners = tuple(self._listeners.get(run_id, ()))
        for listener in listeners:
            listener()

    def _told(self, error: OSError) -> CumuloError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return CumuloError("storage_full", f"the disk that holds {self.root} is full", hint="see `cumulo df`")
        return CumuloError("storage_read_only", f"{self.root} can't be written: {error.strerror}")


class Follower:
    """Waits for a run's logs to grow. Read after `wait`, and nothing is missed between the two."""

    def __init__(self, logs: Logs, run_id: str) -> None:
        self._news = threading.Event()
        self._end = logs.subscribe(run_id, self._news.set)

    def wait(self, timeout: float) -> bool:
        """Whether something was appended since the last call; returns at once if so, else within `timeout` seconds."""
        there = self._news.wait(timeout)
        self._news.clear()
        return there

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end()


def _tail(fd: int, lines: int) -> int:
    """Looks for newlines from the end backwards, a block at a time."""
    end = os.fstat(fd).st_size
    if lines <= 0:
        return end
    # The newline that ends the last line begins no further one.
    left = lines + 1 if end and os.pread(fd, 1, end - 1) == b"\n" else lines
    while end > 0:
        start = max(0, end - _BLOCK)
        block = os.pread(fd, end - start, start)
        found = block.count(b"\n")
        if found >= left:
            place = len(block)
            for _ in range(left):
                place = block.rindex(b"\n", 0, place)
            return start + place + 1
        left -= found
        end = start
    return 0


def _safe(run_id: str) -> str:
    """Ids are made by Cumulo, but also come in URLs, and this one becomes a path."""
    if not run_id.isalnum():
        raise ValueError(f"{run_id[:80]!r} is not the id of a run")
    return run_id
