"""The control loop: one thread that takes what arrived, works out a step, writes it in one transaction, and acts.

A step never half happens. What it changes of the picture in memory and what it writes are the same; if the write fails
the picture is thrown away and read again, and everybody who asked for something is told so.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from cumulo.control.absence import Absences
from cumulo.control.driver import EngineDriver, Report
from cumulo.control.histogram import Histogram
from cumulo.control.live import LiveInstance, LiveRun, Picture, load
from cumulo.control.nodes import NodeWatch
from cumulo.control.observing import observe, observe_progress
from cumulo.control.requests import Inbox, Mail, Wish
from cumulo.control.scheduling import Rates, place_waiting, specs_for
from cumulo.control.settling import fail_dependent, settle
from cumulo.control.wanting import grant
from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import Observation
from cumulo.domain.lifecycle import TERMINAL, RunStatus
from cumulo.placement.world import World
from cumulo.store import picture
from cumulo.store.batch import Batch, Overtaken
from cumulo.store.database import Conflict, Database
from cumulo.store.schema import get_meta

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
# Steps that write are at least this far apart, so that a burst is a few transactions; one that comes alone waits not.
BETWEEN_WRITES_S: Final = 0.01
# After a failed write (a full disk, a database that does not answer) the loop waits this long before it tries again.
PAUSE_S: Final = 1.0


class ControlLoop:
    """Drives what is observed to what is wanted. `changed` is called after every step that wrote something."""

    def __init__(
        self,
        db: Database,
        drivers: dict[str, EngineDriver],
        inbox: Inbox,
        *,
        cloud_id: str,
        epoch: int,
        rates: Rates,
        clock: Callable[[], float],
        changed: Callable[[], None],
        watch: Callable[[Picture], None],
    ) -> None:
        self.seen = Picture()
        self.ready = threading.Event()
        self.trouble = ""  # why the last step failed, for people; empty when it did not
        self.latencies = Histogram()  # seconds from accepted to placed
        self.last_step = 0.0  # monotonic
        self.capacity = World()  # the nodes as if nothing of them were held; never changed, only replaced
        self._wrote_at = 0.0  # monotonic
        self._db, self._drivers, self._inbox = db, drivers, inbox
        self._cloud_id, self._epoch, self._rates, self._clock = cloud_id, epoch, rates, clock
        self._changed, self._watch = changed, watch
        self.absences = Absences(db, drivers, cloud_id=cloud_id, opened_at=clock())
        self._nodes = NodeWatch(db, drivers)
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._fenced = False

    def start(self) -> None:
        self._load()
        self._thread.start()

    def close(self) -> None:
        self._inbox.close()
        self._thread.join(timeout=10)

    def fence(self) -> None:
        """Another control plane has taken over: this one changes nothing any more."""
        self._fenced = True
        self.trouble = "another control plane has taken over this cloud; this server only answers questions now"

    def _load(self) -> None:
        with self._db.read() as tx:
            self.seen = load(tx)
        self._tend_engines()

    def _run(self) -> None:
        stale = False
        while True:
            time.sleep(max(0.0, self._wrote_at + BETWEEN_WRITES_S - time.monotonic()))
            mail = self._inbox.take(self._patience())
            if mail.closing:
                return
            try:
                if stale:
                    self._load()
                    mail.runs.clear()
                    stale = False
                self._step(mail)
                self.trouble = self.trouble if self._fenced else ""
            except (Overtaken, Conflict):
                stale = True
                self._again(mail)
            except Exception as error:
                stale = True
                self.trouble = str(error)
                log.error("a step of the control loop failed: %s", error, exc_info=not isinstance(error, CumuloError))
                self._refuse(mail, error)
                time.sleep(PAUSE_S)
            self.last_step = time.monotonic()

    def _patience(self) -> float:
        """How long nothing can happen by itself: until the next retry, at most a tick."""
        soonest = TICK_S
        now = self._clock()
        for run in self.seen.runs.values():
            for unit in run.units.values():
                if unit.not_before is not None and not unit.instances:
                    soonest = min(soonest, max(0.0, unit.not_before - now))
        return soonest

    # ---- a step -----------------------------------------------------------------------------------------------------

    def _step(self, mail: Mail) -> None:
        now = self._clock()
        batch = Batch()
        if not self._fenced:
            self._take_in_runs(mail, batch, now)
            answers = [(wish, self._grant(wish, batch, now)) for wish in mail.wishes]
            ended = self._take_in_reports(mail, batch, now)
            settle(self.seen, batch, {instance.run_id for instance in ended}, now)
            placed = place_waiting(self.seen, batch, self._rates, now) if self.ready.is_set() else []
            wrote = self._write(batch)
            self._act(batch, placed, ended)
            if wrote:
                self._changed()
            for wish, error in answers:
                _answer(wish, error)
        else:
            self._refuse(mail, CumuloError("conflict", self.trouble))
        for question in mail.questions:
            try:
                question.answer.set_result(question.ask(self.seen))
            except Exception as error:
                question.answer.set_exception(error)

    def _write(self, batch: Batch) -> bool:
        if not batch:
            return False
        with self._db.write() as tx:
            if self._db.dialect != "sqlite" and int(get_meta(tx, "epoch")) != self._epoch:
                self.fence()
                raise CumuloError("conflict", self.trouble)
            batch.flush(tx)
        self._wrote_at = time.monotonic()
        for row in batch.new_instances.values():
            self.latencies.append(row["placed_at"] - row["accepted_at"])
        return True

    def _take_in_runs(self, mail: Mail, batch: Batch, now: float) -> None:
        if not mail.runs:
            return
        with self._db.read() as tx:
            new = self.seen.add_runs(list(picture.open_runs(tx, mail.runs)))
            waited = {run_id for run in new for run_id in run.waits_for if run_id not in self.seen.runs}
            statuses = picture.run_statuses(tx, waited) if waited else {}
        for run in new:
            self._take_in_dependencies(batch, run, statuses, now)

    def _take_in_dependencies(self, batch: Batch, run: LiveRun, statuses: dict[str, RunStatus], now: float) -> None:
        """A run it comes after may have ended before this one was read."""
        over = {run_id for run_id in run.waits_for if statuses.get(run_id) in TERMINAL}
        failed = [run_id for run_id in sorted(over) if statuses[run_id] is not RunStatus.SUCCEEDED]
        run.waits_for -= over
        if over:
            batch.run(run.id, waits_for=",".join(sorted(run.waits_for)))
        if failed:
            fail_dependent(batch, run, failed[0], statuses[failed[0]], now)
            settle(self.seen, batch, [run.id], now)

    def _grant(self, wish: Wish, batch: Batch, now: float) -> CumuloError | None:
        if wish.run_id not in self.seen.runs:
            with self._db.read() as tx:
                self.seen.add_runs(list(picture.open_runs(tx, [wish.run_id])))
        try:
            grant(self.seen, batch, wish, now)
        except CumuloError as error:
            return error
        return None

    def _take_in_reports(self, mail: Mail, batch: Batch, now: float) -> list[LiveInstance]:
        ended: dict[str, LiveInstance] = {}
        for report in mail.reports:
            if self._nodes.take_in(self.seen, batch, report, now):
                self._lose_expired(batch, ended, now)
            if report.nodes is not None and self._nodes.all_known:
                self._publish_capacity()
                self.ready.set()
            if report.observation is not None:
                self._take_in_observation(report, report.observation, batch, ended, now)
        for instance_id, line in mail.progress.items():
            if instance := self.seen.instances.get(instance_id):
                observe_progress(batch, self.seen.runs[instance.run_id], line, now)
        return list(ended.values())

    def _take_in_observation(
        self, report: Report, observation: Observation, batch: Batch, ended: dict[str, LiveInstance], now: float
    ) -> None:
        for observed in observation.instances:
            instance = self.seen.instances.get(observed.instance_id)
            if instance is not None and observed.cloud_id == self._cloud_id:
                observe(self.seen, batch, instance, observed, now)
                if instance.ended:
                    ended[instance.id] = instance
            elif observed.instance_id not in ended:
                self.absences.unexpected(self.seen, batch, report.region, observed, now)
        over, again = self.absences.missing(self.seen, report.region, observation)
        for instance, taken_for in over:
            observe(self.seen, batch, instance, taken_for, now)
            ended[instance.id] = instance
        if again:
            self._ensure(report.region, again, now)

    def _publish_capacity(self) -> None:
        """For those who ask what could ever fit: an answer that needs no turn in this loop."""
        nodes = {node_id: use.node for node_id, use in self.seen.world.nodes.items()}
        if nodes != {node_id: use.node for node_id, use in self.capacity.nodes.items()}:
            capacity = World()
            for node_id, node in nodes.items():
                capacity.see_node(node_id, node)
            self.capacity = capacity

    def _lose_expired(self, batch: Batch, ended: dict[str, LiveInstance], now: float) -> None:
        for instance, lost in self._nodes.expired(self.seen, now):
            observe(self.seen, batch, instance, lost, now)
            ended[instance.id] = instance

    # ---- after it is written ----------------------------------------------------------------------------------------

    def _act(self, batch: Batch, placed: list[LiveInstance], ended: list[LiveInstance]) -> None:
        """Tells the engines. What a crash would lose here, the next complete observation makes good."""
        stopped = [self.seen.instances.get(key) for key, row in batch.instances.items() if "stop_grace_s" in row]
        released = set(batch.released)
        for region, driver in self._drivers.items():
            starting = [instance for instance in placed if instance.region == region]
            if starting:
                self._ensure(region, starting, self._clock())
            stops = {i.id: i.stop_grace_s or 0.0 for i in stopped if i is not None and i.region == region}
            release = [instance.id for instance in ended if instance.region == region and instance.id in released]
            if stops or release or batch.new_usage:
                driver.ask(stop=stops, release=release, running=self._running(region))
        self.absences.forget(released)
        if released or batch.new_usage:
            self._watch(self.seen)

    def _ensure(self, region: str, instances: list[LiveInstance], now: float) -> None:
        specs = list(specs_for(self.seen, instances, self._cloud_id))
        self.absences.told((spec.instance_id for spec in specs), now)
        self._drivers[region].ask(ensure=specs)

    def _running(self, region: str) -> frozenset[str]:
        return frozenset(i.id for i in self.seen.instances.values() if i.region == region and i.started_at is not None)

    def _tend_engines(self) -> None:
        """After a fresh look at the store: asks again for what has not started yet and for what should end.

        Nothing that has started is asked for again: if its engine has lost it, it is lost, and must not start twice.
        """
        for region, driver in self._drivers.items():
            here = [i for i in self.seen.instances.values() if i.region == region and not i.ended]
            self._ensure(region, [i for i in here if i.stop_reason is None and i.started_at is None], self._clock())
            stops = {i.id: i.stop_grace_s or 0.0 for i in here if i.stop_reason is not None}
            driver.ask(stop=stops, running=self._running(region))
        self._watch(self.seen)

    # ---- when it could not be written -------------------------------------------------------------------------------

    def _again(self, mail: Mail) -> None:
        """Somebody else was first: what was asked is put back and worked out on the new picture."""
        self._inbox.put_back(mail)

    def _refuse(self, mail: Mail, error: Exception) -> None:
        for wish in mail.wishes:
            _answer(wish, error)
        for question in mail.questions:
            if not question.answer.done():
                question.answer.set_exception(error)


def _answer(wish: Wish, error: Exception | None) -> None:
    if wish.answer.done():
        return
    if error is None:
        wish.answer.set_result(None)
    else:
        wish.answer.set_exception(error)
