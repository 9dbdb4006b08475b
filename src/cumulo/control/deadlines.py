"""Runs with a deadline, steered: each is charted anew time and again, and waits, or is bought as spot or on-demand.

What is decided is `market.course`'s, by where a unit stands (`deadlines_standing`); here is what follows: how it stands
in the queue, or is bought where it runs, and what is told. The store knows as what a unit is bought and what it saved;
everything else is worked out anew after a restart.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from math import inf
from typing import Final

from sqlalchemy import Connection

from cumulo.control import deadlines_facts as facts
from cumulo.control.buying import buy_as
from cumulo.control.deadlines_policies import Policies
from cumulo.control.deadlines_standing import View, left_of, pause_of
from cumulo.control.deadlines_tracks import Stands, Track, Tracks, places, stands
from cumulo.control.deadlines_work import Pace, Saved, first_of, rounds, work_of
from cumulo.control.hazards import MOST_READ, SpotHistory, pool_of
from cumulo.control.live import FRESH, Charted, LiveInstance, LiveRun, LiveUnit, Picture
from cumulo.control.moves import tell
from cumulo.control.rates import Rates
from cumulo.domain.quantities import format_duration
from cumulo.domain.run import PurchaseOption, RunSpec
from cumulo.market.course import Course, Standing, chart, late, unknown_work
from cumulo.market.deadline import Choice
from cumulo.market.hazards import Priors
from cumulo.store import picture
from cumulo.store.batch import Batch

# How many units are charted in one step: keeps it short.
MOST_CHARTED: Final = 32
# What runs on-demand goes back to spot for a fiftieth of the time that is left, within these bounds, or not at all.
MOMENTS_S: Final = (5.0, 60.0)

SWITCHED, LATE, UNSURE = "run.switched", "run.late", "run.unsure"


class Deadlines:
    """Steers all runs that have a deadline. It outlasts the picture. Only the control thread touches it."""

    def __init__(self, priors: Priors, executor: Executor | None = None) -> None:
        self.history = SpotHistory(priors)
        self.policies = Policies(executor)
        self._tracks = Tracks()
        self._told: set[tuple[str, str]] = set()
        self._restored = False
        self._contested = False  # somebody waits who is not spot

    # ---- what happens -----------------------------------------------------------------------------------------------

    def restore(self, tx: Connection, seen: Picture) -> None:
        """After a fresh look at the store: all is charted anew. The first time it takes in the past, too."""
        runs = [run.id for run in seen.runs.values() if run.spec.deadline_at is not None]
        self._told = set(picture.told(tx, runs, (LATE, UNSURE)))
        for _, track in self._tracks:
            track.due = 0.0
        if self._restored:
            return
        self._restored = True
        self.history.remember(picture.spot_attempts(tx, MOST_READ))
        for row in picture.ended_ranks(tx, runs):
            saved = self._tracks.of(seen.runs[row["run_id"]], row["unit"]).saved
            saved.ended(row["attempt"], row["started_at"], row["checkpointed_at"])

    def ended(self, instance: LiveInstance, run: LiveRun) -> None:
        """An instance ended."""
        self.history.ended(instance)
        if instance.rank == 0 and run.spec.deadline_at is not None:
            saved = self._tracks.of(run, instance.unit).saved
            saved.ended(instance.attempt, instance.started_at, instance.checkpointed_at)

    def passed(self, seen: Picture, placed: list[LiveInstance], now: float) -> None:
        """A pass over the queue was made, which `placed` these: who asked for spot and still waits was refused."""
        for instance in placed:
            run, its_unit = seen.unit_of(instance)
            if its_unit.past or not run.spec.after:
                self.history.placed(instance, its_unit.past[-1].ended_at if its_unit.past else run.accepted_at)
        if not self._tracks:
            return
        self._contested = any(waiting.purchase is not PurchaseOption.SPOT for waiting in seen.waiting(now, 1))
        for (run_id, place), track in self._tracks:
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
        where = facts.pool(seen, spec.ask)
        price = facts.on_demand_price(seen, rates, spec.ask, where)
        work = work_of(run, None, saved=Saved(), pace=Pace(), now=now)
        if work is None:
            course = _unknown(Choice.WAIT, left_of(run, now))
            return lambda: Charted(course, now, None, None, price)
        view = self._view(seen, rates, now)
        track = Track(Pace())
        standing = view.standing(run, FRESH, track, work)
        need, hazards = view.need(run, track, work, standing, where), self.history.hazards(where)
        return lambda: Charted(
            chart(standing, self.policies.now(need, hazards)), now, work.total_s, standing.work_left_s, price
        )

    # ---- a step -----------------------------------------------------------------------------------------------------

    def steer(self, seen: Picture, batch: Batch, rates: Rates, now: float) -> bool:
        """Charts what is due, and does what follows. True if something that waits now waits otherwise."""
        runs = {run.id: run for run in seen.runs.values() if run.spec.deadline_at is not None}
        if not runs and not self._tracks:
            return False
        self._tracks.keep(runs)
        view = self._view(seen, rates, now)
        left, changed = MOST_CHARTED, False
        for run in runs.values():
            there = list(places(run))
            run.charted = {place: known for place, known in run.charted.items() if place in there}
            if run.waits_for and run.wanted == "running":
                self._look_ahead(batch, run, now)
            for place in there:
                track, now_stands = self._tracks.of(run, place), stands(run, place)
                if left and (now_stands != track.stands or now >= track.due):
                    left -= 1
                    self._note(track, run.units.get(place), now_stands)
                    course = self._chart(view, batch, run, place, track)
                    changed |= self._follow(view, batch, run, place, track, course)
        return changed

    def _look_ahead(self, batch: Batch, run: LiveRun, now: float) -> None:
        """A run that others must come before may be too late already: that is told, and there is nothing else to do."""
        work = work_of(run, None, saved=Saved(), pace=Pace(), now=now)
        if work is None:
            return
        work_s, left_s = rounds(run) * work.total_s, left_of(run, now)
        needs_s = work_s + facts.least_start(None)
        if needs_s > left_s:
            why = late(work_s, left_s, needs_s)
            course = Course(choice=Choice.WAIT, why=why, slack_s=0.0, earliest_s=needs_s, feasible=False)
            run.charted[FRESH] = Charted(course, now, work.total_s, work_s, 0)
            self._tell_once(batch, run, LATE, why, now)

    def _view(self, seen: Picture, rates: Rates, now: float) -> View:
        return View(
            seen=seen,
            rates=rates,
            history=self.history,
            now=now,
            contested=self._contested,
            grace_s=facts.most_grace(seen),
        )

    def _note(self, track: Track, unit: LiveUnit | None, now_stands: Stands) -> None:
        """What has happened to it says something of the past."""
        first = first_of(unit)
        if first is not None and first.started_at is not None:
            track.start_s = max(0.0, first.started_at - first.placed_at)
        if now_stands == track.stands:
            return
        if first is not None and track.refused_at is not None and first.purchase is not PurchaseOption.SPOT:
            self.history.waited(pool_of(first), first.placed_at - track.refused_at, came=False)
        track.begins(now_stands)

    def _chart(self, view: View, batch: Batch, run: LiveRun, place: int, track: Track) -> Course:
        unit, now = run.units.get(place), view.now
        track.due = now + pause_of(run, now)
        on = facts.runs_on(unit)
        if on is not Choice.WAIT and unit is not None:
            track.pace.look(unit.attempts, run.last_progress)
        work = work_of(run, unit, saved=track.saved, pace=track.pace, now=now)
        where = facts.pool(view.seen, run.spec.ask, unit)
        if work is None:
            course = _unknown(on, left_of(run, now))
        else:
            standing = view.standing(run, place, track, work)
            need = view.need(run, track, work, standing, where)
            track.policy = self.policies.get(need, lambda: self.history.hazards(where), now) or track.policy
            course = self._sure(batch, run, track, standing, chart(standing, track.policy), now)
            if unit is not None and on is Choice.SPOT and not facts.may_be_on_demand(view.seen, run, unit, now):
                course = self._borrowing(batch, run, course, now)
            if on is Choice.ON_DEMAND and course.choice is Choice.SPOT and not _worth_it(run, track, course, now):
                why = f"runs on-demand: {format_duration(course.slack_s)} of slack left, too little to go back to spot"
                course = replace(course, choice=on, why=why)
        if not course.feasible:
            self._tell_once(batch, run, LATE, course.why, now)
        price = facts.on_demand_price(view.seen, view.rates, run.spec.ask, where)
        run.charted[place] = Charted(course, now, work and work.total_s, work and work.left_s, price)
        return course

    def _sure(self, batch: Batch, run: LiveRun, track: Track, standing: Standing, course: Course, now: float) -> Course:
        """The course; where on-demand may have no room in time that is said, and it takes what it can get."""
        slack_s = standing.left_s - standing.needs_s
        if standing.on is not Choice.WAIT or track.room.in_s <= max(slack_s, 0.0):
            return course
        spot = standing.available or track.room.barred
        choice = Choice.SPOT if spot else Choice.ON_DEMAND
        if not course.feasible:
            return replace(course, choice=choice)
        room = "a time that nobody can tell" if track.room.in_s == inf else format_duration(track.room.in_s)
        why = f"may be late: there is no room for it on-demand for {room}; {format_duration(slack_s)} of slack left"
        self._tell_once(batch, run, UNSURE, why, now)
        return replace(course, choice=choice, why=why, holds_off=False)

    def _borrowing(self, batch: Batch, run: LiveRun, course: Course, now: float) -> Course:
        """The course of what runs on GPUs that a reservation lends: nothing that can't be stopped may be there."""
        why = "may be late: it runs on GPUs that are reserved for others, and makes room for them"
        self._tell_once(batch, run, UNSURE, why, now)
        return replace(course, choice=Choice.SPOT, why=why if course.feasible else course.why)

    def _tell_once(self, batch: Batch, run: LiveRun, kind: str, why: str, now: float) -> None:
        if (run.id, kind) not in self._told:
            self._told.add((run.id, kind))
            tell(batch, run, kind, f"{run.spec.name} {why}", now)

    # ---- what follows -----------------------------------------------------------------------------------------------

    def _follow(self, view: View, batch: Batch, run: LiveRun, place: int, track: Track, course: Course) -> bool:
        """Does what the course says. What runs stays where it is, and is only bought otherwise."""
        unit, now = run.units.get(place), view.now
        first = first_of(unit)
        option = PurchaseOption.ON_DEMAND if course.choice is Choice.ON_DEMAND else PurchaseOption.SPOT
        if unit is None or first is None:
            return _queue(batch, run, place, track, course, option, now)
        if facts.runs_on(unit) is Choice.WAIT:
            return False  # it is leaving
        if unit.purchase is not first.purchase:
            unit.purchase = first.purchase
            batch.unit(run.id, place, purchase=str(first.purchase))
        changes = course.choice is not Choice.WAIT and option is not first.purchase
        if changes and buy_as(view.seen, batch, run, unit, option, view.rates, now):
            track.bought_at, track.stands = now, stands(run, place)
            tell(batch, run, SWITCHED, f"{run.spec.name} goes on as {option}: {_reason(course)}", now, first)
        return False


def _queue(
    batch: Batch, run: LiveRun, place: int, track: Track, course: Course, option: PurchaseOption, now: float
) -> bool:
    """How it stands in the queue: as spot or on-demand; or not at all, while it leaves alone the spot there is.

    True if that is news.
    """
    unit = run.units.get(place)
    before = unit.purchase if unit else run.first_purchase
    changed = before is not option or course.holds_off is not (place in run.held)
    if course.holds_off:
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
    track.asks_for = None if course.holds_off else option
    return changed


def _unknown(on: Choice, left_s: float) -> Course:
    """Of a run of which nobody knows how long it takes: on-demand is all that is sure."""
    return Course(choice=Choice.ON_DEMAND, why=unknown_work(on), slack_s=0.0, earliest_s=0.0, feasible=left_s > 0)


def _reason(course: Course) -> str:
    """Why, without what: `runs on spot: 3h 10m of slack left` less its beginning."""
    return course.why.partition(": ")[2] or course.why


def _worth_it(run: LiveRun, track: Track, course: Course, now: float) -> bool:
    """Whether what runs on-demand may go back to spot: only if that is for more than a moment, and not all the time."""
    moment_s = min(MOMENTS_S[1], max(MOMENTS_S[0], left_of(run, now) / 50))
    return course.slack_s >= moment_s and (track.bought_at is None or now - track.bought_at >= moment_s)
