"""Instances on their way to a supervisor, and those that an earlier engine or a killed supervisor left on it.

Workers do what takes time. An instance is with at most one of them, and what a server that was killed left undone is
found by the looks of the next one, so nothing here has to be remembered.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import InstanceSpec
from cumulo.domain.lifecycle import InstanceState
from cumulo.engines.local.launching import Launcher
from cumulo.engines.local.watching import Seen
from cumulo.node import instances
from cumulo.node.files import Cancelled
from cumulo.node.instances import ExitRecord, Standing
from cumulo.node.spawner import Spawner
from cumulo.node.supervisor import FORMAT, write_atomic

_log = logging.getLogger(__name__)
_ASK_AGAIN_S: Final = 5.0  # a supervisor that has not shown itself after this long is asked for again


class Starter:
    """Thread-safe. `changed` is told the ids of instances that no supervisor speaks for."""

    def __init__(self, *, launcher: Launcher, spawner: Spawner, changed: Callable[[str], None]) -> None:
        self.launcher = launcher
        self._spawner = spawner
        self._changed = changed
        # Files may take minutes: they must not stand in the way of runs that bring none.
        self._quick = ThreadPoolExecutor(2, thread_name_prefix="launch")
        self._slow = ThreadPoolExecutor(4, thread_name_prefix="pull")
        self._lock = threading.Lock()
        self._pending: dict[str, tuple[InstanceState, Future[None]]] = {}
        self._reaping: set[str] = set()
        self._closing = False

    def pending(self, instance_id: str) -> InstanceState | None:
        """How far it has come with us; None where it is not with us (any more)."""
        found = self._pending.get(instance_id)
        return found[0] if found else None

    def at_work(self) -> set[str]:
        with self._lock:
            return set(self._pending)

    def begin(self, seen: Seen) -> None:
        """Hands the instance to a worker, unless one has it."""
        spec, name = seen.spec, seen.folder.name
        if spec is None:
            return
        state = InstanceState.PULLING if spec.files else InstanceState.PROVISIONING
        pool = self._slow if spec.files or spec.mounts else self._quick
        with self._lock:
            if name not in self._pending and not self._closing:
                self._pending[name] = (state, pool.submit(self._launch, seen, spec))

    def withdraw(self, instance_id: str) -> bool:
        """Takes it back from the queue; False where a worker has it already."""
        with self._lock:
            found = self._pending.get(instance_id)
            if found and not found[1].cancel():
                return False
            self._pending.pop(instance_id, None)
            return True

    def ask(self, seen: Seen) -> None:
        """Asks for its supervisor. Twice is harmless; where a stop is wished for, it only writes the exit record."""
        seen.asked_at = time.monotonic()
        self._spawner.start(seen.folder)

    def take_up(self, seen: Seen) -> None:
        """What an earlier engine, or a supervisor that was killed, left undone."""
        standing, name = seen.view.standing, seen.folder.name
        if standing is Standing.NOT_STARTED and time.monotonic() - seen.asked_at > _ASK_AGAIN_S:
            if seen.spec is None or _stopped(seen.folder):
                self.ask(seen)
            else:
                self.begin(seen)
        elif standing in (Standing.ORPHANED, Standing.LOST_BY_REBOOT):
            with self._lock:
                if name in self._reaping or self._closing:
                    return
                self._reaping.add(name)
                self._slow.submit(self._reap, seen)

    def aside(self, work: Callable[..., Any], *args: Any) -> None:
        """Does something slow that nobody waits for."""
        with self._lock:
            if not self._closing:
                self._slow.submit(work, *args)

    def close(self) -> None:
        """Returns when no worker works; what was begun is taken up by the next engine."""
        with self._lock:
            self._closing = True
        for pool in (self._quick, self._slow):
            pool.shutdown(wait=True, cancel_futures=True)

    def _launch(self, seen: Seen, spec: InstanceSpec) -> None:
        """In a worker: to the supervisor, or to an exit record that says why not."""
        folder = seen.folder
        try:
            if not (_stopped(folder) or _composed(folder)):
                composed = self.launcher.compose(spec, cancelled=lambda: self._closing or _stopped(folder))
                instances.create(self.launcher.layout.root, composed)
            self.ask(seen)
        except Cancelled:
            if not self._closing:
                self.ask(seen)
        except CumuloError as error:
            self._fail(seen, str(error))
        except Exception as error:
            _log.exception("instance %s could not be started", spec.instance_id)
            self._fail(seen, f"the instance could not be started: {error}")
        finally:
            with self._lock:
                self._pending.pop(folder.name, None)

    def _fail(self, seen: Seen, why: str) -> None:
        record = {"version": FORMAT, "ended_at": time.time(), "reason": "start_failed", "message": why}
        try:
            write_atomic(str(seen.folder), "exit.json", record, sync=True)
        except OSError:
            # A full disk: it is remembered here, and tried again after a restart.
            seen.failure = ExitRecord.from_json(record)
            _log.exception("the failure of %s could not be written", seen.folder.name)
        self._changed(seen.folder.name)  # of all else its supervisor tells

    def _reap(self, seen: Seen) -> None:
        try:
            instances.reap_orphan(seen.folder)
        except (TimeoutError, OSError, ValueError):
            _log.exception("what %s left behind could not be ended", seen.folder.name)
        finally:
            with self._lock:
                self._reaping.discard(seen.folder.name)
            self._changed(seen.folder.name)


def _stopped(folder: Path) -> bool:
    return (folder / "stop.json").exists()


def _composed(folder: Path) -> bool:
    """Whether its supervisor's spec is there, and of this boot: cgroups are not what they were before."""
    try:
        written = (folder / "spec.json").stat().st_mtime
    except FileNotFoundError:
        return False
    return written > time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
