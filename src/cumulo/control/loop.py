"""The control loop: one thread that takes what arrived, works out a step, writes it in one transaction, and acts.

A step never half happens. What it changes of the picture in memory and what it writes are the same; if the write fails
the picture is thrown away and read again, and everybody who asked for something is told so.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from cumulo.control import pricing, reserving
from cumulo.control.absence import Absences
from cumulo.control.capacity import Capacity
from cumulo.control.deadlines import Deadlines
from cumulo.control.driver import EngineDriver, Report
from cumulo.control.histogram import Histogram
from cumulo.control.learning import MOST_ENDED
from cumulo.control.ledger import Ledger
from cumulo.control.live import LiveInstance, LiveRun, Picture
from cumulo.control.loading import add_runs, load
from cumulo.control.nodes import NodeWatch
from cumulo.control.observing import observe, observe_progress
from cumulo.control.orders import Orders, Watch
from cumulo.control.pacing import Pacing
from cumulo.control.prices import SpotPrices
from cumulo.control.rates import Rates
from cumulo.control.requests import Deed, Inbox, Mail, Question, Wish
from cumulo.control.rules import Rules
from cumulo.control.scheduling import place_waiting
from cumulo.control.settling import fail_dependent, settle
from cumulo.control.wanting import grant
from cumulo.control.yielding import restore
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
        rules: Rules,
        clock: Callable[[], float],
        changed: Callable[[], None],
        watch: Watch,
        deadlines: Deadlines,
    ) -> None:
        self.seen = Picture(rules=rules, ledger=Ledger(rules.policy.half_life_s))
        self.ready = threading.Event()
        self.trouble = ""  # why the last step failed, for people; empty when it did not
        self.latencies = Histogram()  # seconds from accepted to placed
        self.last_step = 0.0  # monotonic
        self.capacity = Capacity(World())
        self._wrote_at = 0.0  # monotonic
        self._db, self._inbox = db, inbox
        self._cloud_id, self._epoch, self._rates, self._clock = cloud_id, epoch, rates, clock
        self._changed = changed
        self.absences = Absences(db, drivers, cloud_id=cloud_id, opened_at=clock())
        self.deadlines = deadlines
        self._orders = Orders(
            drivers, self.absences, cloud_id=cloud_id, clock=clock, watch=watch, hazard=deadlines.hazard
        )
        self._nodes = NodeWatch(drivers)
        self._pacing = Pacing()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._fenced = False
        self._stale = True  # the picture is to be read again before it is used

    def start(self) -> None:
        self.load()
        self._thread.start()

    def close(self) -> None:
        self._inbox.close()
        self._thread.join(timeout=10)
        self.deadlines.close()

    def distrust(self) -> None:
        """Something may be in the store that this loop was not told of: it looks again before its next step."""
        self._stale = True

    def fence(self) -> None:
        """Another control plane has taken over: this one changes nothing any more."""
        self._fenced = True
        self.trouble = "another control plane has taken over this cloud; this server only answers questions now"

    def load(self) -> None:
        """Reads the picture afresh, and asks the engines again for what it says."""
        learning, ledger, rules, now = self.seen.learning, self.seen.ledger, self.seen.rules, self._clock()
        prices = SpotPrices()
        with self._db.read() as tx:
            self.seen = load(tx, rules)
            if not learning.past.durations.runs:
                learning.remember(picture.ended_attempts(tx, MOST_ENDED))
            ledger.restore(tx, now)
            prices.restore(tx, self._rates)
            self.deadlines.restore(tx, self.seen)
        self.seen.learning, self.seen.ledger, self.seen.prices = learning, ledger, prices
        restore(self.seen, now)
        self._stale = False
        self._pacing = Pacing()
        self.absences.restore(self.seen)
        self._orders.give_anew(self.seen)

    def _run(self) -> None:
        while True:
            time.sleep(max(0.0, self._wrote_at + BETWEEN_WRITES_S - time.monotonic()))
            mail = self._inbox.take(self._patience())
            if mail.closing:
                self._refuse(mail, CumuloError("unreachable", "the server is stopping"))
                return
            if not self.step(mail):
                time.sleep(PAUSE_S)

    def step(self, mail: Mail) -> bool:
        """Works through what arrived. False if it could not be written; the next one then begins with a new picture."""
        try:
            if self._stale:
                self.load()
                mail.runs.clear()
            self._step(mail)
            self.trouble = self.trouble if self._fenced else ""
        except (Overtaken, Conflict):
            self._stale = True
            self._inbox.put_back(mail)
        except Exception as error:
            self._stale = True
            self.trouble = self.trouble if self._fenced else str(error) or type(error).__name__
            log.error("a step of the control loop failed: %s", error, exc_info=not isinstance(error, CumuloError))
            self._refuse(mail, error)
            return False
        finally:
            self.last_step = time.monotonic()
        return True

    def _patience(self) -> float:
        """How long nothing can happen by itself: until the next retry, at most a tick."""
        now = self._clock()
        soonest = min(TICK_S, self._pacing.wait(now) or TICK_S)
        for run in self.seen.runs.values():
            if run.spec.retry is None:
                continue
            for unit in run.units.values():
                if unit.not_before is not None and not unit.instances:
                    soonest = min(soonest, max(0.0, unit.not_before - now))
        return soonest

    # ---- a step -----------------------------------------------------------------------------------------------------

    def _step(self, mail: Mail) -> None:
        now = self._clock()
        batch = Batch()
        if not self._fenced:
            self.seen.ledger.sample(self.seen.world, now)
            if mail.runs:
                self._take_in_runs(mail.runs, batch, now)
            answers = [(wish, self._grant(wish, batch, now)) for wish in mail.wishes if not wish.answer.cancelled()]
            done = [(deed, *self._do(deed, batch, now)) for deed in mail.deeds if not deed.answer.cancelled()]
            ended = self._take_in_reports(mail, batch, now)
            for instance in ended:
                self.seen.learning.ended(instance, self.seen.runs[instance.run_id])
                self.deadlines.ended(instance, self.seen.runs[instance.run_id])
            settle(self.seen, batch, {instance.run_id for instance in ended}, now)
            steered = self.deadlines.steer(self.seen, batch, self._rates, now)
            if mail.runs or mail.wishes or ended or batch.nodes or steered:
                self._pacing.changed()
            passed = reserving.pass_time(self.seen, batch, self._rates, now)
            if pricing.look(self.seen, batch, self._rates, now) or passed or mail.deeds:
                self._pacing.changed()
            placed = self._place(batch, now)
            wrote = self._write(batch)
            self._orders.give(self.seen, batch, placed, ended)
            if wrote:
                self._changed()
            for wish, error in answers:
                _answer(wish.answer, None, error)
            for deed, outcome, error in done:
                _answer(deed.answer, outcome, error)
        else:
            self._refuse_asked(mail, CumuloError("conflict", self.trouble))
        for question in mail.questions:
            self._tell(question)

    def _place(self, batch: Batch, now: float) -> list[LiveInstance]:
        if not self.ready.is_set() or self._pacing.wait(now):
            return []
        events = len(batch.events)
        began = self._clock()
        placed = place_waiting(self.seen, batch, self._rates, now)
        self._pacing.passed(began, self._clock(), did=len(batch.events) > events)
        self.deadlines.passed(self.seen, placed, now)
        for instance in placed:
            self.seen.learning.placed((instance.run_id, instance.unit, instance.attempt), now)
        return placed

    def _tell(self, question: Question) -> None:
        if question.answer.done():  # nobody waits for it any more
            return
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
        self.absences.written()
        for row in batch.new_instances.values():
            if row["attempt"] == 1 and row["rank"] == 0:
                self.latencies.append(row["placed_at"] - row["accepted_at"])
        return True

    def _take_in_runs(self, run_ids: list[str], batch: Batch, now: float) -> None:
        with self._db.read() as tx:
            new = add_runs(self.seen, picture.open_runs(tx, run_ids))
            waited = {run_id for run in new for run_id in run.waits_for if run_id not in self.seen.runs}
            statuses = picture.run_statuses(tx, waited) if waited else {}
        for run in new:
            self.seen.learning.accepted(run)
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
        if wish.run_id not in self.seen.runs and wish.run_id not in batch.runs:  # there once it has ended in this step
            self._take_in_runs([wish.run_id], batch, now)
        try:
            grant(self.seen, batch, wish, now)
        except CumuloError as error:
            return error
        return None

    def _do(self, deed: Deed, batch: Batch, now: float) -> tuple[Any, CumuloError | None]:
        """Its outcome, or why it can't be done; then it must have changed nothing."""
        try:
            return deed.do(self.seen, batch, now), None
        except CumuloError as error:
            return None, error

    def _take_in_reports(self, mail: Mail, batch: Batch, now: float) -> list[LiveInstance]:
        ended: dict[str, LiveInstance] = {}
        for report in mail.reports:
            self._nodes.take_in(self.seen, batch, report, now)
            self.absences.restore(self.seen)
            self._lose_expired(batch, ended, now)
            if report.observation is not None:
                self._take_in_observation(report, report.observation, batch, ended, now)
            if self._nodes.all_known and (report.nodes is not None or not self.ready.is_set()):
                self._publish_capacity()
                self.ready.set()
        for instance_id, line in mail.progress.items():
            if instance := self.seen.instances.get(instance_id):
                observe_progress(batch, self.seen.runs[instance.run_id], line, now)
        return list(ended.values())

    def _take_in_observation(
        self, report: Report, observation: Observation, batch: Batch, ended: dict[str, LiveInstance], now: float
    ) -> None:
        self.absences.sighted(self.seen, observation)
        if stops := self.absences.unstopped(self.seen, observation):
            self._orders.stop(report.region, stops)
        for observed in observation.instances:
            instance = self.seen.instances.get(observed.instance_id)
            if instance is not None and observed.cloud_id == self._cloud_id:
                observe(self.seen, batch, instance, observed, now)
                if instance.ended:
                    ended[instance.id] = instance
            elif observed.instance_id not in ended:
                self.absences.unexpected(self.seen, batch, report.region, observed, observation.as_of, now)
        over, again = self.absences.missing(self.seen, report.region, observation)
        for instance, taken_for in over:
            observe(self.seen, batch, instance, taken_for, now)
            ended[instance.id] = instance
        self.absences.restore(self.seen)  # what leaks hold may have been held by what has just ended
        if again:
            self._orders.start(self.seen, report.region, again)

    def _publish_capacity(self) -> None:
        """For those who ask what could ever fit: an answer that needs no turn in this loop."""
        nodes = {node_id: use.node for node_id, use in self.seen.world.nodes.items()}
        if nodes != {node_id: use.node for node_id, use in self.capacity.world.nodes.items()}:
            world = World(may_change_mode=self.seen.rules.change_sharing_mode)
            for node_id, node in nodes.items():
                world.see_node(node_id, node)
            self.capacity = Capacity(world)

    def _lose_expired(self, batch: Batch, ended: dict[str, LiveInstance], now: float) -> None:
        for instance, lost in self._nodes.expired(self.seen, now):
            observe(self.seen, batch, instance, lost, now)
            ended[instance.id] = instance

    def _refuse_asked(self, mail: Mail, error: Exception) -> None:
        for wish in mail.wishes:
            _answer(wish.answer, None, error)
        for deed in mail.deeds:
            _answer(deed.answer, None, error)

    def _refuse(self, mail: Mail, error: Exception) -> None:
        self._refuse_asked(mail, error)
        for question in mail.questions:
            if not question.answer.done():
                question.answer.set_exception(error)


def _answer(answer: Future[Any], outcome: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(outcome)
    else:
        answer.set_exception(error)
