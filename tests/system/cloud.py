"""A cloud of its own for tests that drive the real thing from outside: a server, and the command line beside it.

Everything lies in one short folder under /tmp (a socket's name has 107 bytes). `close` ends it all and proves it: no
process, cgroup or mount of this cloud may be left, and no traceback in the server's log.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cumulo.client import Client
from cumulo.client.endpoint import Endpoint, own_server
from cumulo.domain.errors import CumuloError

CUMULO = str(Path(sys.executable).with_name("cumulo"))
PATIENCE_S = 40.0


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cloud:
    """One state folder, and the server on it while it is up."""

    def __init__(self, *, emulate: str | None = None, database: str | None = None, pipe: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cs-", dir="/tmp"))
        self.folder.chmod(0o755)  # other users of the box come by here
        self.home, self.work = self.folder / "home", self.folder / "work"
        self.work.mkdir()
        self.emulate, self.database = emulate, database
        self.cloud_id = ""
        self.server: subprocess.Popen[bytes] | None = None
        self._clients: list[Client] = []
        kept = (name for name in os.environ if not name.startswith("CUMULO_") and name != "PYTHONDONTWRITEBYTECODE")
        self.env = {name: os.environ[name] for name in kept}  # compiling anew at each start would take a second
        self.env |= {
            "CUMULO_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "CUMULO_SOCKET": str(self.home / "server.sock"),  # and never the box's own
        }
        if pipe:
            self.env["CUMULO_ENGINE_PIPE"] = "1"

    # The server

    def start(self, *, wait: bool = True) -> None:
        """Starts the server as `cumulo up` does, without the command line's own tenth of a second."""
        words = [sys.executable, "-m", "cumulo.server", "--port", "0"]
        words += ["--emulate", self.emulate] if self.emulate else []
        env = self.env | ({"CUMULO_DATABASE": self.database} if self.database else {})
        with (self.folder / "server.log").open("ab") as log:
            self.server = subprocess.Popen(
                words, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        if wait:
            self.await_answer()

    def await_answer(self) -> None:
        assert self.server is not None
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            assert self.server.poll() is None, f"the server ended: {self.said()}"
            found = self.endpoint()
            if found and self._answers(found):
                return
            time.sleep(0.02)
        raise AssertionError(f"the server does not answer: {self.said()}")

    def _answers(self, found: Endpoint) -> bool:
        try:
            with Client(found, patience_s=0) as client:
                self.cloud_id = client.health().cloud_id
        except CumuloError:
            return False
        return True

    def endpoint(self) -> Endpoint | None:
        """Where this very server is; None before it has said so."""
        try:
            pid = json.loads((self.home / "server.json").read_text())["pid"]
        except (OSError, ValueError):
            return None
        return own_server(self.home) if self.server and pid == self.server.pid else None

    def client(self, patience_s: float = PATIENCE_S) -> Client:
        """An SDK client over the socket, which finds the server again after a restart. Closed with the cloud."""
        made = Client(Endpoint(url="http://localhost", socket=str(self.home / "server.sock")), patience_s=patience_s)
        self._clients.append(made)
        return made

    def kill(self) -> None:
        """SIGKILL, as the out-of-memory killer would."""
        assert self.server is not None
        self.server.kill()
        self.server.wait()
        self.server = None

    def stop(self) -> None:
        """SIGTERM, as `cumulo down` does; runs go on."""
        if self.server is not None:
            self.server.terminate()
            assert self.server.wait(PATIENCE_S) == 0, self.said()
            self.server = None

    def said(self) -> str:
        """What servers have logged."""
        texts = [path.read_text(errors="replace") for path in (self.folder / "server.log", self.home / "server.log")
                 if path.exists()]  # fmt: skip
        return "".join(texts)

    # The command line

    def cli(self, *words: str, stdin: str = "", cwd: Path | None = None, timeout: float = 60, **env: str) -> Done:
        """Runs `cumulo WORDS` without a terminal."""
        done = subprocess.run(
            [CUMULO, *words], input=stdin, capture_output=True, text=True, errors="replace",
            cwd=cwd or self.work, env=self.env | env, timeout=timeout, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, **options: Any) -> str:
        """The same for what must succeed: its output."""
        done = self.cli(*words, **options)
        assert done.code == 0, f"cumulo {' '.join(words)}: exit code {done.code}\n{done.out}\n{done.err}"
        return done.out

    def launch(self, script: str, *flags: str, **options: Any) -> dict[str, Any]:
        """Launches a bash script, detached; the run as JSON."""
        words = ("launch", "-y", "-d", "--json", "--no-workdir", *flags, "--", "bash", "-c", script)
        run: dict[str, Any] = json.loads(self.ok(*words, **options))
        return run

    def run(self, run: str) -> dict[str, Any]:
        """`cumulo status RUN --json`."""
        found: dict[str, Any] = json.loads(self.ok("status", run, "--json"))
        return found

    def popen(self, *words: str, **options: Any) -> "subprocess.Popen[str]":
        """Starts `cumulo WORDS` with pipes, for what goes on while the test does something."""
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "cwd": self.work, "env": self.env} | options
        return subprocess.Popen(
            [CUMULO, *words], text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given
        )

    # The end

    def close(self) -> None:
        """Ends everything and looks for what is left. Raises AssertionError."""
        try:
            left = self._end()
        finally:
            for client in self._clients:
                client.close()
            said = self.said()
            shutil.rmtree(self.folder, ignore_errors=True)
        assert not left, f"left behind: {left}"
        assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:6000]

    def _end(self) -> list[str]:
        if not self.cloud_id:  # no server ever answered
            if self.server is not None:
                self.kill()
            return []
        if self.server is None:
            self.start()
        with Client(self.endpoint(), patience_s=PATIENCE_S) as client:
            active = list(client.runs(active=True))
            for run in active:
                try:
                    client.cancel(run.id, grace_s=0)
                except CumuloError as error:
                    assert error.code == "conflict", error  # noqa: PT017  # it has just ended
            for run in active:
                client.wait(run.id, timeout_s=PATIENCE_S)
        self.stop()
        eventually(lambda: not self.processes() and not self.cgroups(), patience_s=10, or_else=lambda: "")
        left = [describe(pid) for pid in self.processes()] + self.cgroups() + self.mounts()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        return left

    def processes(self) -> list[int]:
        """All processes that carry our cloud's id, or were started from our folder."""
        marks = (f"CUMULO_CLOUD_ID={self.cloud_id}\0".encode(), f"{self.home}/node/".encode())
        own = {os.getpid(), self.server.pid if self.server else 0}
        return [pid for pid in pids() if pid not in own and any(mark in _texts(pid) for mark in marks)]

    def cgroups(self) -> list[str]:
        names = {path.name for kind in ("instances", "ended") for path in (self.home / "node" / kind).glob("*")}
        found = subprocess.run(
            ["find", "/sys/fs/cgroup", "-path", "*/cumulo/*", "-type", "d"], capture_output=True, text=True, check=False
        ).stdout.splitlines()
        return [path for path in found if Path(path).name in names]

    def mounts(self) -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return [line for line in lines if line.split()[1].startswith(f"{self.home}/")]


def pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _texts(pid: int) -> bytes:
    """Environment and arguments of a process; nothing of one that is gone or somebody else's."""
    found = b""
    for name in ("environ", "cmdline"):
        try:
            found += Path(f"/proc/{pid}/{name}").read_bytes() + b"\0"
        except OSError:
            continue
    return found


def describe(pid: int) -> str:
    try:
        return f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes().replace(bytes(1), b' ').decode(errors='replace')}"
    except OSError:
        return f"{pid}: gone"


def eventually(
    true: Callable[[], Any],
    *,
    patience_s: float = 20.0,
    or_else: Callable[[], str] | None = None,
    pause_s: float = 0.03,
) -> Any:
    """Waits until it is true and returns what it gave; after `patience_s` fails, or lets pass if `or_else` says ''."""
    deadline = time.monotonic() + patience_s
    while not (found := true()):
        if time.monotonic() > deadline:
            told = or_else() if or_else else "it did not become true in time"
            assert not told, told
            return found
        time.sleep(pause_s)
    return found
