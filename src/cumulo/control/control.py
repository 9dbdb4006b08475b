"""The control plane as the server sees it: submit, plan, want, explain, and the loops behind them."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from cumulo.control import explain, listing, offering, planning, reserving
from cumulo.control.absence import Leak
from cumulo.control.answers import Deadline, Offer, Plan, QueueRow, Why
from cumulo.control.attempts import Attempt, past_text
from cumulo.control.deadlines import Deadlines
from cumulo.control.deadlines_told import check_deadline, deadline_of, told_of
from cumulo.control.deciding import beyond_quota
from cumulo.control.driver import EngineDriver
from cumulo.control.live import Charted, LiveInstance, Picture
from cumulo.control.loop import ControlLoop
from cumulo.control.pricing import check_bid
from cumulo.control.rates import Rates
from cumulo.control.requests import Inbox
from cumulo.control.reserving import Wanted
from cumulo.control.rules import Rules
from cumulo.control.shipping import Shipper, Source
from cumulo.control.submitting import accept, replayed
from cumulo.domain.ask import GpuAsk
from cumulo.domain.check import Check
from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import TERMINAL, EndReason, RunStatus
from cumulo.domain.names import printable
from cumulo.domain.reservation import Reservation
from cumulo.domain.run import RunSpec
from cumulo.engines.protocol import Engine, Readings
from cumulo.market.hazards import shipped_priors
from cumulo.placement.explain import reasons
from cumulo.placement.suggest import suggest
from cumulo.store import views
from cumulo.store.database import Database
from cumulo.store.logs import LogRef, Logs
from cumulo.store.schema import next_epoch

# How long a server that has just started may take to learn what nodes it has.
READY_S = 15.0


class Control:
    """Owns the control loop, a driver for each engine, and the log shipper. Safe to call from many threads."""

    def __init__(
        self,
        *,
        db: Database,
        logs: Logs,
        engines: Mapping[str, Engine],
        cloud_id: str,
        rates: Rates | None = None,
        rules: Rules | None = None,
        clock: Callable[[], float] = time.time,
        inbox: Inbox | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self.engines = dict(engines)
        self._db, self._logs, self._clock = db, logs, clock
        self._rates, self._rules = rates or Rates(), rules or Rules()
        self._inbox = inbox or Inbox()
        self._shipper = Shipper(logs, clock=clock, progress=self._inbox.progress)
        self._seq = 0
        self._tick = threading.Condition()
        with db.write() as tx:
            epoch = next_epoch(tx)
        self.drivers = {
            name: EngineDriver(
                engine,
                epoch=epoch,
                cloud_id=cloud_id,
                report=self._inbox.report,
                ship_log=self._shipper.finish,
                fenced=self._fence,
            )
            for name, engine in self.engines.items()
        }
        self.loop = ControlLoop(
            db,
            self.drivers,
            self._inbox,
            cloud_id=cloud_id,
            epoch=epoch,
            rates=self._rates,
            rules=self._rules,
            clock=clock,
            changed=self._changed,
            watch=self._watch,
            deadlines=deadlines or Deadlines(shipped_priors()),
        )

    def start(self) -> None:
        self.loop.start()
        self._shipper.start()
        for driver in self.drivers.values():
            driver.start()

    def close(self) -> None:
        """Stops the loops. Touches no workload."""
        for driver in self.drivers.values():
            driver.close()
        self.loop.close()
        self._shipper.close()

    @property
    def ready(self) -> bool:
        """Whether every engine has told its nodes, so that placing and planning mean something."""
        return self.loop.ready.is_set()

    # ---- runs -------------------------------------------------------------------------------------------------------

    def submit(
        self, spec: RunSpec, *, account: str, idempotency_key: str | None, fingerprint: str, queue: bool
    ) -> tuple[str, bool]:
        """Accepts a run: (its id, whether it is new). Once this returns the run is in the store.

        Raises CumuloError: unknown_gpu, invalid_run_file (its deadline); unless `queue`, quota_exceeded, unsatisfiable;
        what `submitting.accept` raises.
        """
        if before := replayed(self._db, account=account, key=idempotency_key, fingerprint=fingerprint):
            return before, False
        check_deadline(spec, self._clock())
        self._check(spec, queue)
        try:
            run_id, new = accept(
                self._db, spec, account=account, key=idempotency_key, fingerprint=fingerprint, now=self._clock()
            )
        except Exception as error:
            if not (isinstance(error, CumuloError) and error.kind.http_status < 500):
                self.loop.distrust()  # it may have been written before the answer was lost
            raise
        if new:
            self._inbox.new_run(run_id)
            self._changed()
        return run_id, new

    def _check(self, spec: RunSpec, queue: bool) -> None:
        self._wait_ready()
        capacity = self.loop.capacity
        check_bid(capacity.world, spec, self._rates)
        if not queue and (text := beyond_quota(self._rules.policy, capacity.world, spec.project, spec.ask)):
            raise CumuloError("quota_exceeded", text, hint="ask for less, or pass --queue to wait for a larger quota")
        if capacity.takes(spec.ask):
            return
        explain.check_gpu_names(spec.ask.gpu, capacity.world)
        if queue:
            return
        now = self._clock()
        why = reasons(capacity.world, spec.ask)
        change = suggest(capacity.world, [], planning.as_waiting(spec, now), now=now)
        hint = f"{change.text}, or pass --queue to wait for such a node" if change else "pass --queue to wait for one"
        raise CumuloError("unsatisfiable", f"no node here can ever take it: {why.summary()}", hint=hint)

    def plan(self, spec: RunSpec, *, account: str) -> Plan:
        """What would happen if it were submitted now. Raises CumuloError `unknown_gpu`, `invalid_run_file`."""
        del account  # quotas will want it
        check_deadline(spec, self._clock())
        self._wait_ready()

        def ask(seen: Picture) -> tuple[Plan, Callable[[], Charted] | None]:
            now = self._clock()
            course = self.loop.deadlines.prospect(seen, spec, self._rates, now) if spec.deadline_at else None
            return planning.plan(seen, spec, self._rates, now), course

        asked: tuple[Plan, Callable[[], Charted] | None] = self._ask(ask)
        found, course = asked
        if course is None or spec.deadline_at is None:
            return found
        return replace(found, deadline=told_of(course(), spec.deadline_at, spent_nano=0))

    def want(self, run_id: str, wanted: str, *, grace_s: float | None = None, unit: int | None = None) -> None:
        """Makes a run want to be `running`, `stopped` or `cancelled`; with `unit` (an array index) only that one.

        Returns once the wish is in the store. Raises CumuloError conflict, not_found.
        """
        self._inbox.wish(run_id, wanted, grace_s=grace_s, index=unit)

    # ---- reservations -----------------------------------------------------------------------------------------------

    def reserve(self, wanted: Wanted) -> Reservation:
        """Makes a reservation. Raises CumuloError: what `reserving.reserve` raises."""
        self._wait_ready()
        made: Reservation = self._inbox.deed(
            lambda seen, batch, now: reserving.reserve(seen, batch, wanted, self._rates, now)
        )
        return made

    def give_back(self, text: str) -> Reservation:
        """Ends a reservation now, by id or name. Raises CumuloError not_found, conflict."""
        over: Reservation = self._inbox.deed(lambda seen, batch, now: reserving.give_back(seen, batch, text, now))
        return over

    # ---- answers ----------------------------------------------------------------------------------------------------

    def why(self, run_id: str) -> Why:
        """Why a run waits, does what it does, or ended. Raises CumuloError run_not_found."""

        def ask(seen: Picture) -> tuple[Why, Attempt | None] | None:
            run = seen.runs.get(run_id)
            return (explain.why_waiting(seen, run, self._clock()), explain.last_attempt(run)) if run else None

        live: tuple[Why, Attempt | None] | None = self._ask(ask)
        if live is None:
            return self._why_ended(run_id)
        why, last = live
        return replace(why, last_attempt=self._told(last)) if last else why

    def _told(self, last: Attempt) -> str:
        """What became of an attempt, in a sentence; whom it made room for may have ended since."""
        other = last.made_room_for.partition("-")[0] if last.made_room_for else None
        with self._db.read() as tx:
            row = views.find_run(tx, other, account="", project="") if other else None
        return past_text(last, row.name if row else "", self._clock())

    def deadline(self, run_id: str) -> Deadline | None:
        """How a run that is not over stands to its deadline; None if it has none."""

        def ask(seen: Picture) -> Deadline | None:
            run = seen.runs.get(run_id)
            return deadline_of(run) if run else None

        found: Deadline | None = self._ask(ask)
        return found

    def _why_ended(self, run_id: str) -> Why:
        with self._db.read() as tx:
            row = views.find_run(tx, run_id, account="", project="")
            if row is None:
                raise CumuloError("run_not_found", f"there is no run {printable(run_id)!r}")
            sources = views.log_sources(tx, row.id)
        if row.status not in TERMINAL:
            return Why(run_id=row.id, status=row.status, summary="it was accepted a moment ago")
        text = ended_text(row.status, row.reason, row.message)
        last = self._last_lines(sources[-1].id) if sources else ()
        return Why(run_id=row.id, status=row.status, summary=text, ended=text, last_log_lines=last)

    def _last_lines(self, instance_id: str, lines: int = 10) -> tuple[str, ...]:
        ref = LogRef.of(instance_id)
        text = self._logs.read(ref, self._logs.tail(ref, lines), 16384).decode(errors="replace")
        return tuple(printable(line, 300) for line in text.splitlines()[-lines:])

    def queue(self) -> tuple[QueueRow, ...]:
        rows: tuple[QueueRow, ...] = self._ask(lambda seen: listing.queue_rows(seen, self._clock()))
        return rows

    def offers(self, gpu: GpuAsk | None) -> tuple[Offer, ...]:
        self._wait_ready()
        rows: tuple[Offer, ...] = self._ask(lambda seen: offering.offers(seen, gpu, self._rates, self._clock()))
        return rows

    def leaks(self) -> tuple[Leak, ...]:
        return tuple(self.loop.absences.leaks.values())

    def telemetry(self) -> Readings:
        """What all devices and instances are doing now."""
        found = [engine.telemetry() for engine in self.engines.values()]
        return Readings(
            devices=tuple(reading for readings in found for reading in readings.devices),
            instances=tuple(reading for readings in found for reading in readings.instances),
        )

    def engine_of(self, region: str) -> Engine:
        """The engine that runs the instances of a region. Raises CumuloError not_found."""
        try:
            return self.engines[region]
        except KeyError:
            raise CumuloError("not_found", f"no engine serves region {region!r} now") from None

    def doctor(self) -> tuple[Check, ...]:
        """The loops' own health; each engine adds its node's."""
        checks = [check for engine in self.engines.values() for check in engine.doctor()]
        trouble = self.loop.trouble
        checks.append(Check(name="control loop", status="fail" if trouble else "ok", text=trouble or "running"))
        checks += [
            Check(name="leak", status="warn", text=leak.text, hint="stop it on its node, or keep it")
            for leak in self.leaks()
        ]
        return tuple(checks)

    def wait_change(self, seq: int, timeout: float) -> int:
        """Waits until something has been committed since `seq` (a value this returned before; 0 at first)."""
        with self._tick:
            self._tick.wait_for(lambda: self._seq > seq, timeout)
            return self._seq

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[Picture], Any]) -> Any:
        return self._inbox.question(question)

    def _wait_ready(self) -> None:
        if not self.loop.ready.wait(READY_S):
            raise CumuloError("starting", "the server has not heard from its engine yet", hint="try again in a moment")

    def _changed(self) -> None:
        with self._tick:
            self._seq += 1
            self._tick.notify_all()

    def _fence(self) -> None:
        self.loop.fence()

    def _watch(self, seen: Picture, *, came: Iterable[LiveInstance] | None = None, gone: Iterable[str] = ()) -> None:
        """Tells the shipper which instances there are."""
        instances = seen.instances.values() if came is None else came
        sources = [
            Source(
                engine=self.engines[instance.region],
                instance_id=instance.id,
                run_id=instance.run_id,
                progress=seen.runs[instance.run_id].spec.progress_regex,
            )
            for instance in instances
            if instance.region in self.engines and not instance.ended
        ]
        if came is None:
            self._shipper.watch(sources)
        else:
            self._shipper.change(sources, gone)


def ended_text(status: str, reason: str | None, message: str) -> str:
    """How a run ended, in one sentence."""
    words = {
        EndReason.OUT_OF_MEMORY: "it was killed for using more memory than it asked for",
        EndReason.SETUP_FAILED: "its setup failed",
        EndReason.START_FAILED: "its command could not be started",
        EndReason.LOST: "it was lost",
        EndReason.SUCCEEDED: "it succeeded",
        EndReason.CANCELLED: "it was cancelled",
    }
    lead = words.get(EndReason(reason)) if reason in set(EndReason) else None
    if status == RunStatus.SUCCEEDED:
        return message or "it succeeded"
    if reason == EndReason.CANCELLED and message.startswith("cancelled"):
        return f"it was {message}"
    if lead and message and message != lead:
        return f"{lead}: {message}"
    return lead or message or f"it ended: {status}"
