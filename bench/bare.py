"""The bare limits: what the same things cost where nobody manages anything.

`python -m bench.bare SOCKET BYTES` is the bare HTTP server: uvicorn alone, answering every request with so many bytes.
"""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.processes import cost_of, cpu_seconds, pss_bytes

BWRAP = ("bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--ro-bind", "/", "/", "--dev", "/dev",
         "--proc", "/proc", "--tmpfs", "/tmp", "--die-with-parent")  # fmt: skip  # noqa: S108


def sandbox_available() -> bool:
    return shutil.which("bwrap") is not None


def sandbox_seconds(times: int) -> float:
    """Median seconds from nothing to the end of `true` in bubblewrap."""
    return statistics.median(cost_of([*BWRAP, "true"]).wall for _ in range(times))


def sandboxes_per_second(count: int) -> float:
    """How many sandboxes with a shell in them come and go per second, as many at a time as there are CPUs."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda _: cost_of([*BWRAP, "bash", "-c", "true"]), range(count)))
    return count / (time.perf_counter() - began)


def python_cpu_seconds(times: int) -> float:
    """Median CPU of a Python that does nothing."""
    return statistics.median(cost_of([sys.executable, "-c", "pass"]).cpu for _ in range(times))


class BareServer:
    """uvicorn alone on a unix socket."""

    def __init__(self, process: "subprocess.Popen[bytes]", path: str, started_in: float) -> None:
        self._process, self._path = process, path
        self.started_in = started_in

    def pss(self) -> int:
        return pss_bytes(self._process.pid)

    def request_cpu_seconds(self, times: int) -> float:
        """Median CPU of one request."""
        connection = unix_connection(self._path)
        costs = []
        for _ in range(times):
            before = cpu_seconds(self._process.pid)
            connection.request("GET", "/")
            connection.getresponse().read()
            costs.append(cpu_seconds(self._process.pid) - before)
        connection.close()
        return statistics.median(costs)


@contextlib.contextmanager
def bare_server(size: int) -> Iterator[BareServer]:
    """A running one whose answers have `size` bytes."""
    with tempfile.TemporaryDirectory(prefix="cumulo-bench-") as folder:
        path = f"{folder}/s"
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "bench.bare", path, str(size)])
        try:
            while not _answers(path):
                if process.poll() is not None:
                    raise RuntimeError("the bare server did not start")
                time.sleep(0.005)
            yield BareServer(process, path, time.perf_counter() - began)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def unix_connection(path: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.connect(path)
    return connection


def _answers(path: str) -> bool:
    try:
        connection = unix_connection(path)
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except OSError:
        return False


def serve(path: str, size: int) -> None:
    """The bare server itself; returns when it is told to stop."""
    import uvicorn

    body = b"x" * size
    head = [(b"content-type", b"application/json"), (b"content-length", str(size).encode())]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(app, uds=path, lifespan="off", log_level="error", access_log=False)
    Path(path).unlink(missing_ok=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
