"""What processes cost: their CPU time to the nanosecond, their memory, and who belongs to a state folder."""

import contextlib
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

MB = 1_000_000


class Cost(NamedTuple):
    """Of one child that ran to its end, in seconds; `cpu` is user and system time, its own children's included."""

    wall: float
    cpu: float


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used, all its threads together, ended ones included. Raises OSError if it is gone."""
    # The kernel's number for "the CPU clock of that process" (include/linux/posix-timers.h): ticks of 10 ms, as
    # /proc/PID/stat has them, are too coarse for one request.
    return time.clock_gettime((~pid << 3) | 2)


def pss_bytes(pid: int) -> int:
    """Memory of a process, with what it shares divided among those who share it. 0 once it is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def naming(text: str) -> list[int]:
    """The processes on whose command line `text` stands, but for this one."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in words and int(entry) != os.getpid():
            found.append(int(entry))
    return found


def children_of(pid: int) -> list[int]:
    """Direct children, by any of the process's threads."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def remove_cgroups(name: str) -> None:
    """Removes the empty cgroups of that name below our own, in each hierarchy: a server keeps its own for the next."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        for folder in {own, "/"}:
            with contextlib.suppress(OSError):
                os.rmdir(f"/sys/fs/cgroup/{controllers}{folder}/{name}")


def cost_of(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Cost:
    """Runs a command and waits for it. Raises RuntimeError with what it said if it fails."""
    began = time.perf_counter()
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)
    said = child.stdout.read() if child.stdout else b""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.stdout:
        child.stdout.close()
    if child.returncode:
        raise RuntimeError(f"{argv[0]} failed: {said.decode(errors='replace').strip()[-300:]}")
    return Cost(wall=time.perf_counter() - began, cpu=used.ru_utime + used.ru_stime)


def median(measure: Callable[[], float], times: int) -> float:
    return statistics.median(measure() for _ in range(times))
