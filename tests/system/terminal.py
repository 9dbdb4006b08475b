"""A person at a terminal: a command on a pseudo-terminal of its own, what it shows, what is typed, its size."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PATIENCE_S = 30.0


class Terminal:
    """Runs a command as a terminal would. `shown` is all it has shown so far, escape codes included."""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, rows: int = 24, columns: int = 80
    ) -> None:
        self._master, slave = pty.openpty()
        self._seen = 0
        self.shown = ""
        self.resize(rows, columns)

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, env={**env, "TERM": "xterm"}, cwd=cwd,
            start_new_session=True, preexec_fn=take_terminal,  # nothing of ours runs in threads here
        )  # fmt: skip
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, text: str, patience_s: float = PATIENCE_S) -> str:
        """Waits until `text` is shown after what was expected before; what was shown up to it."""
        deadline = time.monotonic() + patience_s
        while (at := self.shown.find(text, self._seen)) < 0:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} was not shown: {self.shown[self._seen :]!r}"
            assert self._read(left), f"it ended without {text!r}: {self.shown[self._seen :]!r}"
        before, self._seen = self.shown[self._seen : at], at + len(text)
        return before

    def end(self, patience_s: float = PATIENCE_S) -> int:
        """Waits for the end; the exit code."""
        deadline = time.monotonic() + patience_s
        while self._read(max(0.0, deadline - time.monotonic())):
            assert time.monotonic() < deadline, f"it does not end: {self.shown[self._seen :]!r}"
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, patience_s: float) -> bool:
        """Takes in what is shown; False once nobody has the terminal any more."""
        if not select.select([self._master], [], [], patience_s)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: its other side is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)
