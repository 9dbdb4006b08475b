"""What a restarted simulated engine must know again: one line for each thing that was asked, appended as it comes.

A line is with the operating system before the call that asked returns, so it outlives a server that is killed. It is
not forced onto the disk: a machine that loses its power has lost what ran on it, too.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Journal:
    """The lines of one file. Raises OSError where it can't be written; nothing of the line is kept then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def read(self) -> list[Line]:
        """All lines, oldest first. One that was cut off as the server was killed was never answered."""
        lines = []
        for text in self.path.read_bytes().splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                continue
        return lines

    def append(self, line: Line) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        before = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
        except OSError:
            os.ftruncate(self._file, before)
            raise
        if written < len(data):
            os.ftruncate(self._file, before)
            raise OSError(28, os.strerror(28))

    def replace(self, lines: Iterable[Line]) -> None:
        """These lines in place of all others, at once."""
        new = self.path.with_name(f"{self.path.name}.new")
        with open(new, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        new.rename(self.path)
        os.close(self._file)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

    @property
    def size(self) -> int:
        """Bytes."""
        return os.fstat(self._file).st_size

    def close(self) -> None:
        os.close(self._file)
