"""Reading /proc: who lives, below whom, and what it uses. For where no cgroup tells, and to never mistake a pid."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an instance uses at this moment. CPU seconds only ever grow while a cgroup counts them."""

    memory_bytes: int
    cpu_seconds: float
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """A line of /proc/PID/stat, as far as we use it."""

    pid: int
    state: str
    parent: int
    cpu_seconds: float
    start_ticks: int
    resident_bytes: int


def stat(pid: int) -> ProcessStat | None:
    """None where there is no such process (any more)."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return ProcessStat(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        cpu_seconds=sum(map(int, fields[11:15])) / TICKS_PER_SECOND,
        start_ticks=int(fields[19]),
        resident_bytes=int(fields[21]) * PAGE_BYTES,
    )


def living() -> Iterator[ProcessStat]:
    """All processes that are not zombies."""
    for entry in os.listdir(PROC):
        found = stat(int(entry)) if entry.isdigit() else None
        if found and found.state != "Z":
            yield found


def descendants(root: int) -> dict[int, ProcessStat]:
    """The living processes below `root`, by pid."""
    children: defaultdict[int, list[ProcessStat]] = defaultdict(list)
    for process in living():
        children[process.parent].append(process)
    found: dict[int, ProcessStat] = {}
    queue = [root]
    while queue:
        for child in children[queue.pop()]:
            if child.pid not in found:
                found[child.pid] = child
                queue.append(child.pid)
    return found


def with_environment(name: str, value: str) -> set[int]:
    """Processes (never our own) that were started with NAME=value. Needs the right to read their environment."""
    wanted = f"{name}={value}".encode()
    found = set()
    for process in living():
        try:
            environment = (PROC / str(process.pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in environment:
            found.add(process.pid)
    return found - {os.getpid()}


def tree_usage(root: int) -> Usage:
    """What the processes below `root` use: resident memory (shared pages count for each), CPU, pids."""
    found = descendants(root)
    return Usage(
        memory_bytes=sum(process.resident_bytes for process in found.values()),
        cpu_seconds=sum(process.cpu_seconds for process in found.values()),
        pids=tuple(sorted(found)),
    )
