"""Instance folders as the engine sees them: writes the spec and the wish to stop, reads how things stand.

The format is the supervisor's; supervisor.py documents it, field by field.
"""

import fcntl
import os
import shutil
import signal
import struct
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from cumulo.node import processes
from cumulo.node.cgroups import CgroupPlan, group_pids, group_usage, remove_tree
from cumulo.node.processes import Usage
from cumulo.node.runtimes.protocol import Stage
from cumulo.node.supervisor import FORMAT, boot_id, read_json, write_atomic

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, len, pid
_INDEX = struct.Struct("=Qd")
_REAP_PATIENCE_S = 10.0


class Standing(StrEnum):
    """How an instance stands. ORPHANED: its supervisor died without an exit record, its processes may live."""

    NOT_STARTED = "not_started"
    ALIVE = "alive"
    ENDED = "ended"
    ORPHANED = "orphaned"
    LOST_BY_REBOOT = "lost_by_reboot"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSpec:
    """What one supervisor is to do (spec.json). `uid` None: everything runs as the server's own user."""

    instance_id: str
    cloud_id: str
    run_id: str
    stages: tuple[Stage, ...]
    cgroup: CgroupPlan
    grace_s: float
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    umask: int | None = None
    rlimits: Mapping[str, tuple[int, int]] | None = None
    max_duration_s: float | None = None
    log_limit_bytes: int | None = None
    notify: str | None = None

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["stages"] = [stage.to_json() for stage in self.stages]
        return values | {"version": FORMAT, "cgroup": self.cgroup.to_json(), "rlimits": dict(self.rlimits or {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """state.json: the last thing the supervisor said while alive. Times as documented there."""

    boot_id: str
    phase: str
    payload_pid: int | None
    payload_start: int | None
    started_at: float | None
    started_boot: float | None
    stages: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """exit.json: how the instance ended. `started_at` None: the run's own command never ran."""

    ended_at: float
    reason: str
    started_at: float | None = None
    stage: str | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    log_bytes: int = 0
    log_lost_bytes: int = 0
    cpu_seconds: float | None = None
    max_memory_bytes: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One consistent look at an instance."""

    standing: Standing
    state: State | None = None
    exit: ExitRecord | None = None
    supervisor_pid: int | None = None


def folder_of(root: Path, instance_id: str) -> Path:
    return root / "instances" / instance_id


def folders(root: Path) -> Iterator[Path]:
    """All instance folders of the node, by id."""
    base = root / "instances"
    return iter(sorted(path for path in base.iterdir() if path.is_dir())) if base.is_dir() else iter(())


def create(root: Path, spec: SupervisorSpec) -> Path:
    """Make the folder and write the spec; the folder. Harmless for an instance that has been started already."""
    folder = folder_of(root, spec.instance_id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(str(folder), "spec.json", spec.to_json())
    return folder


def look(folder: Path) -> View:
    """How the instance stands now."""
    holder = None
    for _ in range(2):  # the supervisor may end between a look for the record and a look at the lock: look again
        record = read_exit(folder)
        if record:
            return View(standing=Standing.ENDED, state=read_state(folder), exit=record)
        holder = lock_holder(folder)
        if holder is not None:
            return View(standing=Standing.ALIVE, state=read_state(folder), supervisor_pid=holder)
    state = read_state(folder)
    if state is None:
        return View(standing=Standing.NOT_STARTED)
    lost = state.boot_id != boot_id()
    return View(standing=Standing.LOST_BY_REBOOT if lost else Standing.ORPHANED, state=state)


def read_state(folder: Path) -> State | None:
    """None where it never was started. What a loss of power left unreadable tells just that: it was, before that."""
    try:
        data = read_json(f"{folder}/state.json")
    except ValueError:
        data = dict.fromkeys(State.__dataclass_fields__) | {"boot_id": "", "phase": "preparing", "stages": {}}
    return State(**{name: data[name] for name in State.__dataclass_fields__}) if data else None


def read_exit(folder: Path) -> ExitRecord | None:
    data = read_json(f"{folder}/exit.json")
    return ExitRecord.from_json(data) if data else None


def read_cgroup(folder: Path) -> CgroupPlan:
    """The cgroups of the instance, as its spec has them."""
    spec = read_json(f"{folder}/spec.json")
    return CgroupPlan.from_json(spec["cgroup"]) if spec else CgroupPlan()


def lock_holder(folder: Path) -> int | None:
    """The pid of the living supervisor. Asking takes no lock, so it disturbs nobody."""
    try:
        fd = os.open(f"{folder}/lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(fd)
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else pid


def request_stop(folder: Path, *, grace_s: float, reason: str | None = None, preempt_at: float | None = None) -> View:
    """Write the wish to stop and wake the supervisor; repeat it as you like, a smaller grace shortens.

    `preempt_at`: it makes room for others, and was told that it has until then.

    Where the answer is NOT_STARTED, ask the spawner to start it once more: its supervisor then starts nothing and
    writes the exit record.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(str(folder), "stop.json", {"grace_s": grace_s, "reason": reason, "preempt_at": preempt_at})
    view = look(folder)
    if view.supervisor_pid:
        _signal_holder(folder, view.supervisor_pid)
    return view


def read_notice(folder: Path) -> float | None:
    """Until when (epoch seconds) an instance that makes room for others may stay, as it was told; None: it was not."""
    asked = read_json(f"{folder}/stop.json")
    told = asked.get("preempt_at") if asked else None
    return None if told is None else float(told)


def _signal_holder(folder: Path, pid: int) -> None:
    """SIGTERM to the lock's holder, and to nobody who got its pid meanwhile."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if lock_holder(folder) == pid:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def reap_orphan(folder: Path) -> ExitRecord:
    """Kill what an ORPHANED or LOST_BY_REBOOT instance left behind and write its exit record.

    Raises TimeoutError where something survives SIGKILL (a process stuck in the kernel): try again later.
    """
    view = look(folder)
    if view.exit:
        return view.exit
    if view.state is None or view.standing is Standing.ALIVE:
        raise ValueError(f"{folder.name} is {view.standing}, there is no orphan to reap")
    rebooted = view.standing is Standing.LOST_BY_REBOOT
    if not rebooted:
        _kill_remains(folder)
    record = {
        "version": FORMAT,
        "started_at": view.state.started_at,
        "ended_at": _last_sign(folder) if rebooted else _now_since(view.state),
        "reason": "lost_by_reboot" if rebooted else "supervisor_lost",
        "message": "the machine was restarted" if rebooted else "its supervisor was killed",
        "log_bytes": (folder / "log").stat().st_size if (folder / "log").exists() else 0,
    }
    write_atomic(str(folder), "exit.json", record, sync=True)
    return ExitRecord.from_json(record)


def _kill_remains(folder: Path) -> None:
    plan = read_cgroup(folder)
    deadline = time.monotonic() + _REAP_PATIENCE_S
    while remains := (group_pids(plan) | processes.with_environment("CUMULO_INSTANCE_ID", folder.name)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{folder.name}: process {min(remains)} survives SIGKILL")
        for pid in remains:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(0.005)
    for path in plan.dirs:
        remove_tree(Path(path))


def _now_since(state: State) -> float:
    if state.started_at is None or state.started_boot is None:
        return time.time()
    return state.started_at + time.clock_gettime(time.CLOCK_BOOTTIME) - state.started_boot


def _last_sign(folder: Path) -> float:
    """When the instance was last known to live: nobody saw it end."""
    return max((folder / name).stat().st_mtime for name in ("state.json", "log") if (folder / name).exists())


def usage(folder: Path, view: View) -> Usage:
    """What the instance uses now: as its cgroups count, or else by its processes."""
    counted = group_usage(read_cgroup(folder))
    if counted is not None:
        return counted
    if view.supervisor_pid is None:
        return Usage(memory_bytes=0, cpu_seconds=0.0, pids=())
    return processes.tree_usage(view.supervisor_pid)


def log_offset_since(folder: Path, when: float) -> int:
    """The offset in the log from which on output is not older than `when` (epoch seconds), to about a second."""
    try:
        data = (folder / "log.index").read_bytes()
    except FileNotFoundError:
        return 0
    records = list(_INDEX.iter_unpack(data[: len(data) - len(data) % _INDEX.size]))
    newer = bisect_right(records, when, key=lambda record: record[1])
    if newer == 0:
        return 0
    offset, written = records[newer - 1]
    if when <= written + 1:
        return int(offset)
    # Nothing was written between that record's second and the next record.
    return int(records[newer][0]) if newer < len(records) else (folder / "log").stat().st_size


def remove(folder: Path) -> None:
    """Delete the folder of an ended instance, and what it left of cgroups. Raises ValueError for one that lives."""
    if look(folder).standing in (Standing.ALIVE, Standing.ORPHANED):
        raise ValueError(f"{folder.name} has not ended")
    for path in read_cgroup(folder).dirs:
        remove_tree(Path(path))
    shutil.rmtree(folder)
