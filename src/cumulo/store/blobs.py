"""Blobs: files by the SHA-256 of their content, under `blobs/ab/abcdef…` of the state folder.

A blob appears under its name whole, checked and on the disk, or not at all. What is written lies in `incoming` first;
a `Batch` flushes all its files together and then renames them, which for many small files is several times as quick
as one after the other.
"""

import contextlib
import errno
import hashlib
import itertools
import os
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Self

from cumulo.domain.errors import CumuloError

_PIECE: Final = 1 << 20
# A blob that was asked for counts as used; its time is renewed at most this often.
_TOUCH_EVERY_S: Final = 3600.0
# Whoever uploads has that long until a run must name what he uploaded.
MIN_AGE_S: Final = 6 * 3600.0


class Amount(NamedTuple):
    """How much is kept, or went."""

    files: int
    bytes: int


class Blobs:
    """The blobs of one state folder. Safe to use from many threads, and a `BlobSource` for engines."""

    def __init__(self, home: Path) -> None:
        self.root = home / "blobs"
        self._incoming = self.root / "incoming"
        self._sweeping = threading.Lock()

    def put(self, digest: str, data: bytes) -> None:
        """Keeps one blob. For many, use `batch`. Raises what `Batch` raises."""
        with self.batch() as batch, batch.incoming(digest) as blob:
            blob.write(data)

    def batch(self) -> "Batch":
        """A group of blobs that is on the disk when the block has been left; after an exception none of it is."""
        return Batch(self)

    def path(self, digest: str) -> Path:
        check_digest(digest)
        return self.root / digest[:2] / digest

    def read(self, digest: str) -> bytes:
        """The bytes of a blob. Raises KeyError if it is not there.

        One that a disk has spoilt is removed and counts as not there, so that the next upload mends it.
        """
        try:
            data = self.path(digest).read_bytes()
        except FileNotFoundError:
            raise KeyError(digest) from None
        if hashlib.sha256(data).hexdigest() != digest:
            self.path(digest).unlink(missing_ok=True)
            raise KeyError(digest)
        return data

    def open(self, digest: str) -> BinaryIO:
        """The blob as an open file, for large ones. Raises KeyError if it is not there."""
        try:
            return self.path(digest).open("rb")
        except FileNotFoundError:
            raise KeyError(digest) from None

    def chunks(self, digest: str) -> Iterator[bytes]:
        """The same in pieces, for large ones: that it is spoilt is known only after the last piece."""
        seen = hashlib.sha256()
        with self.open(digest) as file:
            while piece := file.read(_PIECE):
                seen.update(piece)
                yield piece
        if seen.hexdigest() != digest:
            self.path(digest).unlink(missing_ok=True)
            raise KeyError(digest)

    def size(self, digest: str) -> int:
        """Raises KeyError if it is not there."""
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            raise KeyError(digest) from None

    def has_many(self, digests: Iterable[str]) -> frozenset[str]:
        """Which of these are there. A sweep spares them for the next few hours."""
        now = time.time()
        with self._sweeping:
            return frozenset(digest for digest in digests if self._touch(digest, now))

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Which of these are not there, in their order, each once."""
        wanted = dict.fromkeys(digests)
        there = self.has_many(wanted)
        return [digest for digest in wanted if digest not in there]

    def total(self) -> Amount:
        files = size = 0
        for entry in self._all():
            with contextlib.suppress(FileNotFoundError):
                size += entry.stat().st_size
                files += 1
        return Amount(files, size)

    def sweep(self, referenced: Collection[str], *, older_than: float, dry_run: bool = False) -> Amount:
        """Removes blobs that nothing refers to and nobody has used since `older_than` (epoch seconds).

        Also what a write left in `incoming` when the server was killed.
        """
        files = size = 0
        for entry in itertools.chain(self._all(), _scan(self._incoming)):
            if entry.name in referenced:
                continue
            # Between the look and the removal nobody is told that it is there.
            with self._sweeping, contextlib.suppress(FileNotFoundError):
                known = os.stat(entry.path)
                if known.st_mtime < older_than:
                    if not dry_run:
                        os.unlink(entry.path)
                    files, size = files + 1, size + known.st_size
        return Amount(files, size)

    def _touch(self, digest: str, now: float) -> bool:
        path = self.path(digest)
        try:
            if abs(now - path.stat().st_mtime) > _TOUCH_EVERY_S:
                os.utime(path, (now, now))
        except FileNotFoundError:
            return False
        return True

    def _all(self) -> Iterator["os.DirEntry[str]"]:
        for folder in _scan(self.root):
            if len(folder.name) == 2:
                yield from _scan(folder.path)


class Incoming:
    """One blob while it is written. Leaving the block checks it; after an exception nothing of it is left."""

    def __init__(self, path: Path, digest: str, *, complete: "list[Incoming]") -> None:
        self.path = path
        self.digest = digest
        self._complete = complete
        self._sum = hashlib.sha256()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes | memoryview) -> None:
        """Raises CumuloError: storage_full, storage_read_only."""
        self._sum.update(data)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            raise _told(error, self.path.parent) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raises CumuloError `invalid_request` if the content is not that of the digest."""
        os.close(self._fd)
        if kind is None and self._sum.hexdigest() == self.digest:
            self._complete.append(self)
            return
        self.path.unlink(missing_ok=True)
        if kind is None:
            raise CumuloError("invalid_request", f"the content is not that of blob {self.digest}", hint="send it again")


class Batch:
    """Blobs that are kept together or not at all. `stored` counts them."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._complete: list[Incoming] = []
        self.stored = 0

    def incoming(self, digest: str) -> Incoming:
        """Begins a blob: write to it and leave its block. Raises ValueError for what is no digest; CumuloError."""
        check_digest(digest)
        folder = self._blobs.root / "incoming"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Incoming(folder / f"{digest[:16]}-{secrets.token_hex(8)}", digest, complete=self._complete)
        except OSError as error:
            raise _told(error, folder) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._keep()
        except OSError as failed:
            raise _told(failed, self._blobs.root) from failed
        finally:
            for blob in self._complete:
                blob.path.unlink(missing_ok=True)

    def _keep(self) -> None:
        _sync([blob.path for blob in self._complete])
        folders = {self._blobs.path(blob.digest).parent for blob in self._complete}
        for folder in folders:
            folder.mkdir(mode=0o700, exist_ok=True)
        for blob in self._complete:
            blob.path.rename(self._blobs.path(blob.digest))
        _sync([*folders, self._blobs.root])
        self.stored = len(self._complete)


def check_digest(digest: str) -> None:
    """Raises ValueError unless it is a SHA-256 in lower-case hex: it becomes a path."""
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(f"{digest[:80]!r} is not a digest: 64 lower-case hex digits")


def _sync(paths: Collection[Path]) -> None:
    """Waits until files and folders are on the disk; several at a time, since a file system flushes them together."""
    if len(paths) < 8:
        for path in paths:
            _sync_one(path)
        return
    with ThreadPoolExecutor(8, "blobs-sync") as pool:
        list(pool.map(_sync_one, paths))


def _sync_one(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _scan(folder: str | Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _told(error: OSError, folder: Path) -> CumuloError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CumuloError("storage_full", f"the disk that holds {folder} is full", hint="make room; see `cumulo df`")
    return CumuloError("storage_read_only", f"{folder} can't be written: {error.strerror}")
