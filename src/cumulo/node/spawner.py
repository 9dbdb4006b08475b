"""Our end of the spawner: asks it to start supervisors, and starts it anew where it has gone.

What it executes is a copy of supervisor.py beside the instances, named by its content: an upgrade of the package, or
its removal, breaks nothing that runs.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from cumulo.node import supervisor


class Spawner:
    """The spawner process of one node folder. Thread-safe; the process starts with the first need for it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self, folder: Path) -> None:
        """Ask for a supervisor of that instance folder. Asking twice is harmless; the folder tells what came of it.

        What a dying spawner never read is lost: ask again as long as the instance has not started.
        Raises OSError where no spawner can be started.
        """
        request = json.dumps({"op": "start", "dir": str(folder)}).encode()
        with self._lock:
            try:
                (self._socket or self._connected()).send(request)
            except OSError:  # it died since; its supervisors live on
                self._disconnect()
                self._connected().send(request)

    def warm(self) -> None:
        """Start the process now, so that the first run need not wait for it."""
        with self._lock:
            self._connected()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def close(self) -> None:
        """Let go of it: it leaves after the last of its supervisors."""
        with self._lock:
            self._disconnect()

    def _connected(self) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            self._disconnect()
        if self._socket is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs, (self._root / "spawner.log").open("ab") as log:
                self._process = subprocess.Popen(
                    supervisor_argv(self._root, "spawner", theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env={"PATH": os.defpath},
                    start_new_session=True,
                )
            self._socket = ours
        return self._socket

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None and self._process.poll() is None:
            # It stays as long as its last supervisor: nobody waits for it, but its end must not linger as a zombie.
            threading.Thread(target=self._process.wait, name="spawner-reaper", daemon=True).start()
        self._socket = self._process = None


def supervisor_argv(root: Path, mode: str, fd: int) -> list[str]:
    """The command that runs supervisor.py in that mode, from its copy in `root`."""
    interpreter = getattr(sys, "_base_executable", None) or sys.executable  # a venv may be deleted under us
    return [interpreter, "-I", "-S", str(supervisor_copy(root)), mode, str(fd)]


def supervisor_copy(root: Path) -> Path:
    source = Path(supervisor.__file__).read_bytes()
    target = root / f"supervisor-{hashlib.sha256(source).hexdigest()[:8]}.py"
    if not target.exists():
        fresh = target.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        fresh.write_bytes(source)
        fresh.rename(target)
    return target
