"""A cloud of its own to measure: a real server on a temporary state folder, reached over its unix socket.

Its node is emulated, so that 128 CPUs are there to be placed on and the queue is never what limits; what runs is real.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bench import processes
from cumulo.client import Client
from cumulo.client.answers.runs import Run
from cumulo.client.endpoint import Endpoint
from cumulo.domain.errors import CumuloError

EMULATED = "A100-80GB:8"
CPUS = 128
START_S, END_S = 30.0, 120.0
OVER = ("succeeded", "failed", "cancelled", "lost")


class Box:
    """A running server. `started_in` is the seconds from its exec to its first answer; `nodes` declare what it has."""

    def __init__(self, nodes: Sequence[str] = ("--emulate", EMULATED)) -> None:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        state.mkdir(parents=True, exist_ok=True)  # where a state folder lies in real life: /tmp is a special place
        self.home = Path(tempfile.mkdtemp(prefix="cumulo-bench-", dir=state))
        self.socket = self.home / "server.sock"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("CUMULO_")}
        self.env["CUMULO_HOME"] = str(self.home)
        self.client = Client(Endpoint(url="http://localhost", socket=str(self.socket)), patience_s=0)
        self._cloud_id = ""
        began = time.perf_counter()
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cumulo.server", *nodes, "--port", "0", "--socket", self.socket],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env, start_new_session=True,
            )  # fmt: skip
        try:
            self._await_answer(began + START_S)
        except BaseException:
            self.close()
            raise
        self.started_in = time.perf_counter() - began

    @property
    def pid(self) -> int:
        return self._process.pid

    def spawner(self) -> int:
        """The pid of the process that forks supervisors."""
        return next(pid for pid in processes.children_of(self.pid) if self._names_spawner(pid))

    def commits(self) -> int:
        """Transactions that wrote something, as the server counts them."""
        with self.client.transport.open("GET", "/metrics") as response:
            lines = response.read().decode().splitlines()
        return int(float(next(line for line in lines if line.startswith("cumulo_commits_total ")).split()[1]))

    def submit(self, command: str, *, cpus: float = 1.0, array: str | None = None) -> Run:
        resources = {"cpus": cpus, "memory": 0.25}
        run: dict[str, object] = {"name": "bench", "run": command, "resources": resources}
        return self.client.submit(run | ({"array": array} if array else {}))

    def log_of(self, run: str) -> bytes:
        return b"".join(self.client.raw_log(run))

    @contextlib.contextmanager
    def held_up(self) -> Iterator[None]:
        """Nothing else is placed within the block: a run holds all CPUs."""
        holder = self.submit("exec sleep 600", cpus=CPUS)
        self.wait_until(lambda: self.client.run(holder.id).status == "running")
        try:
            yield
        finally:
            self.client.cancel(holder.id, grace_s=0)

    def wait_until_idle(self) -> None:
        """Until no run is active, and a moment longer for what comes after a run's end."""
        self.wait_until(lambda: not list(self.client.runs(active=True, limit=1)))
        time.sleep(0.3)

    @staticmethod
    def wait_until(true: Callable[[], object], *, pause: float = 0.1) -> None:
        """Raises TimeoutError."""
        deadline = time.monotonic() + END_S
        while not true():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing came of it within {END_S:g} s")
            time.sleep(pause)

    def close(self) -> None:
        """Ends every run and the server, waits until nothing of it runs, and removes the folder."""
        with contextlib.suppress(CumuloError, OSError):
            for run in self.client.runs(active=True):
                self.client.cancel(run.id, grace_s=0)
            self.wait_until_idle()
        self.client.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self.wait_until(lambda: not processes.naming(str(self.home)))
        shutil.rmtree(self.home, ignore_errors=True)
        if self._cloud_id:
            processes.remove_cgroups(f"cumulo-{self._cloud_id}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _await_answer(self, deadline: float) -> None:
        while True:
            with contextlib.suppress(CumuloError):
                if self.socket.exists() and (health := self.client.health()).status == "ok":
                    self._cloud_id = health.cloud_id
                    return
            if self._process.poll() is not None or time.perf_counter() > deadline:
                said = (self.home / "server.log").read_text()[-500:]
                raise RuntimeError(f"the server did not start: {said}")
            time.sleep(0.005)

    def _names_spawner(self, pid: int) -> bool:
        return b"\0spawner\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
