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
reserve      some allocated kilobytes; exit.json is written into them and takes their place, so it fits a full disk
state.json   version, boot_id, pid, pid_start (ticks, /proc/PID/stat field 22), phase (preparing, running, stopping),
             payload_pid (host pid of the running stage's process, also inside a sandbox), payload_start, started_at
             (when that process exists), started_boot (CLOCK_BOOTTIME then), stages {name: when begun}
stop.json    by the engine: {grace_s, reason, preempt_at}; then it sends SIGTERM. A missed signal is harmless: the file
             is read before each stage. There before the start, nothing starts: a stopped id never starts.
             preempt_at (epoch seconds, or null) is when an instance that makes room for others must have left, as its
             notice file tells it: kept for the engine, which tells it once; the grace ends then
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
import functools
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

TYPE_CHECKING = False  # as a type checker reads it; at run time neither module is worth its pages in every fork
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

FORMAT = 1
LINGER_S = 0.3
LEFTOVER_GRACE_S = 2.0
STATUS_FD, REPORT_FD = 3, 4
RESERVE_BYTES = 16384
PIPE_BYTES, READ_BYTES = 1 << 20, 1 << 16
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL_PATIENCE_S = 3600.0
NEVER = float("inf")
# Signals that end a process by default. bubblewrap turns them into 128 + n, and this is how we turn them back.
DEADLY = frozenset({*range(1, 17), *range(24, 28), 29, 30, 31})

PR_SET_PDEATHSIG, PR_SET_NAME, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 15, 24, 36, 38
NS_GET_USERNS = 0xB701
libc = ctypes.CDLL(None, use_errno=True)


class StartError(Exception):
    """Something could not be started; the text is for people."""


class Clock:
    """Wall time at the start, boot time from then on. The two sources are arguments so that tests can bend them."""

    def __init__(self, wall: Callable[[], float] = time.time, boot: Callable[[], float] | None = None) -> None:
        self.boot = boot or (lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
        self._offset = wall() - self.boot()

    def now(self) -> float:
        return self.boot() + self._offset


def prctl(option: int, value: int | bytes) -> None:
    """Refusals do not matter: every use of it here is a second fence or a courtesy."""
    libc.prctl(option, value if isinstance(value, bytes) else ctypes.c_ulong(value), 0, 0, 0)


def read_text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while more := os.read(fd, READ_BYTES):
            data += more
        return data.decode(errors="replace")
    finally:
        os.close(fd)


def write_text(path: str, text: str) -> None:
    """To a file that exists, in one write(2), as control files of the kernel want it."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


@functools.cache
def boot_id() -> str:
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def read_json(path: str) -> dict[str, Any] | None:
    """The object in the file; None where there is no file."""
    try:
        loaded: dict[str, Any] = json.loads(read_text(path))
    except FileNotFoundError:
        return None
    return loaded


def write_atomic(
    folder: str, name: str, value: dict[str, Any], *, sync: bool = False, through: str | None = None
) -> None:
    """Replace folder/name. With `sync` it is on the disk, name and all, on return. OSError leaves the old file.

    The new content is written into the file `through` first, which may exist and so have its room on the disk.
    """
    first = os.path.join(folder, through or name + ".tmp")
    fd = os.open(first, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if through else os.O_TRUNC), 0o600)
    try:
        data = json.dumps(value).encode()
        length = len(data)
        while data:
            data = data[os.write(fd, data) :]
        if through:  # cut at the end, and only where needed: it may wait for the file system's journal
            os.ftruncate(fd, length)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(first, os.path.join(folder, name))
    if sync:
        fd = os.open(folder, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def start_ticks(pid: int) -> int | None:
    """When the process began, in ticks: with the pid this names it beyond doubt. None where it is gone."""
    try:
        return int(read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[19])
    except OSError:
        return None


def living() -> Iterator[tuple[int, int, int]]:
    """Pid, parent and session of every process. Reads all of /proc: for stopping, not for the usual end."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            state, parent, _, session, *_ = read_text(f"/proc/{entry}/stat").rpartition(")")[2].split(maxsplit=4)
            if state != "Z":
                yield int(entry), int(parent), int(session)


def descendants(root: int) -> dict[int, int]:
    """All living processes below `root`, and their parents."""
    children: dict[int, list[int]] = {}
    for pid, parent, _ in living():
        children.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    queue = [root]
    while queue:
        parent_pid = queue.pop()
        queue += children.get(parent_pid, [])
        found |= dict.fromkeys(children.get(parent_pid, []), parent_pid)
    return found


def send(pid: int, number: signal.Signals) -> None:
    # Gone meanwhile, or a setuid program of an ordinary user: nothing we could do.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def notify(spec: dict[str, Any]) -> None:
    """A hint to whoever listens. The files are the truth, so every failure is fine."""
    if spec.get("notify"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(str(spec["instance_id"]).encode(), spec["notify"])


class Signals:
    """The handlers are set once and before any fork, so that no signal ever finds a process without them.

    execve(2) gives handled signals back their defaults; those that are ignored get them here: Python ignores some, and
    so may whoever started the server (nohup; the shell, for what runs in the background).
    """

    terminated = False

    @classmethod
    def handle(cls) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number in signal.valid_signals():
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, cls._on_term)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    @classmethod
    def _on_term(cls, *_: object) -> None:
        cls.terminated = True

    @staticmethod
    def pipe() -> int:
        """The end to read of a pipe into which every handled signal writes, so that poll(2) hears of it."""
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        return reader


def reap(on_end: Callable[[int, int], None] | None = None) -> bool:
    """Collect the dead, telling each pid and status; whether any child, and so any descendant, still lives."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if on_end:
            on_end(pid, status)


class Cgroup:
    """The instance's cgroups: made here, joined by each stage's process, emptied and removed at the end."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.version, self.dirs, self._writes = plan["version"], plan["dirs"], plan["writes"]
        self._memory_dir, self._cpu_dir, self._pids_dir = plan["memory_dir"], plan["cpu_dir"], plan["pids_dir"]

    def create(self) -> None:
        """Raises StartError where a directory or a required limit is refused."""
        for path in self.dirs:
            try:
                os.makedirs(path, exist_ok=True)
            except OSError as error:
                raise StartError(f"cannot make the cgroup {path}: {error.strerror}") from error
        for path, value, required in self._writes:
            try:
                write_text(path, value)
            except OSError as error:
                if required:
                    raise StartError(f"cannot set {path} to {value}: {error.strerror}") from error

    def members(self) -> set[int]:
        found: set[int] = set()
        for top in self.dirs[:1]:  # each process is in all of them, or is still our unfinished child
            for folder, _, _ in os.walk(top) if self.version == 2 else [(top, [], [])]:  # v1 gives none away to the run
                with contextlib.suppress(OSError):
                    found.update(map(int, read_text(f"{folder}/cgroup.procs").split()))
        return found - {0}  # which stands for processes that our pid namespace does not show

    def seal(self) -> None:
        """After a round of killing: kill the rest at once where the kernel can (v2), or see that no fork outruns us."""
        with contextlib.suppress(OSError):  # cgroup.kill is younger (5.14) than v2
            if self.version == 2:
                write_text(f"{self.dirs[0]}/cgroup.kill", "1")
            elif self._pids_dir:
                write_text(f"{self._pids_dir}/pids.max", "0")

    def usage(self) -> tuple[bool, float, int]:
        """(out of memory?, CPU seconds, peak of memory in bytes); our children's as wait(2) tells where uncounted."""
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)
        v2 = self.version == 2
        kills = self._number(self._memory_dir, "memory.events" if v2 else "memory.oom_control", "oom_kill ")
        peak = self._number(self._memory_dir, "memory.peak" if v2 else "memory.max_usage_in_bytes")
        cpu = self._number(self._cpu_dir, "cpu.stat", "usage_usec ") if v2 else None
        cpu = self._number(self._cpu_dir, "cpuacct.usage") if not v2 else cpu
        seconds = waited.ru_utime + waited.ru_stime if cpu is None else cpu / (1e6 if v2 else 1e9)
        return bool(kills), seconds, waited.ru_maxrss * 1024 if peak is None else peak

    def remove(self) -> None:
        """Remove the directories; v1 may answer EBUSY for a moment. What stays is swept by the engine."""
        deadline = time.monotonic() + 1.0
        for top in self.dirs:
            while True:
                try:
                    os.rmdir(top)
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    for folder, _, _ in os.walk(top, topdown=False):  # the run may have made some of its own
                        with contextlib.suppress(OSError):
                            os.rmdir(folder)
                    time.sleep(0.01)

    @staticmethod
    def _number(folder: str | None, name: str, key: str = "") -> int | None:
        with contextlib.suppress(OSError):
            for line in read_text(os.path.join(folder, name)).splitlines() if folder else ():
                if line.startswith(key):
                    return int(line[len(key) :])
        return None


class Log:
    """Moves what the stages write into the log, uninterpreted. A full disk loses output, never the run."""

    def __init__(self, folder: str, *, limit: int | None, clock: Clock) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)  # we keep the writing end: later stages need it
        os.set_blocking(self.reader, False)
        with contextlib.suppress(OSError):  # an ordinary user's pipes may be at their limit; 64 KiB serve as well
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file, self._index = (os.open(os.path.join(folder, name), flags, 0o600) for name in ("log", "log.index"))
        self._limit = NEVER if limit is None else limit
        self._over = False
        self._gap = 0  # bytes lost to a full disk that the log does not tell of yet
        self._clock = clock
        self._indexed_at = -NEVER
        self.size = self.lost = 0
        self.tail = b""

    def drain(self, *, rounds: int = 64) -> None:
        """Take what is there. Bounded, so that a flood of output delays no signal and no deadline."""
        for _ in range(rounds):
            try:
                data = os.read(self.reader, READ_BYTES)
            except BlockingIOError:
                return
            self.tail = data
            self._keep(data)
            if len(data) < READ_BYTES:
                return  # the pipe is empty

    def finish(self) -> None:
        self.drain(rounds=4096)  # all writers are dead; the bound is for one who passed the pipe on to a stranger
        self._keep(b"")

    def _keep(self, data: bytes) -> None:
        room = 0 if self._over else self._limit - self.size
        if len(data) > room:
            notice = b"\n[cumulo: the log has reached its limit of %d bytes, further output is dropped]\n"
            self.lost += len(data) - int(room)
            data = data[: int(room)] + (b"" if self._over else notice % self._limit)
            self._over = True
        if not self._gap or not self._append(b"\n[cumulo: %d bytes of output lost: the disk was full]\n" % self._gap):
            self._gap = 0
            missed = self._append(data)
        else:
            missed = len(data)
        self._gap += missed
        self.lost += missed

    def _append(self, data: bytes) -> int:
        """How many bytes of it could not be written."""
        now = self._clock.now()
        with contextlib.suppress(OSError):
            if data and now >= self._indexed_at + 1:
                os.write(self._index, struct.pack("=Qd", self.size, now))
                self._indexed_at = now
            while data:
                written = os.write(self._file, data)
                self.size += written
                data = data[written:]
        return len(data)


def become(spec: dict[str, Any]) -> None:
    """Take the spec's groups, gid and uid, for good. Raises StartError where that fails or could be undone."""
    uid, gid = spec["uid"], spec["gid"]
    if uid is None:
        return
    try:
        os.setgroups(spec["groups"])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise StartError(f"cannot become uid {uid}: {error.strerror}") from error
    with contextlib.suppress(OSError):
        if uid != 0:
            os.setuid(0)
            raise StartError(f"privileges could be regained after becoming uid {uid}")


def join_cgroups(dirs: list[str]) -> None:
    """For a process of one thread: in v1 a thread moves at once, a process waits milliseconds for all other CPUs."""
    for path in dirs:
        try:
            write_text(f"{path}/tasks" if os.path.exists(f"{path}/tasks") else f"{path}/cgroup.procs", "0")
        except OSError as error:
            raise StartError(f"cannot join the cgroup {path}: {error.strerror}") from error


def enter_folder(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        who = f" as uid {os.geteuid()}" if error.errno == errno.EACCES else ""
        raise StartError(f"cannot enter the working folder {path}{who}: {error.strerror}") from error


def run_command(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Like execvp(3), but nothing is imported here: our own library may be out of the new user's reach."""
    name = argv[0]
    path = env.get("PATH", os.defpath).split(":")
    failure: OSError | None = None
    for candidate in [name] if "/" in name else [f"{folder or '.'}/{name}" for folder in path]:
        try:
            os.execve(candidate, argv, env)  # noqa: S606 (no shell is the point)
        except OSError as error:
            if os.path.exists(candidate):
                failure = error
                if error.errno != errno.EACCES:
                    break
    if failure is None:
        raise StartError(f"command not found: {name}")
    reason = failure.strerror
    if failure.errno == errno.ENOENT:
        reason = "the interpreter that its first line names is missing"
    elif failure.errno == errno.ENOEXEC:
        reason = "it is neither a program nor a script that begins with #!"
    raise StartError(f"cannot run {name}: {reason}") from failure


def input_of(stage: dict[str, Any]) -> int:
    if stage["stdin"] is None:
        return os.open("/dev/null", os.O_RDONLY)
    fd = os.memfd_create("stdin")
    os.write(fd, stage["stdin"].encode(errors="surrogateescape"))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def stage_process(spec: dict[str, Any], stage: dict[str, Any], *, output: int, status: int, report: int) -> NoReturn:
    """The forked child's way to the command. Its fds: stdin, output, output and, with json_status, the two."""
    output, status, report = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16) for fd in (output, status, report))
    try:
        os.setsid()
        os.dup2(input_of(stage), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        join_cgroups(spec["cgroup"]["dirs"])
        for name, (soft, hard) in spec["rlimits"].items():
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(getattr(resource, name), (soft, hard))
        if spec["umask"] is not None:
            os.umask(spec["umask"])
        if stage["drop"]:
            become(spec)
        if stage["json_status"]:
            os.dup2(status, STATUS_FD)
            os.dup2(report, REPORT_FD)
        else:
            enter_folder(stage["cwd"])
        run_command(stage["argv"], stage["env"])
    except BaseException as error:
        os.write(report, f"failed {error}\n".encode())
    os._exit(127)


class Stage:
    """One stage's process as the supervisor sees it: whether it really started, and how it ended."""

    def __init__(self, spec: dict[str, Any], stage: dict[str, Any], *, output: int) -> None:
        self.name: str = stage["name"]
        self.started_pid: int | None = None  # of the command itself, also inside a sandbox
        self.noticed = False  # that it has started
        self.failure: str | None = None
        self.status: int | None = None  # of waitpid, once it has ended
        self._sandboxed: bool = stage["json_status"]
        self._told: dict[str, int] = {}  # by bubblewrap: "child-pid" is its process 1 inside, "exit-code" at the end
        self._text = b""
        self.report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.report.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # tells the sender's pid out here
        self.report.setblocking(False)
        self.reading = True
        self._json, json_theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._json, False)
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
            if data.startswith(b"failed "):
                self.failure = data[7:].decode(errors="replace").strip()
            elif data.startswith(b"started"):
                self.started_pid = struct.unpack("=3i", ancillary[0][2])[0]
            self.reading = bool(data)
        if not self._sandboxed and not self.failure:
            self.started_pid = self.pid

    def own_processes(self) -> set[int]:
        """bubblewrap's own two, which must not be asked to end before what runs inside has."""
        self._read_json()
        return {self.pid, self._told.get("child-pid", self.pid)} if self._sandboxed else set()

    def result(self) -> tuple[int | None, int | None]:
        """(exit code, signal) of the command, one of them None; both None where it never started."""
        self._read_json()
        status, code = self.status or 0, self._told.get("exit-code")
        if self.started_pid is None:
            return None, None
        if code is not None:
            return (None, code - 128) if code - 128 in DEADLY else (code, None)
        return (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)

    def _read_json(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._text += os.read(self._json, 65536)
        *lines, self._text = self._text.split(b"\n")
        for line in filter(None, lines):
            self._told |= json.loads(line)


class Supervisor:
    """Drives one instance from its spec to its exit record."""

    def __init__(self, folder: str, spec: dict[str, Any], clock: Clock) -> None:
        self.folder, self.spec, self.clock = folder, spec, clock
        self.cgroup = Cgroup(spec["cgroup"])
        self.log = Log(folder, limit=spec["log_limit_bytes"], clock=clock)
        self.stage: Stage | None = None
        self.cause: str | None = None  # stopped or timeout, once asked to end
        self.message: str | None = None
        self._kill_at = NEVER  # this one and the next on the boot clock
        self._timeout_at = NEVER if spec["max_duration_s"] is None else clock.boot() + spec["max_duration_s"]
        self._asked: set[int] = set()  # who has been sent SIGTERM
        self._wake = Signals.pipe()
        self.state: dict[str, Any] = {"version": FORMAT, "boot_id": boot_id(), "phase": "preparing", "stages": {}}
        self.state |= {"pid": os.getpid(), "pid_start": start_ticks(os.getpid())}
        self.state |= dict.fromkeys(("payload_pid", "payload_start", "started_at", "started_boot"))

    def run(self) -> dict[str, Any]:
        """All stages; the exit record."""
        try:
            self.cgroup.create()
        except StartError as error:
            return self.ending("start_failed", str(error))
        for stage in self.spec["stages"]:
            self._read_stop()  # a signal that came before its handler stood is not lost
            last = stage is self.spec["stages"][-1]
            reason, message = (self.cause, self.message) if self.cause else self._run_stage(stage, last=last)
            if reason:
                break
        return self.ending(reason or "finished", message)

    def abandon(self) -> None:
        """After a fault of our own: leave nothing running."""
        self._kill_at = 0.0
        self._end_leftovers()

    def ending(self, reason: str, message: str | None) -> dict[str, Any]:
        """The exit record."""
        self.log.finish()
        code, number = self.stage.result() if self.stage else (None, None)
        oom, cpu_seconds, max_memory_bytes = self.cgroup.usage()
        return {
            "version": FORMAT,
            "started_at": self.state["started_at"],
            "ended_at": self.clock.now(),
            "reason": reason,
            "stage": self.stage.name if self.stage else None,
            "message": message,
            "exit_code": code,
            "signal": number,
            "oom": oom,
            "log_bytes": self.log.size,
            "log_lost_bytes": self.log.lost,
            "cpu_seconds": cpu_seconds,
            "max_memory_bytes": max_memory_bytes,
        }

    def _run_stage(self, spec: dict[str, Any], *, last: bool) -> tuple[str | None, str | None]:
        """Reason and message where this stage is the end of it."""
        self.state["stages"][spec["name"]] = self.clock.now()
        self.stage = stage = Stage(self.spec, spec, output=self.log.writer)
        while stage.status is None:
            self._wait()
            self._notice_start(stage, last=last)
        stage.read_report()  # it may have ended before we read of its start
        self._notice_start(stage, last=last)
        self._end_leftovers()
        self.log.drain()
        if self.cause:
            return self.cause, self.message
        if stage.started_pid is None:
            complaint = self.log.tail.decode(errors="replace").strip().splitlines() or ["no sandbox could be set up"]
            return "start_failed" if last else "setup_failed", stage.failure or complaint[-1]
        code, number = stage.result()
        if code == 0 or last:
            return None, None
        return (
            "setup_failed",
            f"setup was killed by signal {number}" if number else f"setup ended with exit code {code}",
        )

    def _notice_start(self, stage: Stage, *, last: bool) -> None:
        pid = stage.started_pid
        if pid is None or stage.noticed:
            return
        stage.noticed = True
        if last:
            self.state |= {"payload_pid": pid, "payload_start": start_ticks(pid)}
            self.state |= {"started_at": self.clock.now(), "started_boot": self.clock.boot()}
            self._save_state("stopping" if self.cause else "running")
        if self.cause:  # asked to end before there was anybody to ask
            self._asked.clear()
            self._terminate()

    def _save_state(self, phase: str) -> None:
        self.state["phase"] = phase
        try:
            write_atomic(self.folder, "state.json", self.state)
        except OSError as error:  # a full disk must not end a run
            if error.errno not in DISK_FULL:
                raise
        notify(self.spec)

    def _wait(self, *, at_most: float = NEVER) -> None:
        """Sleep until something happens: output, a child's death, a signal, a deadline, or `at_most` seconds."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self.log.reader, select.POLLIN)
        stage = self.stage
        if stage and stage.reading:
            poll.register(stage.report, select.POLLIN)
        due = NEVER
        if stage and stage.status is None:
            due = max(0.0, min(self._kill_at, NEVER if self.cause else self._timeout_at) - self.clock.boot())
        pause = min(due, at_most)
        ready = {fd for fd, _ in poll.poll(min(pause, 1e6) * 1000 + 1 if pause < NEVER else None)}
        if self.log.reader in ready:
            self.log.drain()
        if stage and stage.reading and stage.report.fileno() in ready:
            stage.read_report()
        if self._wake in ready:
            os.read(self._wake, 4096)
            reap(self._on_end)
        if Signals.terminated:
            Signals.terminated = False
            self._read_stop(signalled=True)
        self._check_deadlines()

    def _on_end(self, pid: int, status: int) -> None:
        if self.stage and pid == self.stage.pid:
            self.stage.status = status

    def _read_stop(self, *, signalled: bool = False) -> None:
        asked = read_json(os.path.join(self.folder, "stop.json"))
        if asked is not None:
            self._begin_end("stopped", grace=asked["grace_s"], message=asked["reason"])
        elif signalled:
            text = "the supervisor was sent SIGTERM by no request of the engine (is the machine shutting down?)"
            self._begin_end("stopped", grace=self.spec["grace_s"], message=text)

    def _check_deadlines(self) -> None:
        now = self.clock.boot()
        if now >= self._timeout_at and not self.cause:
            text = f"the max_duration of {self.spec['max_duration_s']:g} s is over"
            self._begin_end("timeout", grace=self.spec["grace_s"], message=text)
        if now >= self._kill_at and self.stage and self.stage.status is None:
            self._kill()
            self._kill_at = now + 0.1  # and again, until it is dead

    def _begin_end(self, cause: str, *, grace: float, message: str | None) -> None:
        """Also for a second request, which can only shorten the grace of the first."""
        self._kill_at = min(self._kill_at, self.clock.boot() + grace)
        if not self.cause:
            self.cause, self.message = cause, message
            self._save_state("stopping")
            self._terminate()

    def _terminate(self, *, orphans_only: bool = False) -> None:
        """SIGTERM to everybody, once. Later to new orphans: born of a process that died of it before we saw the child.

        Other new processes are left alone, since they may be doing what somebody wanted done at the end.
        """
        if self.stage:
            own = self.stage.own_processes()
            below = descendants(os.getpid())
            # Parents first: a shell must hear of it before its child dies of it, or it takes that for a failed command.
            for pid in dict.fromkeys([*below, *self.cgroup.members()]):
                if pid in own or pid in self._asked:
                    continue
                if not orphans_only or below.get(pid) in {os.getpid(), *own}:
                    self._asked.add(pid)
                    send(pid, signal.SIGTERM)

    def _kill(self) -> None:
        everybody = self.cgroup.members() | descendants(os.getpid()).keys()  # also those who left the cgroup
        for pid in sorted(everybody):  # parents first, so that none lives to wonder about its child
            send(pid, signal.SIGKILL)
        self.cgroup.seal()

    def _end_leftovers(self) -> None:
        """Return when nothing of the instance lives any more, however long that takes."""
        linger_until = self.clock.boot() + LINGER_S
        kill_at = linger_until + min(self.spec["grace_s"], LEFTOVER_GRACE_S)
        asked = False
        pause = 0.002
        while reap(self._on_end) or self.cgroup.members():
            now = self.clock.boot()
            if now >= min(self._kill_at, NEVER if self.cause else kill_at):
                self._kill()
            elif now >= linger_until and not self.cause and not asked:
                asked = True
                self._terminate()
            elif self.cause:
                self._terminate(orphans_only=True)
            self._wait(at_most=pause)
            pause = min(pause * 1.5, 0.25)


def take_lock(folder: str) -> bool:
    """For life: the descriptor is never closed. A record lock, since children do not inherit it."""
    try:
        fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def reserve_room(folder: str) -> None:
    """Not every file system can; then a full disk only delays the exit record."""
    fd = os.open(os.path.join(folder, "reserve"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):
        os.posix_fallocate(fd, 0, RESERVE_BYTES)
    os.close(fd)


def write_exit(folder: str, record: dict[str, Any]) -> None:
    """Patient with a disk on which not even the reserve could be had. OSError where it cannot be written at all."""
    deadline = time.monotonic() + DISK_FULL_PATIENCE_S
    while True:
        try:
            return write_atomic(folder, "exit.json", record, sync=True, through="reserve")
        except OSError as error:
            if error.errno not in DISK_FULL or time.monotonic() > deadline:
                raise
        time.sleep(1.0)


def supervise(folder: str, clock: Clock | None = None) -> None:
    """The whole life of one supervisor; returns when the exit record stands, or when there was nothing to do.

    OSError where state.json, which forbids a second try, cannot be written: nothing has started, the engine asks again.
    """
    clock = clock or Clock()
    if not take_lock(folder) or any(os.path.exists(os.path.join(folder, n)) for n in ("state.json", "exit.json")):
        return
    stop = read_json(os.path.join(folder, "stop.json"))
    spec = read_json(os.path.join(folder, "spec.json"))
    if stop is not None:
        write_exit(folder, nothing_ran("stopped", stop["reason"], clock))
    elif spec is not None:
        try:
            if spec["version"] != FORMAT:
                raise ValueError(f"its format is {spec['version']}, this supervisor knows {FORMAT}")
            supervisor = Supervisor(folder, spec, clock)
        except (LookupError, TypeError, ValueError) as error:
            write_exit(folder, nothing_ran("error", f"spec.json cannot be used: {error!r}", clock))
        else:
            drive(supervisor)
    notify(spec or {})


def nothing_ran(reason: str, message: str | None, clock: Clock) -> dict[str, Any]:
    return {"version": FORMAT, "started_at": None, "ended_at": clock.now(), "reason": reason, "message": message}


def drive(supervisor: Supervisor) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_NAME, f"cumulo-{supervisor.spec['instance_id']}".encode()[:15] + b"\0")
    reserve_room(supervisor.folder)
    write_atomic(supervisor.folder, "state.json", supervisor.state)
    try:
        record = supervisor.run()
    except Exception as error:
        sys.excepthook(*sys.exc_info())
        supervisor.abandon()
        record = supervisor.ending("error", f"the supervisor failed: {error!r}")
    supervisor.cgroup.remove()
    write_exit(supervisor.folder, record)


def spawner(fd: int) -> None:
    """Fork a supervisor for each request; leave when the socket is closed and the last of them has ended."""
    requests = socket.socket(fileno=fd)
    requests.setblocking(False)
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # where a supervisor is killed, its orphans come to us to be reaped
    Signals.handle()
    wake = Signals.pipe()
    json.loads(json.dumps({"warm": boot_id()}))
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing here makes cycles worth a collection that touches every page
    listening = children = True
    while (listening or children) and not Signals.terminated:
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        if listening:
            poll.register(requests, select.POLLIN)
        ready = {found for found, _ in poll.poll()}
        if wake in ready:
            os.read(wake, 4096)
        if fd in ready:
            listening = take_requests(requests, inherited=(fd, wake))
        children = reap()


def take_requests(requests: socket.socket, *, inherited: tuple[int, ...]) -> bool:
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
        folder = json.loads(data)["dir"]
        try:
            pid = os.fork()
        except OSError as error:  # the engine asks again
            print(f"cannot fork a supervisor for {folder}: {error}", file=sys.stderr, flush=True)
            continue
        if pid == 0:
            supervisor_process(folder, close=inherited)


def supervisor_process(folder: str, *, close: tuple[int, ...]) -> NoReturn:
    code = 1
    try:
        os.close(signal.set_wakeup_fd(-1))
        for fd in close:
            os.close(fd)
        Signals.terminated = False
        os.setsid()
        supervise(folder)
        code = 0
    except BaseException:
        print(f"supervisor of {folder}:", file=sys.stderr)
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


def setns(fd: int) -> None:
    if libc.setns(fd, 0) != 0:
        raise StartError(f"cannot enter the instance's namespaces: {os.strerror(ctypes.get_errno())}")


def foreign_namespaces(pid: int) -> tuple[list[int], list[int]]:
    """Descriptors of the namespaces of `pid` that differ from ours, in the order in which they can be entered:
    those to enter before the fork (user, pid: a process is born into a pid namespace), and those after it."""

    def different(name: str) -> list[int]:
        fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        return [] if os.fstat(fd).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino else [fd]

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
    """Run it as the spec says; its exit code, or 128 + the signal's number. Raises StartError.

    spec: argv, env, cwd, uid, gid, groups, cgroup_dirs, target_pid, pty (stdin is a terminal's slave side),
    no_new_privs, lifeline (fd of a pipe whose other end the caller holds, or null). stdin, stdout and stderr are the
    command's. When it ends, or the lifeline does, so does all it has started: an abandoned terminal leaves nothing
    (but what made itself a new session in a sandbox: that ends with the instance).
    """
    join_cgroups(spec["cgroup_dirs"])
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    before, after = foreign_namespaces(spec["target_pid"])
    for fd in before:
        setns(fd)
    Signals.handle()
    wake = Signals.pipe()
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
        status = ended if found else signal.SIGKILL if spec["lifeline"] in ready else None
    # In a pid namespace orphans go to its process 1 instead of us; there the session is what holds them together.
    while leftovers := {other for other, _, session in living() if session == pid} | descendants(os.getpid()).keys():
        for leftover in leftovers:
            send(leftover, signal.SIGKILL)
        time.sleep(0.002)
        reap()
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


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
    except (StartError, OSError) as error:
        print(f"cumulo: cannot enter the instance: {error}", file=sys.stderr)
        return 126


if __name__ == "__main__":
    sys.exit(main(sys.argv))
