"""A shell session as a reader has it: one bash, one folder, one new cloud; all of it gone at the end."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests import stub_gpus
from tests.docs.documents import ROOT
from tests.docs.transcript import Step, matches

# A reader types slower than a test: what only looks is looked at again for so long, until it shows what is told.
PATIENCE_S = 15.0
_LOOKS = ("status", "ps", "queue", "why", "nodes", "top", "events", "logs", "usage", "offers", "df")


class Said(NamedTuple):
    code: int
    text: str


class Shell:
    """Runs commands one after the other in one bash, which starts in a folder with `examples/` and `.venv/`.

    `gpus` of them are there that are not emulated, as far as anybody can tell.
    """

    def __init__(self, *, gpus: int = 0) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="docs-", dir="/tmp"))  # a socket's name is short
        self.folder.chmod(0o755)
        work = self.folder / "cumulo"
        (work / ".venv").mkdir(parents=True)
        (work / ".venv/bin").symlink_to(Path(sys.prefix, "bin"))
        shutil.copy(ROOT / ".gitignore", work)
        shutil.copytree(ROOT / "examples", work / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        env = {name: value for name, value in os.environ.items() if not name.startswith("CUMULO_")}
        env |= {
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / ".config"),
            "XDG_CACHE_HOME": str(self.folder / ".cache"),
            "CUMULO_HOME": str(self.folder / ".local/state/cumulo"),
            "CUMULO_SOCKET": str(self.folder / ".local/state/cumulo/server.sock"),  # and never the machine's own
            "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        }
        if gpus:
            env |= stub_gpus.environment(stub_gpus.library(self.folder), self.folder, gpus=gpus)
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=work, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, command: str) -> Said:
        """Runs one command; its exit code and all it printed."""
        bash = self._bash
        assert bash.stdin is not None
        assert bash.stdout is not None
        end = f"end-of-{time.monotonic_ns()}"
        script = self.folder / "command"
        script.write_text(f"{command}\n")
        # Read from a file, so that a command which reads standard input does not eat the ones that follow.
        bash.stdin.write(f". {script} </dev/null\necho {end} $?\n")
        bash.stdin.flush()
        lines: list[str] = []
        for line in bash.stdout:
            text, mark, code = line.partition(end)
            if mark:
                return Said(int(code), "".join([*lines, text]))
            lines.append(line)
        raise AssertionError(f"the shell ended at {command!r}: {''.join(lines)}")

    def follow(self, step: Step) -> Said:
        """Runs what a document shows. What only looks is repeated until it matches, as long as patience lasts."""
        words = step.command.split()
        looks = words[0] == "cumulo" and words[1] in _LOOKS and "|" not in words and "-f" not in words
        deadline = time.monotonic() + (PATIENCE_S if looks else 0)
        while True:
            said = self.run(step.command)
            if matches(step.shown, said.text, user=self.user) or time.monotonic() >= deadline:
                return said
            time.sleep(0.2)

    def close(self) -> None:
        """Cancels what runs, stops the server, and removes the folder. Raises AssertionError if the server stays."""
        try:
            ended = self.run(f"{sys.prefix}/bin/cumulo down --cancel")
            assert ended.code == 0, ended.text
        finally:
            with self._bash:  # closes its pipes, which ends it, and waits
                pass
            shutil.rmtree(self.folder, ignore_errors=True)
