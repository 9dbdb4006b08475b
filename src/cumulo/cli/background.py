"""One's own server as a process in the background: started, found, stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cumulo.client import Client, endpoint
from cumulo.client.endpoint import Endpoint
from cumulo.domain.errors import KINDS, CumuloError

START_S = 30.0
STOP_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a server is started, as its command line takes it; None leaves it to the server."""

    emulate: str | None = None
    simulate: str | None = None
    database: str | None = None
    host: str | None = None
    port: int | None = None
    socket: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False

    def arguments(self) -> list[str]:
        """The arguments of `python -m cumulo.server`. A database's password stays out of them: they are public."""
        given = {
            "--emulate": self.emulate, "--simulate": self.simulate,
            "--host": self.host, "--port": self.port, "--socket": self.socket,
            "--tls-cert": self.tls_cert, "--tls-key": self.tls_key,
        }  # fmt: skip
        words = [word for flag, value in given.items() if value is not None for word in (flag, str(value))]
        return words + (["--insecure"] if self.insecure else [])

    def environment(self) -> dict[str, str]:
        return {"CUMULO_DATABASE": self.database} if self.database else {}


@dataclass(frozen=True, slots=True)
class Running:
    """A server's process, and where it keeps its state."""

    pid: int
    home: Path


def find() -> Running | None:
    """One's own server, if it runs."""
    home = endpoint.own_home(os.environ)
    try:
        pid = int(json.loads((home / "server.json").read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # A number may belong to another process by now, and ours to signal is only a server.
    try:
        is_server = b"cumulo.server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        is_server = False
    return Running(pid, home) if is_server and endpoint.alive(pid) else None


def start(options: Options) -> Endpoint:
    """Starts a server that outlives us, and waits until it answers. Raises CumuloError with what it said."""
    home = endpoint.own_home(os.environ)
    log = home / "server.log"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        output = log.open("ab")
    except OSError as error:
        raise CumuloError(
            "storage_read_only",
            f"the state folder {home} can't be written: {(error.strerror or str(error)).lower()}",
            hint="see who owns it, or choose another with CUMULO_HOME",
        ) from None
    begin = output.tell()
    with output:
        child = subprocess.Popen(
            [sys.executable, "-m", "cumulo.server", *options.arguments()],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            env={**os.environ, **options.environment()}, cwd="/",
        )  # fmt: skip
    try:
        return await_answer(child)
    except CumuloError as error:
        message, hint = _last_words(log, begin)
        code = "invalid_request" if child.returncode == KINDS["invalid_request"].exit_code else error.code
        raise CumuloError(code, message or error.message, hint=hint or f"see {log}") from None


def await_answer(child: "subprocess.Popen[bytes]") -> Endpoint:
    """Waits until the server that `child` is answers. Raises CumuloError if it ends before."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise CumuloError("unreachable", f"the server ended as it started (exit code {child.returncode})")
        running = find()
        if running and running.pid == child.pid:
            found = endpoint.own_server(running.home)
            if found and _answers(found):
                return found
        time.sleep(0.02)
    raise CumuloError("unreachable", f"the server did not answer within {START_S:g} s")


def _answers(found: Endpoint) -> bool:
    """Whether it answers and has looked at its nodes, without which there is little to say about it."""
    try:
        with Client(found, patience_s=0) as client:
            return bool(client.nodes(limit=1))
    except CumuloError:
        return False


def stop(running: Running) -> None:
    """SIGTERM, and waits until the process has gone. Raises CumuloError."""
    try:
        os.kill(running.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise CumuloError("forbidden", f"the server (pid {running.pid}) belongs to somebody else") from None
    deadline = time.monotonic() + STOP_S
    while endpoint.alive(running.pid):
        if time.monotonic() > deadline:
            raise CumuloError(
                "conflict",
                f"the server (pid {running.pid}) is still there {STOP_S:g} s after SIGTERM",
                hint=f"see {running.home / 'server.log'}; `kill -9 {running.pid}` harms no run",
            )
        time.sleep(0.02)


def _last_words(log: Path, begin: int) -> tuple[str, str]:
    """What a server that could not start said last: its error, or its last line, and the hint that went with it."""
    message = last = hint = ""
    try:
        with log.open("rb") as file:
            file.seek(begin)
            for raw in file:
                line = raw.decode("utf-8", "replace").strip()
                last = line or last
                if line.startswith("error:"):
                    message, hint = line.removeprefix("error:").strip(), ""
                elif line.startswith("hint:"):
                    hint = line.removeprefix("hint:").strip()
    except OSError:
        return "", ""
    return message or last, hint
