"""The local engine: this machine's own node, or the emulated nodes that stand on it.

`ensure` writes down what is wanted and returns; a worker makes files, folders and stages and asks the spawner for a
supervisor, which from then on needs nobody. `observe` reads the folders. So a restarted engine knows all that the old
one knew, and takes up what it had not finished.
"""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cumulo.domain.check import Check
from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import InstanceSpec, Observation, ObservedInstance
from cumulo.domain.node import Node, Pool
from cumulo.domain.storage import Stored
from cumulo.engines.epoch import EpochFence
from cumulo.engines.local import interpreter, keeping, library
from cumulo.engines.local.checks import examine
from cumulo.engines.local.hardware import EmulatedHardware, Hardware, Held, RealHardware
from cumulo.engines.local.launching import Launcher
from cumulo.engines.local.layout import Layout
from cumulo.engines.local.pace import Pace
from cumulo.engines.local.pulling import Puller
from cumulo.engines.local.starting import Starter
from cumulo.engines.local.streams import open_stream
from cumulo.engines.local.watching import HintSocket, Seen, open_seen, refresh
from cumulo.engines.notice import last_moment, write_notice
from cumulo.engines.protocol import BlobSource, ByteStream, Readings, StreamRequest
from cumulo.node import cgroups, instances
from cumulo.node.files import remove_tree
from cumulo.node.instances import Standing, View
from cumulo.node.spawner import Spawner
from cumulo.node.supervisor import write_atomic


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
        self._pace = Pace()
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
        library.install(self._layout.lib)
        self._starter = Starter(launcher=self._launcher, spawner=self._spawner, changed=self._hint)
        self._seen: dict[str, Seen] = {}
        self._lock = threading.Lock()  # over what is in `_seen`
        self._looking = threading.Lock()  # one look at a time
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
                    for gone in self._seen.keys() - set(ids) - self._starter.at_work():
                        del self._seen[gone]
        return Observation(instances=tuple(told), complete=only is None, as_of=as_of)

    def telemetry(self) -> Readings:
        held = self._held()
        busy = self._pace.busy(held, time.monotonic())
        return Readings(
            devices=self._hardware.readings(held, busy),
            instances=tuple(each.reading(busy[each.spec.instance_id]) for each in held),
        )

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
            self._starter.begin(seen)

    def stop(self, instance_id: str, grace_s: float, epoch: int, preempt_at: float | None = None) -> None:
        folder = self._layout.instance(instance_id)
        with self._lock, _writing(self._layout.root):
            self._fence.check(epoch)
            if (self._layout.ended / instance_id).exists():
                return
            if not self._layout.holds(instance_id):  # it has not come yet, and now never will
                _make_instance(folder, {"cloud_id": self.cloud_id})
            if preempt_at is not None:
                preempt_at, grace_s = self._give_notice(instance_id, preempt_at, grace_s)
            view = instances.request_stop(folder, grace_s=grace_s, preempt_at=preempt_at)
            # A worker that has it now will find the wish.
            if view.standing is Standing.NOT_STARTED and self._starter.withdraw(instance_id):
                self._starter.ask(self._seen.setdefault(instance_id, open_seen(folder)))

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
                self._starter.aside(remove_tree, tmp)

    def stream(self, instance_id: str, request: StreamRequest) -> ByteStream:
        return open_stream(self._layout, instance_id, request)

    def close(self) -> None:
        self._hints.close()
        self._starter.close()
        self._spawner.close()
        self._hardware.close()
        self._cgroups.leave()  # only where nothing runs

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

    def _give_notice(self, instance_id: str, preempt_at: float, grace_s: float) -> tuple[float, float]:
        """Tells an instance when it must have left; (that moment, the seconds until then). Told once, it stays."""
        now, told = time.time(), instances.read_notice(self._layout.instance(instance_id))
        if told is None:
            told = last_moment(preempt_at, grace_s, now)
            write_notice(self._layout.notice(instance_id), told)
        return told, max(0.0, told - now)

    def _look(self, name: str) -> ObservedInstance | None:
        with self._lock:
            seen = self._seen.get(name)
        if seen is None:
            folder = self._layout.instance(name)
            if not (folder / "instance.json").exists():
                return None  # nothing, or what a server left that was killed while it wrote this down
            seen = open_seen(folder)
            with self._lock:
                seen = self._seen.setdefault(name, seen)
        try:
            told = refresh(seen, area=self._layout.area(name), pending=self._starter.pending(name))
        except FileNotFoundError:
            return None  # released at this moment
        if seen.cloud_id == self.cloud_id:
            self._starter.take_up(seen)
        return told

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
        code = "storage_read_only" if error.errno in (errno.EROFS, errno.EACCES) else "storage_full"
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
