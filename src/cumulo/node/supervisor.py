"""The small process that owns one instance, and the spawner that forks it.

It outlives the control plane: restarting, upgrading or deleting Cumulo touches no workload. Therefore this is one
file of the standard library alone, it imports nothing of ours, and it speaks to the rest only through files whose
format carries a version. It runs as

    python -I -S supervisor.py spawner FD         forks one supervisor for each request that comes over socket FD
    python -I -S supervisor.py exec FD            joins a running instance and runs one more command in it

The spawner is single-threaded, so that it can fork without care, and has everything loaded, so that a start costs a
few milliseconds of CPU. Requests are SEQPACKET datagrams, `{"op": "start", "dir": FOLDER}`; there are no answers,
since the folder tells everything. When the socket closes it takes no more and leaves after its last supervisor.

The instance's folder (0700, owned by the server's user), format version 1. All times are epoch seconds (float) of one
clock that starts at the wall clock and then follows CLOCK_BOOTTIME, so that a clock that jumps bends no duration.

spec.json    by the engine, before the request:
    version, instance_id, cloud_id, run_id
    uid, gid, groups      whom stages with `drop` become; null: stay as we are
    umask                 int or null
    rlimits               {"RLIMIT_NOFILE": [soft, hard]}, best effort
    stages                list of {name: "preparing" | "running", argv, env, cwd, drop, stdin, json_status}. All but the
                          last must exit 0. stdin is text to read, or null for /dev/null. With `json_status`, argv is
                          bubblewrap's: it finds a pipe for its `--json-status-fd 3`, and on fd 4 a socket on which
                          what runs inside writes "started\\n" right before it becomes the command, or "failed WHY\\n";
                          cwd is then bubblewrap's affair
    cgroup                {version: 0 | 1 | 2, dirs, writes: [[path, value, required]], memory_dir, cpu_dir, pids_dir};
                          dirs are made in order, each stage's process joins them all before it becomes the command
    grace_s               between SIGTERM and SIGKILL, where no stop.json says otherwise
    max_duration_s        from the supervisor's start, enforced here; null: none
    log_limit_bytes       output beyond is dropped, and one line says so; null: none
    notify                path of a unix datagram socket that is sent the instance's id on each change; null: none
lock         a POSIX record lock held for life: the truth about who lives (F_GETLK names the holder's pid). A second
             supervisor finds it taken and leaves; so does one that finds state.json or exit.json: at most one, ever
reserve      some allocated kilobytes, given up to make room for exit.json on a full disk
state.json   version, boot_id, pid, pid_start (ticks, /proc/PID/stat field 22), phase (preparing, running, stopping),
             payload_pid (host pid of the running stage's process, also inside a sandbox), payload_start, started_at
             (when that process exists), started_boot (CLOCK_BOOTTIME then), stages {name: when begun}
stop.json    by the engine: {grace_s, reason}; then it sends SIGTERM. A missed signal is harmless: the file is read
             before each stage. There before the start, nothing starts: a stopped id never starts
exit.json    the last thing written, fsynced: version, started_at, ended_at, reason, stage, message, exit_code,
             signal, oom, log_bytes, log_lost_bytes, cpu_seconds, max_memory_bytes. Reasons: finished; stopped;
             timeout; setup_failed (a stage before the last); start_failed (the command could not be run); error (ours)
log          what the stages wrote to stdout and stderr, byte for byte
log.index    records of (offset: uint64, when: float64), native order, at most one a second: from this offset on,
             output is not older than `when`

The end of an instance: when the running stage's process is gone, what it left behind gets LINGER_S to end by itself,
then SIGTERM, then (after at most LEFTOVER_GRACE_S) SIGKILL. On a stop everything gets SIGTERM, except the processes of
bubblewrap itself (its death would kill the payload at once), and the full grace, also where the first process dies
sooner than its children. Nothing survives, daemonised processes included: they are found by cgroup, and as
descendants, since the supervisor is their subreaper.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import termios
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

FORMAT = 1
LINGER_S = 0.3
LEFTOVER_GRACE_S = 2.0
STATUS_FD, REPORT_FD = 3, 4
RESERVE_BYTES = 16384
PIPE_BYTES = 1 << 20
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL_PATIENCE_S = 3600.0
# Signals that end a process by default. bubblewrap turns them into 128 + n, and this is how we turn them back.
DEADLY = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 25, 26, 27, 29, 30, 31})

PR_SET_PDEATHSIG, PR_SET_NAME, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 15, 24, 36, 38
NS_GET_USERNS = 0xB701
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int | bytes) -> bool:
    """Whether prctl(2) succeeded; every use of it here can live with a no."""
    arg = value if isinstance(value, bytes) else ctypes.c_ulong(value)
    return int(_libc.prctl(option, arg, 0, 0, 0)) == 0


class Clock:
    """Wall time at the start, boot time from then on. The two sources are arguments so that tests can bend them."""

    def __init__(self, wall: Callable[[], float] = time.time, boot: Callable[[], float] | None = None) -> None:
        self.boot = boot or (lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
        self._offset = wall() - self.boot()

    def now(self) -> float:
        return self.boot() + self._offset


# --- files ------------------------------------------------------------------------------------------------------------


def read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def read_json(path: str) -> dict[str, Any] | None:
    """The object in the file; None where there is no file."""
    try:
        loaded = json.loads(read_text(path))
    except FileNotFoundError:
        return None
    if not isinstance(loaded, dict):
        raise ValueError(f"{path} holds no JSON object")
    return loaded


def write_atomic(folder: str, name: str, value: dict[str, Any], *, sync: bool = False) -> None:
    """Replace folder/name. With `sync` it is on the disk, name and all, on return. OSError leaves the old file."""
    path = os.path.join(folder, name)
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = memoryview(json.dumps(value).encode())
        while data:
            data = data[os.write(fd, data) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".tmp", path)
    if sync:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_control(path: str, value: str) -> None:
    """One write(2) to a kernel control file, as cgroup files want it."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def stat_fields(pid: int) -> list[str] | None:
    """/proc/PID/stat from field 3 (state) on; None where there is no such process."""
    try:
        return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except OSError:
        return None


def start_ticks(pid: int) -> int | None:
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def descendants(root: int) -> set[int]:
    """All living processes below `root`. Reads all of /proc, so it is for stopping, not for the usual end."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = stat_fields(int(entry))
            if fields and fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry))
    found: set[int] = set()
    queue = [root]
    while queue:
        fresh = [pid for pid in children.get(queue.pop(), []) if pid not in found]
        found.update(fresh)
        queue.extend(fresh)
    return found


# --- cgroup -----------------------------------------------------------------------------------------------------------


class StartError(Exception):
    """The command could not be started; the text is for people."""


class Cgroup:
    """The instance's cgroups: made here, joined by each stage's process, emptied and removed at the end."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.version: int = plan.get("version", 0)
        self.dirs: list[str] = plan.get("dirs", [])
        self._writes: list[list[Any]] = plan.get("writes", [])
        self._memory_dir: str | None = plan.get("memory_dir")
        self._cpu_dir: str | None = plan.get("cpu_dir")
        self._pids_dir: str | None = plan.get("pids_dir")

    def create(self) -> None:
        """Raises StartError where a directory or a required limit is refused."""
        for path in self.dirs:
            try:
                os.makedirs(path, exist_ok=True)
            except OSError as error:
                raise StartError(f"cannot make the cgroup {path}: {error.strerror}") from error
        for path, value, required in self._writes:
            try:
                write_control(path, value)
            except OSError as error:
                if required:
                    raise StartError(f"cannot set {path} to {value}: {error.strerror}") from error

    def members(self) -> set[int]:
        found: set[int] = set()
        for top in self.dirs[:1]:  # each process is in all of them, or is still our unfinished child
            for folder, _, _ in os.walk(top):
                try:
                    found.update(map(int, read_text(os.path.join(folder, "cgroup.procs")).split()))
                except OSError:
                    continue
        return found

    def kill(self) -> bool:
        """Kill at once where the kernel offers that; else only forbid new processes, and False."""
        try:
            if self.version == 2 and self.dirs:
                write_control(os.path.join(self.dirs[0], "cgroup.kill"), "1")
                return True
            if self._pids_dir:
                write_control(os.path.join(self._pids_dir, "pids.max"), "0")  # so that no fork outruns the killing
        except OSError:
            pass  # cgroup.kill is younger (5.14) than v2: one by one, then
        return False

    def oom_kills(self) -> int:
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return int(self._field(self._memory_dir, name, "oom_kill") or 0)

    def cpu_seconds(self) -> float | None:
        if self.version == 2:
            usec = self._field(self._cpu_dir, "cpu.stat", "usage_usec")
            return int(usec) / 1e6 if usec else None
        nanos = self._whole(self._cpu_dir, "cpuacct.usage")
        return nanos / 1e9 if nanos is not None else None

    def max_memory_bytes(self) -> int | None:
        return self._whole(self._memory_dir, "memory.peak" if self.version == 2 else "memory.max_usage_in_bytes")

    def remove(self) -> None:
        """Remove the directories; v1 may answer EBUSY for a moment. What stays is swept by the engine."""
        deadline = time.monotonic() + 1.0
        for top in self.dirs:
            for folder, _, _ in list(os.walk(top, topdown=False)):
                while True:
                    try:
                        os.rmdir(folder)
                    except OSError as error:
                        if error.errno == errno.EBUSY and time.monotonic() < deadline:
                            time.sleep(0.01)
                            continue
                    break

    @staticmethod
    def _whole(folder: str | None, name: str) -> int | None:
        try:
            return int(read_text(os.path.join(folder, name))) if folder else None
        except (OSError, ValueError):
            return None

    @staticmethod
    def _field(folder: str | None, name: str, key: str) -> str | None:
        try:
            lines = read_text(os.path.join(folder, name)).splitlines() if folder else []
        except OSError:
            return None
        return next((line.split()[1] for line in lines if line.startswith(key + " ")), None)


# --- output -----------------------------------------------------------------------------------------------------------


class Log:
    """Moves what the stages write into the log, uninterpreted. A full disk loses output, never the run."""

    def __init__(self, folder: str, *, limit: int | None, clock: Clock) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        with contextlib.suppress(OSError):  # an ordinary user's pipes may be at their limit; 64 KiB serve as well
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(os.path.join(folder, "log"), flags, 0o600)
        self._index = os.open(os.path.join(folder, "log.index"), flags, 0o600)
        self._limit = limit
        self._clock = clock
        self._indexed_at = float("-inf")
        self._unsaid = 0  # lost to a full disk and not yet told in the log
        self._over = False
        self.size = 0
        self.lost = 0
        self.tail = b""

    def drain(self, *, rounds: int = 8) -> None:
        """Take what is there. Bounded, so that a flood of output delays no signal and no deadline."""
        for _ in range(rounds):
            try:
                data = os.read(self.reader, PIPE_BYTES)
            except BlockingIOError:
                return
            self.tail = data[-1000:]
            self._keep(data)

    def finish(self) -> None:
        self.drain(rounds=1024)  # all writers are dead; the bound is for one who passed the pipe on to a stranger
        self._tell_loss()

    def _keep(self, data: bytes) -> None:
        if self._limit is not None and self.size + len(data) > self._limit:
            room = 0 if self._over else max(0, self._limit - self.size)
            self.lost += len(data) - room
            if not self._over:
                self._write(data[:room])
                self._write(
                    b"\n[cumulo: the log's limit of %d bytes is reached; output from here on is dropped]\n"
                    % self._limit
                )
            self._over = True
            return
        self._tell_loss()
        if self._unsaid:  # still no room: keep the gap in one piece, so that its line stands where it is
            self._unsaid += len(data)
            self.lost += len(data)
        else:
            self._write(data)

    def _tell_loss(self) -> None:
        if self._unsaid:
            text, self._unsaid = b"\n[cumulo: %d bytes of output lost: the disk was full]\n" % self._unsaid, 0
            self._write(text, counted=False)

    def _write(self, data: bytes, *, counted: bool = True) -> None:
        now = self._clock.now()
        rest = memoryview(data)
        try:
            if rest and now >= self._indexed_at + 1:
                os.write(self._index, struct.pack("=Qd", self.size, now))
                self._indexed_at = now
            while rest:
                written = os.write(self._file, rest)
                self.size += written
                rest = rest[written:]
        except OSError:
            self._unsaid += len(rest)
            self.lost += len(rest) if counted else 0


# --- a stage's process ------------------------------------------------------------------------------------------------


def become(spec: dict[str, Any]) -> None:
    """Take the spec's groups, gid and uid, for good. Raises StartError where that fails or could be undone."""
    uid, gid = spec["uid"], spec["gid"]
    if uid is None or (os.geteuid() == uid and uid != 0):
        return
    try:
        os.setgroups(spec.get("groups") or [])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise StartError(f"cannot become uid {uid}: {error.strerror}") from error
    if uid != 0:
        try:
            os.setuid(0)
        except OSError:
            return
        raise StartError(f"privileges could be regained after becoming uid {uid}")


def join_cgroups(dirs: list[str]) -> None:
    for path in dirs:
        try:
            write_control(os.path.join(path, "cgroup.procs"), "0")
        except OSError as error:
            raise StartError(f"cannot join the cgroup {path}: {error.strerror}") from error


def enter_folder(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        who = f" for uid {os.geteuid()}" if error.errno == errno.EACCES else ""
        raise StartError(f"cannot enter the working folder {path}{who}: {error.strerror}") from error


def run_command(argv: list[str], env: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 (no shell is the point)
    except OSError as error:
        if error.errno == errno.ENOENT:
            there = "/" in argv[0] and os.path.exists(argv[0])
            text = f"the interpreter of {argv[0]} is missing" if there else f"command not found: {argv[0]}"
        elif error.errno == errno.ENOEXEC:
            text = f"{argv[0]} is neither a program nor a script that begins with #!"
        else:
            text = f"cannot run {argv[0]}: {error.strerror}"
        raise StartError(text) from error


def reset_signals() -> None:
    """What a program expects at its start: nothing of the supervisor's, and none of what Python ignores."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def limit_resources(limits: dict[str, list[int]]) -> None:
    for name, (soft, hard) in limits.items():
        try:
            resource.setrlimit(getattr(resource, name), (soft, hard))
        except (OSError, ValueError, AttributeError):
            continue


def input_of(stage: dict[str, Any]) -> int:
    if stage["stdin"] is None:
        return os.open("/dev/null", os.O_RDONLY)
    fd = os.memfd_create("stdin")
    os.write(fd, stage["stdin"].encode(errors="surrogateescape"))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def stage_process(spec: dict[str, Any], stage: dict[str, Any], *, output: int, status: int, report: int) -> NoReturn:
    """The forked child's way to the command. Its fds: stdin, output, output and, with json_status, the two."""
    report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, 16)
    try:
        reset_signals()
        os.setsid()
        sources = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16) for fd in (output, status)]
        os.dup2(input_of(stage), 0)
        os.dup2(sources[0], 1)
        os.dup2(sources[0], 2)
        join_cgroups(spec["cgroup"].get("dirs", []))
        limit_resources(spec.get("rlimits") or {})
        if spec.get("umask") is not None:
            os.umask(spec["umask"])
        if stage["json_status"]:
            os.dup2(sources[1], STATUS_FD)
            os.dup2(report, REPORT_FD)
        if stage["drop"]:
            become(spec)
        if not stage["json_status"]:
            enter_folder(stage["cwd"])
        run_command(stage["argv"], stage["env"])
    except BaseException as error:
        os.write(report, f"failed {error}\n".encode())
    os._exit(127)


class Stage:
    """One stage's process as the supervisor sees it: whether it really started, and how it ended."""

    def __init__(self, spec: dict[str, Any], stage: dict[str, Any], *, output: int) -> None:
        self.name: str = stage["name"]
        self.sandboxed: bool = stage["json_status"]
        self.started_pid: int | None = None
        self.failure: str | None = None
        self.status: int | None = None  # of waitpid
        self._inner: int | None = None  # bubblewrap's process 1 inside
        self._inner_code: int | None = None
        self._text = b""
        self.report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.report.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # tells the sender's pid out here
        self.report.setblocking(False)
        self.reading = True
        self.json_fd, json_theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.json_fd, False)
        self.pid = os.fork()
        if self.pid == 0:
            stage_process(spec, stage, output=output, status=json_theirs, report=theirs.fileno())
        theirs.close()
        os.close(json_theirs)

    def read_report(self) -> None:
        """Read "started" or "failed". Without a sandbox, silence until the exec closes the socket means started."""
        while self.reading:
            try:
                data, ancillary, _, _ = self.report.recvmsg(4096, socket.CMSG_SPACE(12))
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.reading = False
                if not self.sandboxed and self.failure is None:
                    self.started_pid = self.pid
            elif data.startswith(b"failed "):
                self.failure = data[7:].decode(errors="replace").strip()
            elif data.startswith(b"started"):
                self.started_pid = next((struct.unpack("=3i", cred)[0] for _, _, cred in ancillary), self.pid)

    def own_processes(self) -> set[int]:
        """bubblewrap's own two, which must not be asked to end before what runs inside has."""
        if not self.sandboxed:
            return set()
        self._read_json()
        return {self.pid} | ({self._inner} if self._inner else set())

    def result(self) -> tuple[int | None, int | None]:
        """(exit code, signal) of the command, one of them None; both None where nothing is known."""
        status = self.status or 0
        if self.sandboxed:
            self._read_json()
            code = self._inner_code
            if code is not None:
                return (None, code - 128) if code - 128 in DEADLY else (code, None)
        return (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)

    def close(self) -> None:
        self.report.close()
        os.close(self.json_fd)

    def _read_json(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._text += os.read(self.json_fd, 65536)
        *lines, self._text = self._text.split(b"\n")
        for line in filter(None, lines):
            told = json.loads(line)
            self._inner = told.get("child-pid", self._inner)
            self._inner_code = told.get("exit-code", self._inner_code)


# --- the supervisor ---------------------------------------------------------------------------------------------------


class Supervisor:
    """Drives one instance from its spec to its exit record."""

    def __init__(self, folder: str, spec: dict[str, Any], clock: Clock) -> None:
        self.folder = folder
        self.spec = spec
        self.clock = clock
        self.cgroup = Cgroup(spec["cgroup"])
        self.log = Log(folder, limit=spec.get("log_limit_bytes"), clock=clock)
        self.stage: Stage | None = None
        self.cause: str | None = None  # stopped or timeout, once asked to end
        self.message: str | None = None
        self._kill_at = float("inf")  # these three on the boot clock
        self._began = clock.boot()
        limit = spec.get("max_duration_s")
        self._timeout_at = float("inf") if limit is None else self._began + limit
        self._signalled = False
        self._wake, wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        boot_id = read_text("/proc/sys/kernel/random/boot_id").strip()
        self.state: dict[str, Any] = {"version": FORMAT, "boot_id": boot_id, "phase": "preparing", "stages": {}}
        self.state |= {"pid": os.getpid(), "pid_start": start_ticks(os.getpid())}
        self.state |= dict.fromkeys(("payload_pid", "payload_start", "started_at", "started_boot"))

    def run(self) -> dict[str, Any]:
        """All stages; the exit record."""
        try:
            self._read_stop()
            if not self.cause:
                self.cgroup.create()
            for stage in self.spec["stages"]:
                self._read_stop()  # a signal that came before the handler stood is not lost
                if self.cause:
                    break
                ending = self._run_stage(stage, last=stage is self.spec["stages"][-1])
                if ending:
                    return ending
        except StartError as error:
            return self.ending(reason="start_failed", message=str(error))
        return self.ending(reason=self.cause or "error", message=self.message)

    def save_state(self, **changes: Any) -> None:
        """Best effort after the first time: a full disk must not end a run."""
        self.state.update(changes)
        try:
            write_atomic(self.folder, "state.json", self.state)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
        notify(self.spec)

    def abandon(self) -> None:
        """After a fault of our own: leave nothing running."""
        self._kill_at = 0.0
        self._end_leftovers()

    def _run_stage(self, spec: dict[str, Any], *, last: bool) -> dict[str, Any] | None:
        """The exit record where this stage is the end of it, else None."""
        self.state["stages"][spec["name"]] = self.clock.now()
        self.stage = stage = Stage(self.spec, spec, output=self.log.writer)
        announced = False
        while stage.status is None or (stage.started_pid and not announced):
            if stage.status is None:
                self._wait()
            if stage.status is not None:
                stage.read_report()
            if stage.started_pid and not announced:
                announced = True
                self._on_started(stage, last=last)
        self._end_leftovers()
        self.log.drain(rounds=1024)
        code, number = stage.result()
        stage.close()
        if self.cause:
            return self.ending(reason=self.cause, message=self.message, stage=spec["name"], code=code, number=number)
        if stage.started_pid is None:
            reason, text = "start_failed" if last else "setup_failed", stage.failure or self._last_line()
            return self.ending(reason=reason, message=text, stage=spec["name"])
        if last:
            return self.ending(reason="finished", stage=spec["name"], code=code, number=number)
        if code != 0:
            how = f"exited with code {code}" if number is None else f"was killed by {signal.Signals(number).name}"
            text = f"the stage {spec['name']} {how}"
            return self.ending(reason="setup_failed", message=text, stage=spec["name"], code=code, number=number)
        return None

    def _on_started(self, stage: Stage, *, last: bool) -> None:
        if last:
            pid, boot = stage.started_pid or stage.pid, self.clock.boot()
            phase = "stopping" if self.cause else "running"
            changes = {"payload_pid": pid, "payload_start": start_ticks(pid), "started_at": self.clock.now()}
            self.save_state(phase=phase, started_boot=boot, **changes)
        if self.cause:
            self._terminate()  # asked to end before there was anybody to ask

    def _last_line(self) -> str:
        """What bubblewrap complained of."""
        lines = self.log.tail.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "the sandbox could not be set up"

    def ending(
        self,
        *,
        reason: str,
        message: str | None = None,
        stage: str | None = None,
        code: int | None = None,
        number: int | None = None,
    ) -> dict[str, Any]:
        self.log.finish()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, memory = self.cgroup.cpu_seconds(), self.cgroup.max_memory_bytes()
        return {
            "version": FORMAT,
            "started_at": self.state["started_at"],
            "ended_at": self.clock.now(),
            "reason": reason,
            "stage": stage,
            "message": message,
            "exit_code": code,
            "signal": number,
            "oom": self.cgroup.oom_kills() > 0,
            "log_bytes": self.log.size,
            "log_lost_bytes": self.log.lost,
            "cpu_seconds": used.ru_utime + used.ru_stime if cpu is None else cpu,
            "max_memory_bytes": used.ru_maxrss * 1024 if memory is None else memory,
        }

    # Waiting, and what may come meanwhile

    def _wait(self, *, at_most: float = float("inf")) -> None:
        """Sleep until something happens: output, a child's death, a signal, a deadline, or `at_most` seconds."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self.log.reader, select.POLLIN)
        stage = self.stage
        if stage and stage.reading:
            poll.register(stage.report, select.POLLIN)
        due = float("inf")
        if stage and stage.status is None:
            due = min(self._kill_at, float("inf") if self.cause else self._timeout_at) - self.clock.boot()
        pause = min(max(due, 0.0), at_most, 1e6)  # poll's milliseconds are a C int
        ready = {fd for fd, _ in poll.poll(pause * 1000 + 1 if pause < 1e6 else None)}
        if self.log.reader in ready:
            self.log.drain()
        if stage and stage.reading and stage.report.fileno() in ready:
            stage.read_report()
        if self._wake in ready:
            os.read(self._wake, 4096)
            self._reap()
        if self._signalled:
            self._signalled = False
            self._read_stop(signalled=True)
        self._check_deadlines()

    def _on_term(self, *_: object) -> None:
        self._signalled = True

    def _reap(self) -> bool:
        """Collect the dead; whether any child, and so any descendant, still lives."""
        while True:
            try:
                pid, status, _ = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if self.stage and pid == self.stage.pid:
                self.stage.status = status

    def _read_stop(self, *, signalled: bool = False) -> None:
        asked = read_json(os.path.join(self.folder, "stop.json"))
        if asked is not None:
            self._begin_end("stopped", grace=float(asked["grace_s"]), message=asked.get("reason"))
        elif signalled:
            text = "the supervisor was sent SIGTERM, by no request of the engine (is the machine shutting down?)"
            self._begin_end("stopped", grace=self.spec["grace_s"], message=text)

    def _check_deadlines(self) -> None:
        now = self.clock.boot()
        if now >= self._timeout_at and not self.cause:
            text = f"the run's max_duration of {self.spec['max_duration_s']:g} s is over"
            self._begin_end("timeout", grace=self.spec["grace_s"], message=text)
        if now >= self._kill_at and self.stage and self.stage.status is None:
            self._kill()
            self._kill_at = now + 0.05  # and again, until it is dead

    def _begin_end(self, cause: str, *, grace: float, message: str | None) -> None:
        """Also for a second request, which can only shorten the grace of the first."""
        self._kill_at = min(self._kill_at, self.clock.boot() + grace)
        if not self.cause:
            self.cause, self.message = cause, message
            self.save_state(phase="stopping")
            self._terminate()

    # Ending processes

    def _everybody(self) -> set[int]:
        return (self.cgroup.members() | descendants(os.getpid())) - {os.getpid()}

    def _terminate(self) -> None:
        if self.stage:
            for pid in self._everybody() - self.stage.own_processes():
                send(pid, signal.SIGTERM)

    def _kill(self) -> None:
        self.cgroup.kill()
        for pid in self._everybody():  # also after cgroup.kill: somebody may have left the cgroup
            send(pid, signal.SIGKILL)

    def _end_leftovers(self) -> None:
        """Return when nothing of the instance lives any more, however long that takes."""
        begun = self.clock.boot()
        linger_until = begun + LINGER_S
        kill_at = linger_until + min(self.spec["grace_s"], LEFTOVER_GRACE_S)
        asked = False
        pause = 0.002
        while self._reap() or self.cgroup.members():
            now = self.clock.boot()
            if now >= min(self._kill_at, float("inf") if self.cause else kill_at):
                self._kill()
            elif not self.cause and not asked and now >= linger_until:
                asked = True
                self._terminate()
            self._wait(at_most=pause)
            pause = min(pause * 1.5, 0.25)


def send(pid: int, number: signal.Signals) -> None:
    # Gone meanwhile, or a setuid program of an ordinary user: nothing we could do.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def notify(spec: dict[str, Any]) -> None:
    """A hint to whoever listens. The files are the truth, so every failure is fine."""
    if spec.get("notify"):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto(str(spec["instance_id"]).encode(), spec["notify"])
        except OSError:
            pass


def take_lock(folder: str) -> bool:
    """For life: the descriptor is never closed. A record lock, since children do not inherit it."""
    try:
        fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def reserve_room(folder: str) -> None:
    fd = os.open(os.path.join(folder, "reserve"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, RESERVE_BYTES)
    except OSError:
        pass  # not every file system can; then a full disk only delays the exit record
    finally:
        os.close(fd)


def write_exit(folder: str, record: dict[str, Any]) -> None:
    """Give up the reserve where the disk is full, then be patient. OSError where it cannot be written at all."""
    deadline = time.monotonic() + DISK_FULL_PATIENCE_S
    reserve = os.path.join(folder, "reserve")
    while True:
        try:
            write_atomic(folder, "exit.json", record, sync=True)
            break
        except OSError as error:
            if error.errno not in DISK_FULL or time.monotonic() > deadline:
                raise
        if os.path.exists(reserve):
            os.unlink(reserve)
        else:
            time.sleep(1.0)
    if os.path.exists(reserve):
        os.unlink(reserve)


def supervise(folder: str, clock: Clock | None = None) -> None:
    """The whole life of one supervisor; returns when the exit record stands, or when there was nothing to do.

    OSError where state.json, which forbids a second try, cannot be written: nothing has started, the engine asks again.
    """
    clock = clock or Clock()
    done = any(os.path.exists(os.path.join(folder, name)) for name in ("state.json", "exit.json"))
    if not take_lock(folder) or done:
        return
    stop = read_json(os.path.join(folder, "stop.json"))
    spec = read_json(os.path.join(folder, "spec.json"))
    if stop is not None:
        write_exit(folder, nothing_ran("stopped", stop.get("reason"), clock))
    elif spec is not None:
        try:
            if spec["version"] != FORMAT:
                raise ValueError(f"spec.json has format {spec['version']}, this supervisor knows {FORMAT}")
            supervisor = Supervisor(folder, spec, clock)
        except (LookupError, TypeError, ValueError) as error:
            write_exit(folder, nothing_ran("error", f"spec.json cannot be read: {error!r}", clock))
        else:
            drive(supervisor)
    notify(spec or {})


def drive(supervisor: Supervisor) -> None:
    folder = supervisor.folder
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_NAME, f"cumulo-{supervisor.spec['instance_id']}".encode()[:15] + b"\0")
    reserve_room(folder)
    write_atomic(folder, "state.json", supervisor.state)
    try:
        record = supervisor.run()
    except Exception as error:
        traceback.print_exc()
        supervisor.abandon()
        record = supervisor.ending(reason="error", message=f"the supervisor failed: {error!r}")
    supervisor.cgroup.remove()
    write_exit(folder, record)


def nothing_ran(reason: str, message: str | None, clock: Clock) -> dict[str, Any]:
    return {"version": FORMAT, "started_at": None, "ended_at": clock.now(), "reason": reason, "message": message}


# --- the spawner ------------------------------------------------------------------------------------------------------


def spawner(fd: int) -> None:
    """Fork a supervisor for each request; leave when the socket is closed and the last of them has ended."""
    requests = socket.socket(fileno=fd)
    requests.setblocking(False)
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # where a supervisor is killed, its orphans come to us to be reaped
    wake, wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    json.loads(json.dumps({"warm": 1.5}))
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing here makes cycles worth a collection that touches every page
    open_for_more = children = True
    while open_for_more or children:
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        if open_for_more:
            poll.register(requests, select.POLLIN)
        ready = {found for found, _ in poll.poll()}
        if wake in ready:
            os.read(wake, 4096)
        if fd in ready:
            open_for_more = take_requests(requests, inherited=(wake, wake_writer))
        children = reap_all()


def take_requests(requests: socket.socket, *, inherited: tuple[int, int]) -> bool:
    """Serve what waits; False when the other side is gone."""
    while True:
        try:
            data = requests.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            requests.close()
            return False
        request = json.loads(data)
        if request.get("op") != "start":
            continue
        try:
            pid = os.fork()
        except OSError as error:
            print(f"cannot fork a supervisor for {request['dir']}: {error}", file=sys.stderr, flush=True)
            continue  # the engine asks again
        if pid == 0:
            supervisor_process(request["dir"], close=(requests.fileno(), *inherited))


def supervisor_process(folder: str, *, close: tuple[int, ...]) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for fd in close:
            os.close(fd)
        os.setsid()
        supervise(folder)
        code = 0
    except BaseException:
        print(f"supervisor of {folder}:", file=sys.stderr)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def reap_all() -> bool:
    """Whether any child is left."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


# --- exec: one more command in a running instance ---------------------------------------------------------------------


def setns(fd: int) -> None:
    if _libc.setns(fd, 0) != 0:
        number = ctypes.get_errno()
        raise StartError(f"cannot enter the instance's namespaces: {os.strerror(number)}")


def foreign_namespaces(pid: int) -> tuple[list[int], list[int]]:
    """Descriptors of the namespaces of `pid` that differ from ours, in the order in which they can be entered:
    those to enter before the fork (user, pid: a process is born into a pid namespace), and those after it."""

    def different(name: str) -> list[int]:
        fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        same = os.fstat(fd).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino
        return [] if same else [fd]

    mount, inner = different("mnt"), different("user")
    before, after = different("pid"), mount + different("ipc") + different("uts")
    if inner and mount:
        # bubblewrap may nest two user namespaces: the outer owns the mounts, the payload lives in the inner.
        owner = fcntl.ioctl(mount[0], NS_GET_USERNS)
        if os.fstat(owner).st_ino != os.fstat(inner[0]).st_ino:
            return [owner, *before], after + inner
    return inner + before, after


def exec_process(spec: dict[str, Any], namespaces: list[int]) -> NoReturn:
    """The child that becomes the command: privileges down, terminal taken, gone when its parent goes."""
    try:
        reset_signals()
        os.setsid()
        if spec["pty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # what is typed becomes signals, and hanging up ends it
        for fd in namespaces:
            setns(fd)
        if spec["no_new_privs"]:
            prctl(PR_SET_NO_NEW_PRIVS, 1)
            for capability in range(64):
                prctl(PR_CAPBSET_DROP, capability)
        become(spec)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of uid, which clears it
        enter_folder(spec["cwd"])
        run_command(spec["argv"], spec["env"])
    except BaseException as error:
        print(f"cumulo: {error}", file=sys.stderr, flush=True)
    os._exit(127)


def exec_command(spec: dict[str, Any]) -> int:
    """Run it as the spec says; its exit code, or 128 + the signal's number.

    spec: argv, env, cwd, uid, gid, groups, cgroup_dirs, target_pid, pty (stdin is a terminal's slave side),
    no_new_privs, lifeline (fd of a pipe whose other end the caller holds, or null). stdin, stdout and stderr are the
    command's. When it ends, or the lifeline does, so does all it has started: an abandoned terminal leaves nothing.
    """
    join_cgroups(spec["cgroup_dirs"])
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    before, after = foreign_namespaces(spec["target_pid"])
    for fd in before:
        setns(fd)
    wake, wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer)
    pid = os.fork()
    if pid == 0:
        exec_process(spec, after)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    if spec["lifeline"] is not None:
        poll.register(spec["lifeline"], select.POLLIN)
    status = None
    while status is None:
        ready = {fd for fd, _ in poll.poll()}
        if wake in ready:
            os.read(wake, 4096)
        found, ended = os.waitpid(pid, os.WNOHANG)
        status = ended if found else 128 + signal.SIGKILL if spec["lifeline"] in ready else None
    while reap_all():
        for leftover in descendants(os.getpid()):
            send(leftover, signal.SIGKILL)
        time.sleep(0.002)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def main(argv: list[str]) -> int:
    if len(argv) != 3 or argv[1] not in ("spawner", "exec"):
        print("usage: supervisor.py spawner FD | exec FD", file=sys.stderr)
        return 2
    if argv[1] == "spawner":
        spawner(int(argv[2]))
        return 0
    with open(int(argv[2]), encoding="utf-8") as file:
        spec = json.load(file)
    try:
        return exec_command(spec)
    except StartError as error:
        print(f"cumulo: {error}", file=sys.stderr)
        return 126


if __name__ == "__main__":
    sys.exit(main(sys.argv))
