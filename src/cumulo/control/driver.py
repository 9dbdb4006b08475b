"""One thread per engine: tells it what the loop decided, and brings back what it observes.

What a crash loses is made good by the next complete observation, since the loop compares and asks again. An engine
that cannot be looked at is `unreachable`, which is not dead: it costs nothing. One that can be looked at but refuses a
command is asked again after the next look; its other commands do not wait for that.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

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


class Stop(NamedTuple):
    """How an instance is to end: with how much grace, or at which moment (epoch seconds) to make room for others."""

    grace_s: float
    preempt_at: float | None = None


@dataclass(slots=True)
class _Work:
    """What there is to do for the engine, by instance id; the newest wish replaces an older one."""

    ensure: dict[str, InstanceSpec] = field(default_factory=dict)
    stop: dict[str, Stop] = field(default_factory=dict)
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
        cloud_id: str,
        report: Callable[[Report], None],
        ship_log: Callable[[Engine, str], None],
        fenced: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.last_look = 0.0  # monotonic seconds of the last look that succeeded
        self._epoch, self._cloud_id = epoch, cloud_id
        self._report, self._ship_log, self._fenced = report, ship_log, fenced
        self._work = _Work()
        self._refused_stops: dict[str, Stop] = {}
        self._full_at = self._quick_at = self._nodes_at = self._rest_until = 0.0  # monotonic; when the next is due
        self._running: set[str] = set()
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
        stop: dict[str, Stop] | None = None,
        release: list[str] | None = None,
        started: list[str] | None = None,
        running: Iterable[str] | None = None,
    ) -> None:
        """Gives the engine work. What has `started` is worth a quick look for progress now and then, until its release.

        `running` are all that have.
        """
        with self._changed:
            self._work.ensure.update((spec.instance_id, spec) for spec in ensure or ())
            self._work.stop.update(stop or {})
            # What is to stop must not start now; what has started or ended must not start twice if it is lost.
            for instance_id in (*(stop or ()), *(release or ()), *(started or ()), *(running or ())):
                self._work.ensure.pop(instance_id, None)
            for instance_id in release or ():
                self._work.stop.pop(instance_id, None)
            self._work.release += release or ()
            if running is not None:
                self._running = set(running)
            self._running.update(started or ())
            self._running.difference_update(release or ())
            self._changed.notify()

    def _loop(self) -> None:
        while self._wait():
            if not self.turn(time.monotonic()):
                return

    def _wait(self) -> bool:
        """Waits until there is something to do or to look at. False when closing."""
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                until = min(self._full_at, self._quick_at) if self._running else self._full_at
                until = min(until, self._rest_until) if self._work else until
                if now >= until:
                    break
                self._changed.wait(until - now)
            gather = bool(self._work.hints) and not (self._work.ensure or self._work.stop)
        if gather:
            time.sleep(GATHER_S)
        return not self._closing

    def turn(self, now: float) -> bool:
        """Does what there is to do, and looks where a look is due at `now`. False once another leader is known."""
        with self._changed:
            work, self._work = self._work, _Work()
        try:
            if now >= self._nodes_at:
                self._report(Report(region=self.engine.name, nodes=self.engine.nodes()))
                self._nodes_at = now + NODES_LOOK_S
            self._do(work)
            if now >= self._full_at:
                self._look(None)
                self._full_at, self._quick_at = now + FULL_LOOK_S, now + QUICK_LOOK_S
                self.ask(stop=self._refused_stops)
                self._refused_stops = {}
            elif work.hints:
                self._look(frozenset(work.hints))
            elif now >= self._quick_at and self._running:
                with self._changed:
                    running = frozenset(self._running)
                self._look(running)
                self._quick_at = now + QUICK_LOOK_S
            self.last_look = now
        except StaleEpoch:
            log.error("another control plane has taken over engine %s; this one stops", self.engine.name)
            self._fenced()
            return False
        except Exception as error:
            log.warning("engine %s does not answer: %s", self.engine.name, error)
            self._full_at = self._quick_at = self._nodes_at = self._rest_until = now + FULL_LOOK_S
            self._report(Report(region=self.engine.name, unreachable=str(error) or type(error).__name__))
            self._put_back(work)
        return True

    def _do(self, work: _Work) -> None:
        """Passes on what is asked. What the engine refuses keeps nothing else from being done."""
        for instance_id in work.release:
            self._reported.discard(instance_id)
            self._try(instance_id, "released", partial(self.engine.release, instance_id, self._epoch))
        for instance_id, spec in work.ensure.items():
            self._try(instance_id, "started", partial(self.engine.ensure, spec, self._epoch))
        for instance_id, how in work.stop.items():
            command = partial(self.engine.stop, instance_id, how.grace_s, self._epoch, how.preempt_at)
            if not self._try(instance_id, "stopped", command):
                self._refused_stops[instance_id] = how
        work.hints.update(work.stop)
        work.release, work.ensure, work.stop = [], {}, {}

    def _try(self, instance_id: str, done: str, command: Callable[[], None]) -> bool:
        """Whether the engine took the command. An instance that was not started is missing, and so asked for again."""
        try:
            command()
        except StaleEpoch:
            raise
        except Exception as error:
            log.warning("%s could not be %s: %s", instance_id, done, error)
            return False
        return True

    def _put_back(self, work: _Work) -> None:
        """What could not be done is still to be done, unless something newer was asked meanwhile."""
        with self._changed:
            for instance_id, spec in work.ensure.items():
                over = instance_id in self._work.stop or instance_id in self._work.release
                if not over and instance_id not in self._running:
                    self._work.ensure.setdefault(instance_id, spec)
            for instance_id, how in work.stop.items():
                if instance_id not in self._work.release:
                    self._work.stop.setdefault(instance_id, how)
            self._work.release = work.release + self._work.release

    def _look(self, only: frozenset[str] | None) -> None:
        seen = self.engine.observe(only)
        for instance in seen.instances:
            ours = instance.cloud_id == self._cloud_id
            if ours and instance.state is InstanceState.ENDED and instance.instance_id not in self._reported:
                self._ship_log(self.engine, instance.instance_id)
                self._reported.add(instance.instance_id)
        if seen.instances or seen.complete:
            self._report(Report(region=self.engine.name, observation=seen))
