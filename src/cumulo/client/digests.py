"""SHA-256 of files, remembered: a file whose inode, size and times are as they were is not read again.

The cache is a convenience: it may be lost, and one that can't be read or written is passed over.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

# A file changed within the clock's grain after it was hashed would look the same: don't remember such young ones.
_SETTLED_NS = 2_000_000_000
_MOST = 200_000


@dataclass(slots=True)
class Digests:
    """Digests by absolute path, with the state of the file they belong to. `save` writes the cache back."""

    path: Path | None = None
    known: dict[str, list[str]] = field(default_factory=dict)
    changed: bool = False
    now_ns: Callable[[], int] = time.time_ns

    @classmethod
    def load(cls, env: Mapping[str, str]) -> Self:
        cache = env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or Path.home()) / ".cache"
        path = Path(cache) / "cumulo" / "digests.json"
        with contextlib.suppress(OSError, ValueError):
            known = json.loads(path.read_text())
            if isinstance(known, dict):
                return cls(path, known)
        return cls(path)

    def of(self, file: str, stat: os.stat_result) -> str:
        """The SHA-256 (hex) of a file whose `stat` was just taken. Raises OSError."""
        state = f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}"
        entry = self.known.get(file)
        if isinstance(entry, list) and len(entry) == 2 and entry[0] == state:
            return str(entry[1])
        with open(file, "rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        if self.now_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED_NS:
            self.known[file] = [state, digest]
            self.changed = True
        return digest

    def save(self) -> None:
        if not self.changed or self.path is None:
            return
        newest = dict(list(self.known.items())[-_MOST:])
        temporary = self.path.with_name(f".digests.{os.getpid()}")
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_text(json.dumps(newest))
            os.replace(temporary, self.path)
