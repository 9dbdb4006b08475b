"""Runs the real command line as a process, with folders of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Cumulo:
    """`cumulo` with an environment in which nothing of this machine's own clouds is seen."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUMULO_", "XDG_"))}
        self.env = {
            **kept, "HOME": str(self.root), "CUMULO_HOME": str(self.root / "home"), "TERM": "xterm",
            "XDG_CONFIG_HOME": str(self.root / "config"), "XDG_CACHE_HOME": str(self.root / "cache"),
            "CUMULO_SOCKET": str(self.root / "box.sock"), "COLUMNS": "200", **self.env,
        }  # fmt: skip

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "cumulo.cli.main", *words]

    def __call__(
        self, *words: str, stdin: bytes | None = None, cwd: Path | None = None, timeout: float = 60
    ) -> "subprocess.CompletedProcess[bytes]":
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        given |= {"env": self.env, "cwd": cwd or self.root, "timeout": timeout}
        return subprocess.run(self.argv(*words), capture_output=True, check=False, **given)

    def ok(self, *words: str, **options: Any) -> str:
        """What it prints; fails the test unless it exits with 0."""
        done = self(*words, **options)
        assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout.decode()
