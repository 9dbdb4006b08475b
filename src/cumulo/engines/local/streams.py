"""Streams into an instance: one more command in it, a port, its files."""

import contextlib
import errno
import fcntl
import json
import os
import pty
import select
import socket
import struct
import subprocess
import termios
import threading
from pathlib import Path

from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import InstanceSpec
from cumulo.engines.local.layout import Layout
from cumulo.engines.protocol import ByteStream, ExecRequest, FilesRequest, PortRequest, StreamRequest
from cumulo.node import transfer
from cumulo.node.files import Owner, account, python_command
from cumulo.node.instances import Standing, State, look
from cumulo.node.spawner import supervisor_argv
from cumulo.node.supervisor import read_json

_CONNECT_S = 10.0
_END_OF_INPUT = b"\x04"  # what a terminal takes for it


def open_stream(layout: Layout, instance_id: str, request: StreamRequest) -> ByteStream:
    """Raises KeyError for an unknown instance, CumuloError for what can't be done."""
    folder = layout.find(instance_id)
    if isinstance(request, FilesRequest):
        return _open_files(layout, folder, request)
    view = look(folder)
    if view.standing is not Standing.ALIVE or view.state is None or view.state.payload_pid is None:
        stands = "has ended" if view.standing is Standing.ENDED else "is not running yet"
        raise CumuloError("conflict", f"the instance {instance_id} {stands}")
    if isinstance(request, PortRequest):
        return PortStream(request.port)
    return _open_exec(layout, folder, view.state, request)


# --- one more command -------------------------------------------------------------------------------------------------


def _open_exec(layout: Layout, folder: Path, state: State, request: ExecRequest) -> "ExecStream":
    spec = read_json(str(folder / "spec.json"))
    if spec is None:
        raise KeyError(folder.name)
    stage = spec["stages"][-1]
    env = _environment_of(state.payload_pid, stage["env"])
    terminal = {"TERM": "xterm-256color"} if request.tty else {}
    command = {
        "argv": list(request.argv),
        "env": env | terminal | dict(request.env),
        "cwd": stage["cwd"],
        "uid": spec["uid"],
        "gid": spec["gid"],
        "groups": spec["groups"],
        "cgroup_dirs": spec["cgroup"]["dirs"],
        "target_pid": state.payload_pid,
        "pty": request.tty,
        "no_new_privs": stage["json_status"],
    }
    return ExecStream(layout.root, command, rows=request.rows, columns=request.columns)


def _environment_of(pid: int | None, least: dict[str, str]) -> dict[str, str]:
    """The variables that the run's own process was started with: a sandbox sets them only inside."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return least  # it ends at this moment
    pairs = (entry.decode(errors="surrogateescape").partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    return least | {name: value for name, _, value in pairs}


class ExecStream:
    """A command in a running instance. It ends with this stream: nothing abandoned stays behind."""

    def __init__(self, root: Path, command: dict[str, object], *, rows: int, columns: int) -> None:
        self._exit_code: int | None = None
        self._tty = bool(command["pty"])
        self._reading = threading.Lock()
        self._closed = False
        if self._tty:
            self._ours, theirs = pty.openpty()
            self.resize(rows, columns)
        else:
            # A socket and not two pipes, so that the end of one direction can be told while the other goes on.
            ours, peer = socket.socketpair()
            self._ours, theirs = ours.detach(), peer.detach()
        lifeline, self._lifeline = os.pipe2(os.O_CLOEXEC)
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC)
        spec_fd = os.memfd_create("exec", 0)
        try:
            os.write(spec_fd, json.dumps({**command, "lifeline": lifeline}).encode())
            os.lseek(spec_fd, 0, os.SEEK_SET)
            self._process = subprocess.Popen(
                supervisor_argv(root, "exec", spec_fd),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                pass_fds=(spec_fd, lifeline),
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        finally:
            for fd in (theirs, lifeline, spec_fd):
                os.close(fd)

    def read(self, size: int = 65536) -> bytes:
        with self._reading:
            if self._closed:
                return b""
            ready = select.poll()
            ready.register(self._ours, select.POLLIN)
            ready.register(self._wake, select.POLLIN)
            if any(fd == self._wake for fd, _ in ready.poll()):
                return b""
            try:
                data = os.read(self._ours, size)
            except OSError as error:
                if error.errno not in (errno.EIO, errno.ECONNRESET):  # EIO: nobody holds the terminal any more
                    raise
                data = b""
        if not data:
            self._exit_code = self._process.wait()
        return data

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended; reading tells
            while view and not self._closed:
                view = view[os.write(self._ours, view) :]

    def write_eof(self) -> None:
        if self._tty:
            self.write(_END_OF_INPUT)
        else:
            duplicate = socket.socket(fileno=os.dup(self._ours))
            with duplicate, contextlib.suppress(OSError):
                duplicate.shutdown(socket.SHUT_WR)

    def resize(self, rows: int, columns: int) -> None:
        if self._tty:
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        os.close(self._lifeline)
        os.write(self._waker, b"x")
        with self._reading:
            for fd in (self._ours, self._wake, self._waker):
                os.close(fd)
        threading.Thread(target=self._process.wait, name="exec-reaper", daemon=True).start()

    @property
    def exit_code(self) -> int | None:
        return self._exit_code


# --- a port -----------------------------------------------------------------------------------------------------------


class PortStream:
    """A TCP connection to a port of the instance, which shares this machine's network."""

    exit_code = None

    def __init__(self, port: int) -> None:
        """Raises CumuloError where nothing listens."""
        if not 0 < port < 65536:
            raise CumuloError("invalid_request", f"{port} is no port: 1 to 65535")
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_S)
        except OSError as error:
            raise CumuloError(
                "conflict", f"nothing answers on port {port} of the instance: {error.strerror or error}"
            ) from error
        self._socket.settimeout(None)

    def read(self, size: int = 65536) -> bytes:
        try:
            return self._socket.recv(size)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the other side is gone; reading tells
            self._socket.sendall(data)

    def write_eof(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def resize(self, rows: int, columns: int) -> None:
        """A port has no terminal."""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a reader
        self._socket.close()


# --- files ------------------------------------------------------------------------------------------------------------


def _open_files(layout: Layout, folder: Path, request: FilesRequest) -> "FilesStream":
    data = read_json(str(folder / "instance.json")) or {}
    if "run_id" not in data:
        raise CumuloError("not_found", f"the instance {folder.name} never began, so it has no files")
    spec = InstanceSpec.from_wire(data)
    unit = layout.unit(spec)
    root = layout.workdir(spec) if request.area == "workdir" else unit / request.area
    if not root.is_dir():
        raise CumuloError("not_found", f"the {request.area} of the instance {folder.name} is not there (any more)")
    info = root.stat()
    owner = Owner(info.st_uid, info.st_gid) if os.geteuid() == 0 and info.st_uid != 0 else None
    path = request.path
    if path.startswith("/"):
        # An absolute path as the instance sees it; inside and outside they are the same.
        path = os.path.relpath(path, root)
    return FilesStream(root, path, request.direction, owner)


class FilesStream:
    """A tar, made or unpacked by a process of the instance's user. Each failure is one sentence."""

    def __init__(self, root: Path, path: str, direction: str, owner: Owner | None) -> None:
        """Raises CumuloError where nothing can be sent, as for a path that is not there."""
        spec = {"direction": direction, "root": str(root), "path": path, **account(owner)}
        self._sending = direction == "get"
        self._process = subprocess.Popen(
            [*python_command(Path(transfer.__file__)), json.dumps(spec)],
            stdin=subprocess.DEVNULL if self._sending else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": os.defpath},
            bufsize=0,
        )
        try:
            self._first = self._read(65536) if self._sending else b""
        except CumuloError:
            self.close()
            raise

    def read(self, size: int = 65536) -> bytes:
        """Raises CumuloError where the transfer failed on the way."""
        if self._first:
            data, self._first = self._first[:size], self._first[size:]
            return data
        return self._read(size)

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 (it is a pipe)
        data = self._process.stdout.read(size) or b""
        if not data:
            self._check()
        return data

    def _check(self) -> None:
        assert self._process.stderr is not None  # noqa: S101
        said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        if self._process.wait() != 0:
            raise CumuloError("path_not_allowed", said[-1] if said else "the files could not be transferred")

    def write(self, data: bytes) -> None:
        """Raises CumuloError where the other side has refused what came before."""
        assert self._process.stdin is not None  # noqa: S101
        view = memoryview(data)
        try:
            while view:
                view = view[self._process.stdin.write(view) or 0 :]
        except BrokenPipeError:
            self._check()

    def write_eof(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def resize(self, rows: int, columns: int) -> None:
        """Files have no terminal."""

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout, self._process.stderr):
            if end is not None:
                end.close()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode
