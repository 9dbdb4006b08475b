"""The local engine: this machine's own node, or the emulated nodes that stand on it.

`ensure` writes down what is wanted and returns; a worker makes files, folders and stages and asks the spawner for a
supervisor, which from then on needs nobody. `observe` reads the folders. So a restarted engine knows all that the old
one knew, and takes up what it had not finished.
"""

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cumulo.domain.check import Check
from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import InstanceSpec, Observation, ObservedInstance
from cumulo.domain.lifecycle import InstanceState
from cumulo.domain.node import Node, Pool
from cumulo.domain.storage import Stored
from cumulo.engines.local import interpreter, keeping
from cumulo.engines.local.checks import examine
from cumulo.engines.local.epoch import EpochFence
from cumulo.engines.local.hardware import EmulatedHardware, Hardware, Held, RealHardware
from cumulo.engines.local.launching import Launcher
from cumulo.engines.local.layout import Layout
from cumulo.engines.local.pulling import Puller
from cumulo.engines.local.streams import open_stream
from cumulo.engines.local.watching import HintSocket, Seen, open_seen, refresh
from cumulo.engines.protocol import BlobSource, ByteStream, Readings, StreamRequest
from cumulo.node import cgroups, instances
from cumulo.node.files import Cancelled, remove_tree
from cumulo.node.instances import ExitRecord, Standing, View
from cumulo.node.spawner import Spawner
from cumulo.node.supervisor import write_atomic

_log = logging.getLogger(__name__)
_ASK_AGAIN_S: Final = 5.0  # a supervisor that has not shown itself after this long is asked for again


class LocalEngine:
    """See Engine. `root` is the node's folder, `hidden` is what no sandbox shall see (the server's state folder).

    `emulate` names emulated nodes in place of the real one. Raises EmulationError, or OSError where `root` can't be
    written.
    """

    kind = "local"

    def __init__(
        self,
        *,
        root: Path,
        cloud_id: str,
        blobs: BlobSource,
        emulate: str | None = None,
        hidden: tuple[Path, ...] = (),
        name: str = "local",
        hardware: Hardware | None = None,
    ) -> None:
        self.name = name
        self.cloud_id = cloud_id
        self._hardware = hardware or (EmulatedHardware(emulate) if emulate else RealHardware())
        self._layout = Layout(root.absolute())
        self._layout.make()
        self._fence = EpochFence(self._layout.epoch)
        self._cgroups = cgroups.claim(name=f"cumulo-{cloud_id}")
        self._spawner = Spawner(self._layout.root)
        self._listeners: list[Callable[[str], None]] = []
        self._hints = HintSocket(self._layout.root / "hints", self._hint)
        self._launcher = Launcher(
            layout=self._layout,
            puller=Puller(blobs),
            cgroups=self._cgroups,
            hidden=_with(self._layout.root, hidden),
            notify=self._hints.path,
            device_files=self._hardware.device_files,
        )
        interpreter.link(self._layout.bin, self._launcher.base)
        # Files may take minutes: they must not stand in the way of runs that bring none.
        self._quick = ThreadPoolExecutor(2, thread_name_prefix="launch")
        self._slow = ThreadPoolExecutor(4, thread_name_prefix="pull")
        self._lock = threading.Lock()  # over the three below
        self._seen: dict[str, Seen] = {}
        self._pending: dict[str, tuple[InstanceState, Future[None] | None]] = {}
        self._reaping: set[str] = set()
        self._looking = threading.Lock()  # one look at a time
        self._closing = False
        self._spawner.warm()

    # What is there

    def pools(self) -> tuple[Pool, ...]:
        return ()

    def nodes(self) -> tuple[Node, ...]:
        return self._hardware.nodes(self._pids)

    def observe(self, only: frozenset[str] | None = None) -> Observation:
        as_of = time.time()
        with self._looking:
            ids = list(self._layout.ids()) if only is None else sorted(only)
            told = [found for each in ids if (found := self._look(each)) is not None]
            if only is None:
                with self._lock:
                    for gone in self._seen.keys() - set(ids) - self._pending.keys():
                        del self._seen[gone]
        return Observation(instances=tuple(told), complete=only is None, as_of=as_of)

    def telemetry(self) -> Readings:
        held = self._held()
        return Readings(devices=self._hardware.readings(held), instances=tuple(each.reading for each in held))

    def read_log(self, instance_id: str, offset: int, limit: int = 1 << 20) -> bytes:
        path = self._layout.find(instance_id) / "log"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:  # room is made for what is there, not for the limit: most logs are tiny
            return os.pread(fd, min(limit, max(0, os.fstat(fd).st_size - offset)), offset)
        finally:
            os.close(fd)

    def on_change(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    # What shall be

    def ensure(self, spec: InstanceSpec, epoch: int) -> None:
        name = spec.instance_id
        folder = self._layout.instance(name)
        with self._lock, _writing(self._layout.root):
            self._fence.check(epoch)
            if name in self._seen or self._layout.holds(name):
                return
            _make_instance(folder, spec.to_wire())
            self._seen[name] = seen = _fresh(folder, spec)
            self._begin(seen)

    def stop(self, instance_id: str, grace_s: float, epoch: int) -> None:
        folder = self._layout.instance(instance_id)
        with self._lock, _writing(self._layout.root):
            self._fence.check(epoch)
            if (self._layout.ended / instance_id).exists():
                return
            if not self._layout.holds(instance_id):  # it has not come yet, and now never will
                _make_instance(folder, {"cloud_id": self.cloud_id})
            view = instances.request_stop(folder, grace_s=grace_s)
            if view.standing is not Standing.NOT_STARTED:
                return
            _, future = self._pending.get(instance_id, (None, None))
            if future is not None and not future.cancel():
                return  # the worker that has it will find the wish
            self._pending.pop(instance_id, None)
            self._ask(self._seen.setdefault(instance_id, open_seen(folder)))

    def release(self, instance_id: str, epoch: int) -> None:
        folder = self._layout.instance(instance_id)
        with _writing(self._layout.root):
            self._fence.check(epoch)
        with self._lock:
            seen = self._seen.get(instance_id)
        if seen is None or seen.view.standing is not Standing.ENDED:
            if not folder.exists():
                return
            if instances.look(folder).standing is not Standing.ENDED:
                raise CumuloError("conflict", f"the instance {instance_id} has not ended, so it can't be released")
        with self._lock:
            folder.rename(self._layout.ended / instance_id)
            self._seen.pop(instance_id, None)
        tmp = self._layout.area(instance_id) / "tmp"
        with contextlib.suppress(OSError):
            if any(tmp.iterdir()):
                self._slow.submit(remove_tree, tmp)

    def stream(self, instance_id: str, request: StreamRequest) -> ByteStream:
        return open_stream(self._layout, instance_id, request)

    def close(self) -> None:
        self._closing = True
        self._hints.close()
        for pool in (self._quick, self._slow):
            pool.shutdown(wait=True, cancel_futures=True)
        self._spawner.close()
        self._hardware.close()

    # What is to be said about this machine

    def doctor(self) -> tuple[Check, ...]:
        """What works here, what does not, and how to get it."""
        return examine(
            layout=self._layout,
            cgroups=self._cgroups,
            runtimes=self._launcher.runtimes,
            backend=self._hardware.backend,
            base=self._launcher.base,
        )

    def storage(self) -> tuple[Stored, ...]:
        """What the node keeps on its disk, by kind. Reads the whole tree."""
        return keeping.storage(self._layout)

    def sweep(
        self, *, keep_s: float, environments_s: float, active_runs: frozenset[str], dry_run: bool = False
    ) -> tuple[Stored, ...]:
        """Removes what ended more than `keep_s` seconds ago, and environments unused for `environments_s`.

        Nothing of `active_runs` (ids of runs that have not ended, stopped dev runs included) is touched.
        Returns what went, by kind; with `dry_run`, what would.
        """
        return keeping.Sweep(
            layout=self._layout,
            cgroups=self._cgroups,
            keep_s=keep_s,
            environments_s=environments_s,
            active_runs=active_runs,
            dry_run=dry_run,
        ).run()

    # Inside

    def _begin(self, seen: Seen) -> None:
        """Hands an instance to a worker. Called with the lock held."""
        spec = seen.spec
        if spec is None or seen.folder.name in self._pending:
            return
        state = InstanceState.PULLING if spec.files else InstanceState.PROVISIONING
        pool = self._slow if spec.files or spec.mounts else self._quick
        name = seen.folder.name
        self._pending[name] = (state, None)
        self._pending[name] = (state, pool.submit(self._launch, seen, spec))

    def _launch(self, seen: Seen, spec: InstanceSpec) -> None:
        """In a worker: to the supervisor, or to an exit record that says why not."""
        folder = seen.folder
        try:
            if not (_stopped(folder) or _composed(folder)):
                composed = self._launcher.compose(spec, cancelled=lambda: self._closing or _stopped(folder))
                instances.create(self._layout.root, composed)
            self._ask(seen)
        except Cancelled:
            if not self._closing:  # else the next engine takes it up
                self._ask(seen)
        except CumuloError as error:
            self._fail(seen, str(error))
        except Exception as error:
            _log.exception("instance %s could not be started", spec.instance_id)
            self._fail(seen, f"the instance could not be started: {error}")
        finally:
            with self._lock:
                self._pending.pop(folder.name, None)

    def _ask(self, seen: Seen) -> None:
        seen.asked_at = time.monotonic()
        self._spawner.start(seen.folder)

    def _fail(self, seen: Seen, why: str) -> None:
        record = {"version": 1, "ended_at": time.time(), "reason": "start_failed", "message": why}
        try:
            write_atomic(str(seen.folder), "exit.json", record, sync=True)
        except OSError:
            # A full disk: it is remembered here, and tried again after a restart.
            seen.failure = ExitRecord.from_json(record)
            _log.exception("the failure of %s could not be written", seen.folder.name)
        self._hint(seen.folder.name)  # of all else its supervisor tells

    def _look(self, name: str) -> ObservedInstance | None:
        with self._lock:
            seen = self._seen.get(name)
            state, _ = self._pending.get(name, (None, None))
        if seen is None:
            folder = self._layout.instance(name)
            if not (folder / "instance.json").exists():
                return None  # nothing, or what a server left that was killed while it wrote this down
            seen = open_seen(folder)
            with self._lock:
                seen = self._seen.setdefault(name, seen)
        try:
            told = refresh(seen, area=self._layout.area(name), pending=state)
        except FileNotFoundError:
            return None  # released at this moment
        if seen.cloud_id == self.cloud_id:
            self._take_up(seen)
        return told

    def _take_up(self, seen: Seen) -> None:
        """What an earlier engine, or a supervisor that was killed, left undone."""
        standing, name = seen.view.standing, seen.folder.name
        if standing is Standing.NOT_STARTED and time.monotonic() - seen.asked_at > _ASK_AGAIN_S:
            if _stopped(seen.folder):
                self._ask(seen)
            else:
                with self._lock:
                    self._begin(seen)
        elif standing in (Standing.ORPHANED, Standing.LOST_BY_REBOOT):
            with self._lock:
                if name in self._reaping:
                    return
                self._reaping.add(name)
            self._slow.submit(self._reap, seen)

    def _reap(self, seen: Seen) -> None:
        try:
            instances.reap_orphan(seen.folder)
        except (TimeoutError, OSError, ValueError):
            _log.exception("what %s left behind could not be ended", seen.folder.name)
        finally:
            with self._lock:
                self._reaping.discard(seen.folder.name)
            self._hint(seen.folder.name)

    def _held(self) -> tuple[Held, ...]:
        """The living instances with what they use."""
        with self._lock:
            living = [seen for seen in self._seen.values() if seen.spec and seen.view.standing is Standing.ALIVE]
        return tuple(held for seen in living if (held := _held(seen)) is not None)

    def _pids(self) -> set[int]:
        """All processes of living instances."""
        return {pid for held in self._held() for pid in held.pids}

    def _hint(self, instance_id: str) -> None:
        for listener in self._listeners:
            listener(instance_id)


def _with(root: Path, hidden: tuple[Path, ...]) -> tuple[Path, ...]:
    """The node's own folder is hidden too, unless it lies in what is."""
    return hidden if any(folder in root.parents or folder == root for folder in hidden) else (root, *hidden)


@contextlib.contextmanager
def _writing(root: Path) -> Iterator[None]:
    """Tells a disk's refusal as what it is: the caller tries again later."""
    try:
        yield
    except OSError as error:
        code = {errno.EROFS: "storage_read_only", errno.EACCES: "storage_read_only"}.get(
            error.errno or 0, "storage_full"
        )
        raise CumuloError(code, f"the node's folder {root} can't be written: {error.strerror}") from error


def _make_instance(folder: Path, told: Mapping[str, object]) -> None:
    """The folder with what was asked for in it, or neither."""
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        write_atomic(str(folder), "instance.json", dict(told))
    except OSError:
        remove_tree(folder)
        raise


def _fresh(folder: Path, spec: InstanceSpec) -> Seen:
    return Seen(folder=folder, cloud_id=spec.cloud_id, spec=spec, view=View(standing=Standing.NOT_STARTED))


def _stopped(folder: Path) -> bool:
    return (folder / "stop.json").exists()


def _composed(folder: Path) -> bool:
    """Whether its supervisor's spec is there, and of this boot: cgroups are not what they were before."""
    try:
        written = (folder / "spec.json").stat().st_mtime
    except FileNotFoundError:
        return False
    return written > time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _held(seen: Seen) -> Held | None:
    if seen.spec is None:
        return None
    try:
        usage = instances.usage(seen.folder, seen.view)
    except OSError:
        return None  # it ended at this moment
    return Held(
        spec=seen.spec,
        memory_bytes=usage.memory_bytes,
        cpu_seconds=usage.cpu_seconds,
        pids=usage.pids,
        started_at=seen.view.state.started_at if seen.view.state else None,
    )
