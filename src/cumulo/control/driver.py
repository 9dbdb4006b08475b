"""One thread per engine: tells it what the loop decided, and brings back what it observes.

Commands are put in order and never lost in memory; what a crash loses is made good by the next complete observation,
since the loop compares and asks again. An engine that raises is `unreachable`, which is not dead: it costs nothing.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cumulo.domain.instance import InstanceSpec, Observation
from cumulo.domain.lifecycle import InstanceState
from cumulo.domain.node import Node
from cumulo.engines.protocol import Engine, StaleEpoch

log = logging.getLogger(__name__)

FULL_LOOK_S: Final = 2.0
QUICK_LOOK_S: Final = 1.0
NODES_LOOK_S: Final = 5.0
# A hint waits this long for others to arrive, so that a burst is one look and one transaction.
GATHER_S: Final = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one engine has to say: what it saw, its nodes if they were looked at, or that it does not answer."""

    region: str
    observation: Observation | None = None
    nodes: tuple[Node, ...] | None = None
    unreachable: str = ""


@dataclass(slots=True)
class _Work:
    """What there is to do for the engine, by instance id; the newest wish replaces an older one."""

    ensure: dict[str, InstanceSpec] = field(default_factory=dict)
    stop: dict[str, float] = field(default_factory=dict)
    release: list[str] = field(default_factory=list)
    hints: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.ensure or self.stop or self.release or self.hints)


class EngineDriver:
    """Owns the calls to one engine. `report` is called on the driver's thread and must return quickly.

    `ship_log` copies the rest of an ended instance's log to the store; it is called before the end is reported, so that
    whoever learns of the end finds the whole log.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        epoch: int,
        report: Callable[[Report], None],
        ship_log: Callable[[Engine, str], None],
        fenced: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.last_look = 0.0  # monotonic seconds of the last look that succeeded
        self._epoch = epoch
        self._report, self._ship_log, self._fenced = report, ship_log, fenced
        self._work = _Work()
        self._running: frozenset[str] = frozenset()
        self._changed = threading.Condition()
        self._closing = False
        self._reported: set[str] = set()  # ended and reported, not yet released
        self._thread = threading.Thread(target=self._loop, name=f"engine-{engine.name}", daemon=True)

    def start(self) -> None:
        self.engine.on_change(self.hint)
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout=5)

    def hint(self, instance_id: str) -> None:
        """Something may have changed about an instance."""
        with self._changed:
            self._work.hints.add(instance_id)
            self._changed.notify()

    def ask(
        self,
        *,
        ensure: list[InstanceSpec] | None = None,
        stop: dict[str, float] | None = None,
        release: list[str] | None = None,
        running: frozenset[str] | None = None,
    ) -> None:
        """Gives the engine work. `running` are the instances worth a quick look for progress now and then."""
        with self._changed:
            self._work.ensure.update((spec.instance_id, spec) for spec in ensure or ())
            self._work.stop.update(stop or {})
            self._work.release += release or ()
            if running is not None:
                self._running = running
            self._changed.notify()

    def _loop(self) -> None:
        full = quick = nodes = 0.0
        while True:
            work = self._next(min(full, quick if self._running else full))
            if work is None:
                return
            now = time.monotonic()
            try:
                looked_at_nodes = now >= nodes
                if looked_at_nodes:
                    self._report(Report(region=self.engine.name, nodes=self.engine.nodes()))
                    nodes = now + NODES_LOOK_S
                self._do(work)
                if now >= full:
                    self._look(None)
                    full, quick = now + FULL_LOOK_S, now + QUICK_LOOK_S
                elif work.hints:
                    self._look(frozenset(work.hints))
                elif now >= quick and self._running:
                    self._look(self._running)
                    quick = now + QUICK_LOOK_S
                self.last_look = now
            except StaleEpoch:
                log.error("another control plane has taken over engine %s; this one stops", self.engine.name)
                self._fenced()
                return
            except Exception as error:
                log.warning("engine %s does not answer", self.engine.name, exc_info=True)
                full = nodes = now + FULL_LOOK_S
                self._report(Report(region=self.engine.name, unreachable=str(error) or type(error).__name__))
                self._put_back(work)

    def _next(self, until: float) -> _Work | None:
        """Waits for work or until the next look is due; None when closing."""
        with self._changed:
            while not (self._work or self._closing):
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
        if self._closing:
            return None
        if self._work.hints and not (self._work.ensure or self._work.stop):
            time.sleep(GATHER_S)
        with self._changed:
            work, self._work = self._work, _Work()
        return work

    def _do(self, work: _Work) -> None:
        for instance_id in list(work.release):
            self.engine.release(instance_id, self._epoch)
            self._reported.discard(instance_id)
            work.release.remove(instance_id)
        for instance_id in list(work.ensure):
            self.engine.ensure(work.ensure[instance_id], self._epoch)
            del work.ensure[instance_id]
        for instance_id in list(work.stop):
            self.engine.stop(instance_id, work.stop[instance_id], self._epoch)
            work.hints.add(instance_id)
            del work.stop[instance_id]

    def _put_back(self, work: _Work) -> None:
        """What could not be done is still to be done, unless something newer was asked meanwhile."""
        with self._changed:
            for instance_id, spec in work.ensure.items():
                self._work.ensure.setdefault(instance_id, spec)
            for instance_id, grace_s in work.stop.items():
                self._work.stop.setdefault(instance_id, grace_s)
            self._work.release = work.release + self._work.release

    def _look(self, only: frozenset[str] | None) -> None:
        seen = self.engine.observe(only)
        for instance in seen.instances:
            if instance.state is InstanceState.ENDED and instance.instance_id not in self._reported:
                self._ship_log(self.engine, instance.instance_id)
                self._reported.add(instance.instance_id)
        if seen.instances or seen.complete:
            self._report(Report(region=self.engine.name, observation=seen))
