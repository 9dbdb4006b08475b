"""The state folder ($CUMULO_HOME): what lies where, one server at a time, and what tells clients where it is.

lock          held by the running server, with its pid
server.json   {"pid", "url", "socket", "version", "started_at"} of the running server; gone when it stopped
token         a token of the folder's owner, mode 0600
server.log    what a server in the background has to say
server.sock   its socket, unless another place was chosen
cumulo.db     the database (SQLite); blobs/ and logs/ beside it
node/         what runs on this machine
"""

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cumulo.domain.errors import CumuloError

BOX_SOCKET: Final = Path("/run/cumulo/server.sock")
# A name longer than this can't be bound (sun_path has 108 bytes, one of them for the end).
_LONGEST_SOCKET: Final = 107

# A box's users pass through on the way to what is theirs below node/, and list nothing.
_PASSAGE: Final = 0o711


def default_home(env: Mapping[str, str]) -> Path:
    """$CUMULO_HOME, else `cumulo` in the XDG state folder."""
    if home := env.get("CUMULO_HOME"):
        return Path(home).absolute()
    state = env.get("XDG_STATE_HOME") or Path(env.get("HOME") or Path.home()) / ".local" / "state"
    return Path(state).absolute() / "cumulo"


def default_socket(home: Path, env: Mapping[str, str]) -> Path | None:
    """$CUMULO_SOCKET; for root's server in its usual place the box's socket; else one in the state folder.

    None where that name would be too long for a socket: clients then take TCP.
    """
    if chosen := env.get("CUMULO_SOCKET"):
        return Path(chosen).absolute()
    if os.geteuid() == 0 and not env.get("CUMULO_HOME"):
        return BOX_SOCKET
    path = home / "server.sock"
    return path if len(os.fsencode(path)) <= _LONGEST_SOCKET else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What server.json tells of a running server."""

    pid: int
    url: str
    socket: str | None
    version: str
    started_at: str


class StateFolder:
    """The state folder of a server that is starting or running. `claim` first."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.node = home / "node"
        self._lock: int | None = None

    def claim(self) -> None:
        """Makes the folder and takes its lock. Raises CumuloError: conflict (naming who has it), storage_*."""
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.geteuid() == 0:
                self.home.chmod(_PASSAGE)
            lock = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise told(error, self.home) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise CumuloError(
                "conflict",
                f"a server already runs on {self.home} (pid {pid})",
                hint="stop it with `cumulo down`, or choose another folder with CUMULO_HOME",
                details={"pid": pid},
            ) from None
        self._lock = lock
        try:
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
            self.node.mkdir(mode=0o755, exist_ok=True)
        except OSError as error:
            raise told(error, self.home) from error

    def announce(self, running: Running) -> None:
        """Tells clients where the server is, once it answers."""
        data = {name: getattr(running, name) for name in Running.__dataclass_fields__}
        self.write("server.json", json.dumps(data) + "\n", mode=0o644)

    def write(self, name: str, text: str, *, mode: int) -> None:
        """Writes a small file whole or not at all. Raises CumuloError (storage_*)."""
        path = self.home / name
        part = path.with_name(f".{name}.{os.getpid()}")
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
            with os.fdopen(fd, "w") as file:
                os.fchmod(fd, mode)
                file.write(text)
            part.rename(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise told(error, self.home) from error

    def read(self, name: str) -> str | None:
        try:
            return (self.home / name).read_text().strip() or None
        except OSError:
            return None

    def release(self) -> None:
        """Takes back what was announced, and lets the next server in."""
        with contextlib.suppress(OSError):
            (self.home / "server.json").unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def told(error: OSError, folder: Path) -> CumuloError:
    """What is wrong with the state folder, in a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CumuloError("storage_full", f"the disk that holds {folder} is full", hint="make room and start again")
    reason = (error.strerror or str(error)).lower()
    return CumuloError(
        "storage_read_only",
        f"the state folder {folder} can't be written: {reason}",
        hint="see who owns it, or choose another with CUMULO_HOME",
    )
