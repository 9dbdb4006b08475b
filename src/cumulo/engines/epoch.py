"""The fence against an old leader: once a newer epoch has been seen, an older one is refused, for good."""

import os
import threading
from pathlib import Path

from cumulo.engines.protocol import StaleEpoch


class EpochFence:
    """Keeps the newest epoch in a file. It is on the disk before anything is done in its name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            self._newest = int(path.read_text())
        except FileNotFoundError:
            self._newest = 0

    def check(self, epoch: int) -> None:
        """Raises StaleEpoch for an epoch older than the newest seen."""
        if epoch == self._newest:
            return
        with self._lock:
            if epoch < self._newest:
                raise StaleEpoch(f"epoch {epoch} is over: {self._newest} has been seen")
            if epoch > self._newest:
                self._write(epoch)
                self._newest = epoch

    def _write(self, epoch: int) -> None:
        temporary = self._path.with_name(f"{self._path.name}.new")
        with open(temporary, "w", encoding="ascii") as file:
            file.write(str(epoch))
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
