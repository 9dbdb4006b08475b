"""What is there: the instances' folders read cheaply and told in the domain's words.

A look costs a few microseconds an instance, so that it can be taken often: what has ended is remembered, what lives is
re-read only when its files have changed, and paths are joined as text, which takes a sixth of what `Path` takes. A
datagram from a supervisor says that it is worth looking; nothing depends on its arrival.
"""

import contextlib
import json
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cumulo.domain.instance import InstanceSpec, ObservedInstance
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.node.instances import ExitRecord, Standing, State, View, lock_holder, look

_PHASES: Final = {
    "preparing": InstanceState.PREPARING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
}
_REASONS: Final = {
    "stopped": EndReason.CANCELLED,  # the control plane knows better why it asked
    "timeout": EndReason.TIMEOUT,
    "setup_failed": EndReason.SETUP_FAILED,
    "start_failed": EndReason.START_FAILED,
    "error": EndReason.START_FAILED,
    "supervisor_lost": EndReason.LOST,
    "lost_by_reboot": EndReason.LOST,
}
_PROGRESS_TAIL: Final = 8192


def end_reason(record: ExitRecord) -> EndReason:
    """The domain's word for how it ended."""
    if record.reason != "finished":
        return _REASONS.get(record.reason, EndReason.FAILED)
    if record.exit_code == 0:
        return EndReason.SUCCEEDED
    return EndReason.OUT_OF_MEMORY if record.oom else EndReason.FAILED


def message(record: ExitRecord, spec: InstanceSpec | None) -> str:
    """Why it ended, in words for the person who launched it."""
    if record.message:
        return record.message
    reason = end_reason(record)
    if reason is EndReason.OUT_OF_MEMORY:
        limit = f" of {spec.memory_bytes / 2**30:g} GiB" if spec and spec.memory_bytes else ""
        return f"it used up its memory{limit} and was killed"
    if record.reason == "finished" and record.signal is not None:
        return f"it was killed by {_signal_name(record.signal)}"
    if record.reason == "finished" and record.exit_code:
        return f"it exited with code {record.exit_code}"
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(slots=True)
class Seen:
    """One instance as it was last read. `marks` are what its files looked like then."""

    folder: Path
    cloud_id: str
    spec: InstanceSpec | None
    view: View
    told: ObservedInstance | None = None
    marks: tuple[object, ...] = ()
    progress_mark: tuple[int, int] | None = None
    progress: str | None = None
    checkpoint: str | None = None
    asked_at: float = 0.0  # when a supervisor was last asked for (monotonic)
    failure: ExitRecord | None = None  # where it could not even be written down


def open_seen(folder: Path) -> Seen:
    """Reads what is known of an instance from its folder alone, as after a restart."""
    spec = cloud_id = None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads((folder / "instance.json").read_bytes())
        cloud_id = str(data["cloud_id"])
        spec = InstanceSpec.from_wire(data)
    return Seen(folder=folder, cloud_id=cloud_id or "", spec=spec, view=View(standing=Standing.NOT_STARTED))


def refresh(seen: Seen, *, area: Path, pending: InstanceState | None) -> ObservedInstance:
    """Looks again, as little as needed. `pending` is what the engine itself does with it before its supervisor."""
    if seen.told is not None and seen.told.state is InstanceState.ENDED:
        return seen.told
    if seen.failure is not None:
        seen.view = View(standing=Standing.ENDED, exit=seen.failure)
        seen.told = _tell(seen, None)
        return seen.told
    folder = seen.folder
    marks = (_mark(f"{folder}/state.json"), _mark(f"{folder}/exit.json"), pending)
    # A supervisor that was killed leaves no trace in a file: its lock must be looked at each time.
    if marks != seen.marks or seen.told is None or seen.view.standing is not Standing.ALIVE or not lock_holder(folder):
        seen.view = look(folder)
        seen.marks = marks
        seen.told = _tell(seen, pending)
    log = _mark(f"{folder}/log")
    _read_progress(seen, f"{area}/progress")
    told = seen.told
    size = log[1] if log else 0
    if (size, seen.progress, seen.checkpoint) != (told.log_bytes, told.progress, told.checkpoint):
        told = seen.told = replace(told, log_bytes=size, progress=seen.progress, checkpoint=seen.checkpoint)
    return told


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def _tell(seen: Seen, pending: InstanceState | None) -> ObservedInstance:
    view, spec = seen.view, seen.spec
    base = ObservedInstance(
        instance_id=seen.folder.name,
        cloud_id=seen.cloud_id,
        state=InstanceState.PROVISIONING,
        node=spec.node if spec else "",
        started_at=view.state.started_at if view.state else None,
        slices=spec.slices if spec else None,  # a store that forgot it must learn what it holds
    )
    if view.exit:
        return _tell_end(base, view.exit, spec)
    prepares = bool(spec and (spec.setup or spec.requirements))
    return replace(base, state=_state(view.standing, view.state, pending, prepares=prepares))


def _state(standing: Standing, state: State | None, pending: InstanceState | None, *, prepares: bool) -> InstanceState:
    if standing is Standing.NOT_STARTED or state is None:
        return pending or InstanceState.PROVISIONING
    if standing is not Standing.ALIVE:
        return InstanceState.STOPPING  # its supervisor is gone; what it left behind is being ended
    if state.phase == "preparing" and not prepares:
        return pending or InstanceState.PROVISIONING  # the supervisor's first word, before the run's process is there
    return _PHASES[state.phase]


def _tell_end(base: ObservedInstance, record: ExitRecord, spec: InstanceSpec | None) -> ObservedInstance:
    return replace(
        base,
        state=InstanceState.ENDED,
        started_at=record.started_at,
        ended_at=record.ended_at,
        exit_code=record.exit_code,
        signal=record.signal,
        reason=end_reason(record),
        message=message(record, spec),
        max_memory_bytes=record.max_memory_bytes,
        cpu_seconds=record.cpu_seconds,
    )


def _read_progress(seen: Seen, path: str) -> None:
    """The last complete line, and the last that tells of saved work.

    The file is the user's, who may have put anything there: a link, a pipe, a gigabyte.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        info = os.fstat(fd)
        mark = (info.st_mtime_ns, info.st_size)
        if not stat.S_ISREG(info.st_mode) or mark == seen.progress_mark:
            return
        seen.progress_mark = mark
        tail = os.pread(fd, _PROGRESS_TAIL, max(0, info.st_size - _PROGRESS_TAIL))
    finally:
        os.close(fd)
    lines = tail.rpartition(b"\n")[0].splitlines()
    if lines:
        seen.progress = lines[-1].decode(errors="replace")
        saved = next((line for line in reversed(lines) if b'"checkpoint"' in line), None)
        seen.checkpoint = saved.decode(errors="replace") if saved else seen.checkpoint


class HintSocket:
    """Where supervisors say that something changed. `path` is None where no socket can be had; then nobody hints."""

    def __init__(self, path: Path, heard: Callable[[str], None]) -> None:
        self._heard = heard
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._closed = False
        self.path: str | None = str(path)
        try:
            path.unlink(missing_ok=True)
            self._socket.bind(str(path))
            os.chmod(path, 0o600)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        except OSError:  # a path of more than 107 bytes, most likely
            self.path = None
            self._socket.close()
            return
        self._thread = threading.Thread(target=self._listen, name="instance-hints", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._closed:
            data = self._socket.recv(512)
            if data and not self._closed:
                self._heard(data.decode(errors="replace"))

    def close(self) -> None:
        if self.path is None or self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", self.path)
        self._thread.join(timeout=5)
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)
