"""Runs with a deadline, steered: each is charted anew time and again, and waits, or is bought as spot or on-demand.

What is decided is `market.course`'s. Here is what it needs to know (how much work is left, whether spot is there, how
long a start takes), and what follows (how a unit stands in the queue, or is bought where it runs, and what is told).
The store knows as what a unit is bought and what it saved; everything else is worked out anew after a restart.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from sqlalchemy import Connection

from cumulo.control import deadlines_facts as facts
from cumulo.control.buying import buy_as
from cumulo.control.deadlines_policies import Need, Policies
from cumulo.control.deadlines_work import Pace, Saved, Work, first_of, rounds, work_of
from cumulo.control.hazards import MOST_READ, SpotHistory, pool_of
from cumulo.control.live import FRESH, Charted, LiveInstance, LiveRun, LiveUnit, Picture
from cumulo.control.moves import tell
from cumulo.control.prices import Pool
from cumulo.control.rates import Rates
from cumulo.domain.quantities import format_duration
from cumulo.domain.run import PurchaseOption, RunSpec
from cumulo.market.course import Course, Standing, chart, unknown_work
from cumulo.market.deadline import Choice, DeadlinePolicy
from cumulo.market.hazards import Priors
from cumulo.store import picture
from cumulo.store.batch import Batch

# How many units are charted in one step: keeps it short.
MOST_CHARTED: Final = 32
# What a decision may come too late by: the loop's own step, and the engine's word of a preemption.
REACT_S: Final = 3.0
# A unit is charted so often until its deadline, within these bounds; and at once when something happens to it.
OFTEN: Final = 2000
PAUSES_S: Final = (0.4, 30.0)
# What runs on-demand goes back to spot for a fiftieth of the time that is left, within these bounds, or not at all.
MOMENTS_S: Final = (5.0, 60.0)
# How often it is asked when on-demand room would be there: that takes a pass over the queue.
ROOM_EVERY_S: Final = 15.0
# A pool in which spot was never taken from anybody has been calm for as long as is worth telling.
CALM_S: Final = 7 * 86400.0

SWITCHED, LATE, UNSURE = "run.switched", "run.late", "run.unsure"


@dataclass(slots=True)
class Track:
    """What is remembered of one unit between steps. `stands` is what it stood as: anything else is charted at once."""

    pace: Pace
    saved: Saved = field(default_factory=Saved)
    stands: tuple[object, ...] = ()
    policy: DeadlinePolicy | None = None  # by which it was charted: good enough until the next is solved
    due: float = 0.0
    asks_for: PurchaseOption | None = None  # as what it stands in the queue
    refused_at: float | None = None  # since when it has asked for spot in vain
    bought_at: float | None = None  # when it was last bought otherwise
    start_s: float | None = None  # what its last start took
    redo_s: float = 0.0  # the most that a preemption of this attempt would have lost
    room_s: float = 0.0  # until there is room for it on-demand, as of `room_at`
    room_at: float = -inf


class Deadlines:
    """Steers all runs that have a deadline. It outlasts the picture. Only the control thread touches it."""

    def __init__(self, priors: Priors, executor: Executor | None = None) -> None:
        self.history = SpotHistory(priors)
        self.policies = Policies(executor)
        self._tracks: dict[tuple[str, int], Track] = {}
        self._paces: dict[str, Pace] = {}
        self._told: set[tuple[str, str]] = set()
        self._restored = False
        self._contested = False  # somebody waits who is not spot
        self._grace_s = 0.0  # until spot runs have made room, at most

    # ---- what happens -----------------------------------------------------------------------------------------------

    def restore(self, tx: Connection, seen: Picture) -> None:
        """After a fresh look at the store: all is charted anew. The first time it takes in the past, too."""
        runs = [run.id for run in seen.runs.values() if run.spec.deadline_at is not None]
        self._told = set(picture.told(tx, runs, (LATE, UNSURE)))
        for track in self._tracks.values():
            track.due = 0.0
        if self._restored:
            return
        self._restored = True
        self.history.remember(picture.spot_attempts(tx, MOST_READ))
        for row in picture.ended_ranks(tx, runs):
            saved = self._track(seen.runs[row["run_id"]], row["unit"]).saved
            saved.ended(row["attempt"], row["started_at"], row["checkpointed_at"])

    def ended(self, instance: LiveInstance, run: LiveRun) -> None:
        """An instance ended."""
        self.history.ended(instance)
        if instance.rank == 0 and run.spec.deadline_at is not None:
            saved = self._track(run, instance.unit).saved
            saved.ended(instance.attempt, instance.started_at, instance.checkpointed_at)

    def passed(self, seen: Picture, now: float) -> None:
        """A pass over the queue was made: who asked for spot and still waits was refused."""
        if not self._tracks:
            return
        self._contested = any(waiting.purchase is not PurchaseOption.SPOT for waiting in seen.waiting(now, 1))
        for (run_id, place), track in self._tracks.items():
            unit = seen.runs[run_id].units.get(place) if run_id in seen.runs else None
            if track.asks_for is PurchaseOption.SPOT and track.refused_at is None and first_of(unit) is None:
                track.refused_at, track.due = now, now

    def close(self) -> None:
        self.policies.close()

    def hazard(self, instance: LiveInstance) -> tuple[tuple[float, float], ...]:
        """How likely spot is to be lost where it runs: what a run needs to time its checkpoints."""
        return self.history.hazards(pool_of(instance)).steps()

    def prospect(self, seen: Picture, spec: RunSpec, rates: Rates, now: float) -> Callable[[], Charted]:
        """What would be decided for a run if it were submitted now: to be worked out on the caller's own thread."""
        run = facts.new_run("~", spec, now)
        where, left_s = facts.pool(seen, spec.ask), _deadline(run) - now
        price = facts.on_demand_price(seen, rates, spec.ask, where)
        work = work_of(run, None, saved=Saved(), pace=Pace(), now=now)
        if work is None:
            course = _unknown(Choice.WAIT, left_s)
            return lambda: Charted(course, now, None, None, price)
        standing = self._standing(seen, run, FRESH, Track(Pace()), work, now, react_s=REACT_S + _pause(left_s))
        need, hazards = self.need(seen, standing, 0.0, where, rates), self.history.hazards(where)
        return lambda: Charted(
            chart(standing, self.policies.now(need, hazards)), now, work.total_s, standing.work_left_s, price
        )

    # ---- a step -----------------------------------------------------------------------------------------------------

    def steer(self, seen: Picture, batch: Batch, rates: Rates, now: float) -> bool:
        """Charts what is due, and does what follows. True if something that waits now waits otherwise."""
        runs = {run.id: run for run in seen.runs.values() if run.spec.deadline_at is not None}
        if not runs and not self._tracks:
            return False
        self._forget(runs)
        self._grace_s = facts.most_grace(seen)
        left, changed = MOST_CHARTED, False
        for run in runs.values():
            places = list(_places(run))
            run.charted = {place: known for place, known in run.charted.items() if place in places}
            for place in places:
                track, stands = self._track(run, place), _stands(run, place)
                if left and (stands != track.stands or now >= track.due):
                    left -= 1
                    self._note(track, run.units.get(place), stands, now)
                    course = self._chart(seen, batch, run, place, track, rates, now)
                    changed |= self._follow(seen, batch, run, place, track, course, rates, now)
        return changed

    def _forget(self, runs: dict[str, LiveRun]) -> None:
        for key in [key for key in self._tracks if key[0] not in runs]:
            del self._tracks[key]
        for run_id in [run_id for run_id in self._paces if run_id not in runs]:
            del self._paces[run_id]

    def _track(self, run: LiveRun, place: int) -> Track:
        """What is remembered of a unit; what was while it had never been placed goes on."""
        known = self._tracks.get((run.id, place))
        if known is None and run.spec.array is None:
            known = self._tracks.pop((run.id, FRESH), None)
        if known is None:
            known = Track(self._paces.setdefault(run.id, Pace()))
        self._tracks[run.id, place] = known
        return known

    def _note(self, track: Track, unit: LiveUnit | None, stands: tuple[object, ...], now: float) -> None:
        """What has happened to it says something of the past."""
        first = first_of(unit)
        if first is not None and first.started_at is not None:
            track.start_s = max(0.0, first.started_at - first.placed_at)
        if stands == track.stands:
            return
        if first is not None and track.refused_at is not None:
            came = first.purchase is PurchaseOption.SPOT
            self.history.waited(pool_of(first), first.placed_at - track.refused_at, came=came)
        track.stands, track.asks_for, track.refused_at = stands, None, None
        track.redo_s, track.room_s, track.room_at = 0.0, 0.0, -inf

    def _chart(
        self, seen: Picture, batch: Batch, run: LiveRun, place: int, track: Track, rates: Rates, now: float
    ) -> Course:
        unit, left_s = run.units.get(place), _deadline(run) - now
        pause_s = _pause(left_s)
        track.due = now + pause_s
        on = facts.runs_on(unit)
        if on is not Choice.WAIT and unit is not None:
            track.pace.look(unit.attempts, run.last_progress)
        work = work_of(run, unit, saved=track.saved, pace=track.pace, now=now)
        where = facts.pool(seen, run.spec.ask, unit)
        if work is None:
            course = _unknown(on, left_s)
        else:
            standing = self._standing(seen, run, place, track, work, now, react_s=REACT_S + pause_s)
            need = self.need(seen, standing, track.redo_s, where, rates)
            solved = self.policies.get(need, lambda: self.history.hazards(where), now)
            track.policy = solved or track.policy
            course = self._sure(batch, run, track, standing, chart(standing, track.policy), now)
            if on is Choice.ON_DEMAND and course.choice is Choice.SPOT and not _worth_it(run, track, course, now):
                why = f"runs on-demand: {format_duration(course.slack_s)} of slack left, too little to go back to spot"
                course = replace(course, choice=on, why=why)
        if not course.feasible:
            self._tell_once(batch, run, LATE, course.why, now)
        price = facts.on_demand_price(seen, rates, run.spec.ask, where)
        run.charted[place] = Charted(course, now, work and work.total_s, work and work.left_s, price)
        return course

    def _sure(self, batch: Batch, run: LiveRun, track: Track, standing: Standing, course: Course, now: float) -> Course:
        """The course; where on-demand may have no room in time, that is said, and it is queued so at once."""
        slack_s = standing.left_s - standing.needs_s
        if not course.feasible or standing.on is not Choice.WAIT or track.room_s <= max(slack_s, 0.0):
            return course
        room = f"{format_duration(track.room_s)}" if track.room_s < inf else "a time that nobody can tell"
        why = f"may be late: there is no room for it on-demand for {room}; {format_duration(slack_s)} of slack left"
        self._tell_once(batch, run, UNSURE, why, now)
        return replace(course, why=why)

    def _tell_once(self, batch: Batch, run: LiveRun, kind: str, why: str, now: float) -> None:
        if (run.id, kind) not in self._told:
            self._told.add((run.id, kind))
            tell(batch, run, kind, f"{run.spec.name} {why}", now)

    # ---- what follows -----------------------------------------------------------------------------------------------

    def _follow(
        self,
        seen: Picture,
        batch: Batch,
        run: LiveRun,
        place: int,
        track: Track,
        course: Course,
        rates: Rates,
        now: float,
    ) -> bool:
        """Does what the course says. What runs stays where it is, and is only bought otherwise."""
        unit = run.units.get(place)
        first = first_of(unit)
        option = PurchaseOption.ON_DEMAND if course.choice is Choice.ON_DEMAND else PurchaseOption.SPOT
        if unit is None or first is None:
            return self._queue(batch, run, place, track, course, option, now)
        if facts.runs_on(unit) is Choice.WAIT:
            return False  # it is leaving
        if unit.purchase is not first.purchase:
            unit.purchase = first.purchase
            batch.unit(run.id, place, purchase=str(first.purchase))
        if course.choice is not Choice.WAIT and option is not first.purchase:
            buy_as(seen, batch, run, unit, option, rates, now)
            track.bought_at, track.stands = now, _stands(run, place)
            tell(batch, run, SWITCHED, f"{run.spec.name} goes on as {option}: {_reason(course)}", now, first)
        return False

    def _queue(
        self, batch: Batch, run: LiveRun, place: int, track: Track, course: Course, option: PurchaseOption, now: float
    ) -> bool:
        """How it stands in the queue: as spot or on-demand; or not at all, while it leaves alone the spot there is."""
        holds_off = course.holds_off
        unit = run.units.get(place)
        before = unit.purchase if unit else run.first_purchase
        changed = before is not option or holds_off is not (place in run.held)
        if holds_off:
            run.held.add(place)
        else:
            run.held.discard(place)
        if unit is None:
            run.first_purchase = option
        elif unit.purchase is not option:
            unit.purchase = option
            batch.unit(run.id, place, purchase=str(option))
        if track.asks_for is PurchaseOption.SPOT and option is PurchaseOption.ON_DEMAND:
            tell(batch, run, SWITCHED, f"{run.spec.name} is queued as on-demand: {_reason(course)}", now)
        track.asks_for = None if holds_off else option
        return changed

    # ---- what is known ----------------------------------------------------------------------------------------------

    def _standing(
        self, seen: Picture, run: LiveRun, place: int, track: Track, work: Work, now: float, *, react_s: float
    ) -> Standing:
        unit = run.units.get(place)
        first, on = first_of(unit), facts.runs_on(unit)
        start_s = facts.start_of(run.spec, track.start_s)
        leaves = first is not None and on is Choice.WAIT
        available, age_s = self._spot(seen, run, place, track, now)
        later_s = 0.0
        if on is Choice.WAIT and unit is not None:
            later_s = max(0.0, (unit.not_before or 0.0) - now)
        # Whoever has its room by then makes it again with a grace: like its own, or as long as the longest there is.
        room_s = max(run.spec.grace_s, self._grace_s)
        if on is Choice.WAIT and not leaves:
            room_s = max(room_s, self._room(seen, run, place, track, now))
        overhead_s = 0.0
        if first is not None and first.started_at is None:
            overhead_s = max(0.0, start_s - (now - first.placed_at))
        track.redo_s = max(track.redo_s, work.unsaved_s)
        in_turn_s = (rounds(run) - 1) * work.total_s if unit is None else 0.0
        return Standing(
            left_s=_deadline(run) - now,
            work_left_s=work.left_s + in_turn_s + (work.unsaved_s if leaves else 0.0),
            unsaved_s=0.0 if leaves else work.unsaved_s,
            on=on,
            overhead_left_s=0.0 if on is Choice.WAIT else overhead_s,
            available=available,
            age_s=age_s,
            restart_s=start_s + later_s + room_s + facts.warm_up(work.total_s),
            start_s=start_s + later_s,
            leave_s=run.spec.grace_s,
            react_s=react_s,
        )

    def _spot(self, seen: Picture, run: LiveRun, place: int, track: Track, now: float) -> tuple[bool, float]:
        """Whether spot can be had, or is held, and for how long that has been so."""
        unit = run.units.get(place)
        first, on = first_of(unit), facts.runs_on(unit)
        if first is not None and on is Choice.SPOT:
            return True, now - max(first.started_at or first.placed_at, track.bought_at or 0.0)
        lost_at = self.history.lost_at(facts.pool(seen, run.spec.ask, unit))
        calm_s = CALM_S if lost_at is None else min(CALM_S, max(0.0, now - lost_at))
        if unit is not None and on is Choice.ON_DEMAND:
            return not (self._contested and facts.would_go(seen, list(unit.instances.values()), now)), calm_s
        if track.refused_at is not None:
            return False, now - track.refused_at
        there = facts.fits(seen, run.spec.ask)
        return there, calm_s if there else 0.0

    def _room(self, seen: Picture, run: LiveRun, place: int, track: Track, now: float) -> float:
        if now - track.room_at >= ROOM_EVERY_S:
            track.room_s = facts.on_demand_room(seen, facts.waiting_of(run, place), now)
            track.room_at = now
        return track.room_s

    def need(self, seen: Picture, standing: Standing, redo_s: float, where: Pool, rates: Rates) -> Need:
        """What a policy for this job is to be solved for. A changeover includes what is to be done again."""
        restart_s = standing.left_s if standing.restart_s == inf else standing.restart_s
        return Need(
            left_s=standing.left_s,
            slack_s=standing.left_s - standing.work_left_s,
            changeover_s=restart_s + standing.leave_s + redo_s,
            react_s=standing.react_s,
            ratio_milli=facts.spot_milli(seen, rates, where),
            pool=where,
            version=self.history.version(where),
        )


def _pause(left_s: float) -> float:
    return min(PAUSES_S[1], max(PAUSES_S[0], left_s / OFTEN))


def _unknown(on: Choice, left_s: float) -> Course:
    """Of a run of which nobody knows how long it takes: on-demand is all that is sure."""
    return Course(choice=Choice.ON_DEMAND, why=unknown_work(on), slack_s=0.0, earliest_s=0.0, feasible=left_s > 0)


def _deadline(run: LiveRun) -> float:
    assert run.spec.deadline_at is not None  # noqa: S101 (only such runs are steered)
    return run.spec.deadline_at


def _places(run: LiveRun) -> Iterator[int]:
    """The units to chart: those that are not over, and FRESH for all that were never placed."""
    if run.wanted != "running" or run.waits_for:
        return
    yield from list(run.units)
    if not run.all_started:
        yield FRESH


def _stands(run: LiveRun, place: int) -> tuple[object, ...]:
    unit = run.units.get(place)
    first = first_of(unit)
    if unit is None:
        return ()
    if first is None:
        return unit.attempts, unit.not_before
    return unit.attempts, first.started_at, first.stop_reason


def _reason(course: Course) -> str:
    """Why, without what: `runs on spot: 3h 10m of slack left` less its beginning."""
    return course.why.partition(": ")[2] or course.why


def _worth_it(run: LiveRun, track: Track, course: Course, now: float) -> bool:
    """Whether what runs on-demand may go back to spot: only if that is for more than a moment, and not all the time."""
    moment_s = min(MOMENTS_S[1], max(MOMENTS_S[0], (_deadline(run) - now) / 50))
    return course.slack_s >= moment_s and (track.bought_at is None or now - track.bought_at >= moment_s)
