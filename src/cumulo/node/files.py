"""Files of a run on this node: a manifest made real in a folder, and transfers that run as the user.

A manifest comes from a person, so its paths are taken one step at a time by directory descriptor, without following
a link: nothing outside the folder can be written. Blobs are copied, never linked, since a run may write to its files.
"""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from cumulo.domain.errors import CumuloError
from cumulo.domain.manifest import ManifestEntry

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Owner(NamedTuple):
    """Whom files shall belong to. None in place of an Owner: whoever this process runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Cancelled(Exception):
    """The instance was stopped while its files were being copied."""


def make_folder(path: Path, *, owner: Owner | None, mode: int = 0o700) -> None:
    """Makes `path` unless it is there (its parent must be, and must be ours), owned by `owner` in any case."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        # A server that was killed in between may have left it as its own.
        if owner is None or os.lstat(path).st_uid == owner.uid:
            return
    if owner is not None:
        os.chown(path, owner.uid, owner.gid, follow_symlinks=False)


def materialise(
    entries: Iterable[ManifestEntry],
    *,
    root: Path,
    read: Callable[[str], Iterable[bytes]],
    owner: Owner | None,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Makes the files and folders of a manifest below `root`, which exists. `read` gives a blob's bytes in pieces.

    Raises CumuloError (path_not_allowed, storage_full, not_found for a missing blob), Cancelled, OSError.
    """
    top = os.open(root, _FOLDER)
    place = _Place(top, owner)
    try:
        for entry in entries:
            if cancelled():
                raise Cancelled
            parts = _parts(entry.path)
            if entry.digest is None:
                place.enter(parts)
            else:
                folder = place.enter(parts[:-1])
                _write(folder, parts[-1], entry, read=read, owner=owner)
    except OSError as error:
        if error.errno in _FULL:
            raise CumuloError("storage_full", f"the disk is full: {entry.path} could not be written") from error
        raise
    finally:
        place.close()
        os.close(top)


class _Place:
    """The folder that is open now. Entries come sorted, so most lie where the one before lay."""

    def __init__(self, top: int, owner: Owner | None) -> None:
        self._top = top
        self._owner = owner
        self._parts: list[str] | None = None
        self._fd = -1

    def enter(self, parts: list[str]) -> int:
        """A descriptor of the folder, made where missing; good until the next call."""
        if parts != self._parts:
            fd = self._walk(parts)
            self.close()
            self._parts, self._fd = parts, fd
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._parts, self._fd = None, -1

    def _walk(self, parts: list[str]) -> int:
        here = os.dup(self._top)
        for part in parts:
            try:
                below = self._step(here, part, "/".join(parts))
            finally:
                os.close(here)
            here = below
        return here

    def _step(self, here: int, part: str, path: str) -> int:
        made = True
        try:
            os.mkdir(part, 0o755, dir_fd=here)
        except FileExistsError:
            made = False
        try:
            below = os.open(part, _FOLDER, dir_fd=here)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise CumuloError("path_not_allowed", f"{path}: {part} is there and is not a folder") from error
            raise
        if made and self._owner is not None:
            os.fchown(below, self._owner.uid, self._owner.gid)
        return below


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise CumuloError("path_not_allowed", f"{path!r} may not be written: it is no plain path below the folder")
    return parts


def _write(
    folder: int, name: str, entry: ManifestEntry, *, read: Callable[[str], Iterable[bytes]], owner: Owner | None
) -> None:
    try:
        fd = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
    except FileExistsError:
        os.unlink(name, dir_fd=folder)  # two mounts may name the same file: the later one counts
        fd = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        written = 0
        for piece in _pieces(entry, read):
            view = memoryview(piece)
            written += len(view)
            while view:
                view = view[os.write(fd, view) :]
        if written != entry.size:
            text = f"the stored content of {entry.path} has {written} bytes, not {entry.size}"
            raise CumuloError("internal", text, hint="launch the run again to upload it anew")
        os.fchmod(fd, entry.mode & 0o777 | 0o600)
        if owner is not None:
            os.fchown(fd, owner.uid, owner.gid)
    finally:
        os.close(fd)


def _pieces(entry: ManifestEntry, read: Callable[[str], Iterable[bytes]]) -> Iterable[bytes]:
    try:
        yield from read(entry.digest or "")
    except KeyError as error:
        text = f"the content of {entry.path} is no longer stored"
        raise CumuloError("not_found", text, hint="launch the run again to upload it anew") from error


# --- as the user ------------------------------------------------------------------------------------------------------


def python_command(script: Path) -> list[str]:
    """Runs a standard-library script with the interpreter below any virtual environment, which may be deleted."""
    return [str(getattr(sys, "_base_executable", sys.executable)), "-I", "-S", str(script)]


def account(owner: Owner | None) -> dict[str, object]:
    """`owner` as the standalone scripts of this package read it from JSON."""
    if owner is None:
        return {"uid": None, "gid": None, "groups": []}
    return {"uid": owner.uid, "gid": owner.gid, "groups": list(owner.groups)}


_CHECK = """
for path do
  if [ ! -e "$path" ]; then echo missing
  elif [ ! -r "$path" ] || { [ -d "$path" ] && [ ! -x "$path" ]; }; then echo unreadable
  elif [ -w "$path" ]; then echo writable
  else echo readable
  fi
done
"""


def access_as(paths: Sequence[str], owner: Owner | None) -> list[str]:
    """What `owner` may do with each path: `writable`, `readable`, `unreadable`, or `missing` (as far as it can see).

    A short process of that uid finds out, since only the kernel knows (access lists, network file systems).
    """
    if not paths:
        return []
    identity = {} if owner is None else {"user": owner.uid, "group": owner.gid, "extra_groups": owner.groups}
    done = subprocess.run(
        ["/bin/sh", "-c", _CHECK, "sh", *paths],
        cwd="/",
        env={"PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=True,
        **identity,  # type: ignore[call-overload]
    )
    return str(done.stdout.decode()).split()


def remove_tree(path: Path) -> None:
    """Removes what a user may have filled, links not followed. What can't be removed stays for the next sweep."""
    shutil.rmtree(path, ignore_errors=True)


def tree_size(path: Path) -> tuple[int, int]:
    """(bytes on disk, files) below `path`, links not followed; what vanishes meanwhile counts as nothing."""
    total = count = 0
    for folder, _, names, fd in os.fwalk(path, onerror=None, follow_symlinks=False):
        del folder
        for name in names:
            try:
                total += os.stat(name, dir_fd=fd, follow_symlinks=False).st_blocks * 512
                count += 1
            except OSError:
                continue
    return total, count
