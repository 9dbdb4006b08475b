"""A cloud of its own for tests that drive the real thing from outside: a server, and the command line beside it.

Everything lies in one short folder under /tmp (a socket's name has 107 bytes). `close` ends it all and proves it: no
process, cgroup or mount of this cloud may be left, and no traceback in the server's log.
"""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from cumulo.client import Client
from cumulo.client.endpoint import Endpoint, own_server
from cumulo.domain.errors import CumuloError
from tests.system.terminal import Terminal

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


class Answer(NamedTuple):
    """What an HTTP request got."""

    status: int
    type: str
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


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
        self.undo: list[Callable[[], object]] = []  # what to take back before the folder goes
        self._clients: list[Client] = []
        kept = (name for name in os.environ if not name.startswith("CUMULO_") and name != "PYTHONDONTWRITEBYTECODE")
        self.env = {name: os.environ[name] for name in kept}  # compiling anew at each start would take a second
        self.env |= {
            "CUMULO_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "CUMULO_SOCKET": str(self.home / "server.sock"),  # and never the box's own
        }
        self._module = [str(Path(__file__).with_name("piped_server.py"))] if pipe else ["-m", "cumulo.server"]

    # The server

    def start(self, *, wait: bool = True) -> None:
        """Starts the server as `cumulo up` does, without the command line's own tenth of a second."""
        words = [sys.executable, *self._module, "--port", "0"]
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

    def adopt(self) -> None:
        """Takes note of a server that the command line started on our folder: it must be told down by it, too."""
        found = own_server(self.home)
        assert found is not None
        assert self._answers(found)

    def said(self) -> str:
        """What servers have logged."""
        texts = [path.read_text(errors="replace") for path in (self.folder / "server.log", self.home / "server.log")
                 if path.exists()]  # fmt: skip
        return "".join(texts)

    # The command line

    def cli(
        self,
        *words: str,
        stdin: str = "",
        cwd: Path | None = None,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
        uid: int | None = None,
    ) -> Done:
        """Runs `cumulo WORDS` without a terminal; with `uid` as that user of the box (needs root)."""
        argv = [CUMULO, *words]
        env = self.env | dict(env or {})
        if uid is not None:
            argv = [*become(uid), *argv]
            env |= self.env_of(uid)
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, errors="replace",
            cwd=cwd or self.work, env=env, timeout=timeout, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def env_of(self, uid: int) -> dict[str, str]:
        """The environment of another person, who has a home of their own and no server."""
        home = self.folder / f"person-{uid}"
        if not home.exists():
            home.mkdir(mode=0o755)
            os.chown(home, uid, uid)
        names = {"HOME": "", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache", "CUMULO_HOME": "state"}
        return {name: str(home / below) for name, below in names.items()}

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

    def attached(self, *words: str) -> "Attached":
        """Starts `cumulo WORDS` without a terminal, for what goes on while the test does something."""
        return Attached([CUMULO, *words], cwd=self.work, env=self.env)

    def terminal(self, *words: str, rows: int = 24, columns: int = 80, cwd: Path | None = None) -> Terminal:
        """`cumulo WORDS` on a terminal."""
        return Terminal([CUMULO, *words], env=self.env, cwd=cwd or self.work, rows=rows, columns=columns)

    # Over TCP

    def http(self, path: str, *, token: str | None = None, **headers: str) -> Answer:
        """GET over TCP with a token, the owner's own if none is given; "" sends none."""
        url = urlsplit(json.loads((self.home / "server.json").read_text())["url"])
        token = (self.home / "token").read_text().strip() if token is None else token
        given = headers | ({"Authorization": f"Bearer {token}"} if token else {})
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=20)
        try:
            connection.request("GET", path, headers=given)
            response = connection.getresponse()
            return Answer(response.status, response.headers["Content-Type"], response.read().decode())
        finally:
            connection.close()

    # The end

    def close(self) -> None:
        """Ends everything and looks for what is left. Raises AssertionError."""
        try:
            left = self._end()
        finally:
            if self.server is not None:
                self.kill()
            for client in self._clients:
                client.close()
            said = self.said()
            for undo in self.undo:
                undo()  # a disk that was filled or mounted
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


class Attached:
    """A command that goes on: its output line by line, and how it ended."""

    def __init__(self, argv: list[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        self._err = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # lives as long as we do
        self.process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._err,
            text=True, errors="replace",
        )  # fmt: skip

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._out.close()
        self._err.close()

    @property
    def _out(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def line(self) -> str:
        """The next line that it writes."""
        return self._out.readline()

    def end(self) -> Done:
        """Waits for the end; the rest of its output."""
        out = self._out.read()
        code = self.process.wait(PATIENCE_S)
        self._err.seek(0)
        return Done(code, out, self._err.read())


def become(uid: int) -> list[str]:
    """Puts before a command what runs it as `uid`, yet able to read a Python that lies in root's home."""
    words = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    return [*words, "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]


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
