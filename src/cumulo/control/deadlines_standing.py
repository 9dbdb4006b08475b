"""Where a unit with a deadline stands at a moment, as the market is to know it: out of the picture and its track."""

from dataclasses import dataclass
from typing import Final

from cumulo.control import deadlines_facts as facts
from cumulo.control.deadlines_policies import Need
from cumulo.control.deadlines_tracks import Track
from cumulo.control.deadlines_work import Work, first_of, rounds
from cumulo.control.hazards import SpotHistory
from cumulo.control.live import LiveRun, Picture
from cumulo.control.prices import Pool
from cumulo.control.rates import Rates
from cumulo.market.course import Standing
from cumulo.market.deadline import Choice

# What a decision may come too late by: the loop's own step, and the engine's word of a preemption.
REACT_S: Final = 3.0
# A unit is charted so often until its deadline, within these bounds; and at once when something happens to it.
OFTEN: Final = 2000
PAUSES_S: Final = (0.4, 30.0)
# How often it is asked when on-demand room would be there: that takes a pass over the queue.
ROOM_EVERY_S: Final = 15.0


def left_of(run: LiveRun, now: float) -> float:
    """Seconds to the deadline of a run that has one."""
    assert run.spec.deadline_at is not None  # noqa: S101 (only such runs are steered)
    return run.spec.deadline_at - now


def pause_of(run: LiveRun, now: float) -> float:
    """Seconds until a unit is charted again, if nothing happens to it."""
    return min(PAUSES_S[1], max(PAUSES_S[0], left_of(run, now) / OFTEN))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The moment of one step: the picture, what things cost, and what is known of spot.

    `contested`: somebody waits who is not spot. Spot runs have made room within `grace_s`.
    """

    seen: Picture
    rates: Rates
    history: SpotHistory
    now: float
    contested: bool
    grace_s: float

    def standing(self, run: LiveRun, place: int, track: Track, work: Work) -> Standing:
        """Where a unit stands whose work is known."""
        unit = run.units.get(place)
        first, on = first_of(unit), facts.runs_on(unit)
        leaves = first is not None and on is Choice.WAIT
        start_s, least_s = facts.start_of(run.spec, track.start_s), facts.least_start(track.start_s)
        later_s = max(0.0, (unit.not_before or 0.0) - self.now) if unit and on is Choice.WAIT else 0.0
        # Whoever has its room by then makes it again with a grace: like its own, or as long as the longest there is.
        room_s = max(run.spec.grace_s, self.grace_s)
        if on is Choice.WAIT and not leaves:
            room_s = max(room_s, self._room(run, place, track).in_s)
        overhead_s = 0.0
        if first is not None and first.started_at is None:
            overhead_s = max(0.0, least_s - (self.now - first.placed_at))
        track.redo_s = max(track.redo_s, work.unsaved_s)
        in_turn_s = (rounds(run) - 1) * work.total_s if unit is None else 0.0
        available, age_s = self._spot(run, place, track)
        return Standing(
            left_s=left_of(run, self.now),
            work_left_s=work.left_s + in_turn_s + (work.unsaved_s if leaves else 0.0),
            unsaved_s=0.0 if leaves else work.unsaved_s,
            on=on,
            overhead_left_s=0.0 if on is Choice.WAIT else overhead_s,
            available=available,
            age_s=age_s,
            restart_s=start_s + later_s + room_s + facts.warm_up(work.total_s),
            start_s=least_s + later_s,
            leave_s=run.spec.grace_s,
            react_s=REACT_S + pause_of(run, self.now),
        )

    def _spot(self, run: LiveRun, place: int, track: Track) -> tuple[bool, float]:
        """Whether spot can be had, or is held, and for how long that has been so: as long as its pool has been calm.

        The age is the pool's for what runs on spot too, so that a change of how it is bought, where it runs, changes
        nothing of what is expected. Who has held spot for longer than the pool was calm has been spared.
        """
        unit, now = run.units.get(place), self.now
        first, on = first_of(unit), facts.runs_on(unit)
        calm_s = self.history.calm_s(facts.pool(self.seen, run.spec.ask, unit), now)
        if first is not None and on is Choice.SPOT:
            return True, max(calm_s, now - max(first.started_at or first.placed_at, track.bought_at or 0.0))
        if unit is not None and on is Choice.ON_DEMAND:
            taken = self.contested and facts.would_go(self.seen, list(unit.instances.values()), now)
            return not taken, calm_s
        if track.refused_at is not None:
            return False, now - track.refused_at
        there = facts.fits(self.seen, run.spec.ask)
        return there, calm_s if there else 0.0

    def _room(self, run: LiveRun, place: int, track: Track) -> facts.Room:
        if self.now - track.room_at >= ROOM_EVERY_S:
            track.room = facts.on_demand_room(self.seen, facts.waiting_of(run, place), self.now)
            track.room_at = self.now
        return track.room

    def need(self, run: LiveRun, track: Track, work: Work, standing: Standing, where: Pool) -> Need:
        """What a policy for this job is to be solved for.

        A changeover is what a preemption costs on the average, not at the worst: it includes what is to be done again,
        which is half of the most that was not saved so far; or all that was done, where nothing was saved yet.
        """
        redo_s = track.redo_s / 2 if standing.unsaved_s < track.redo_s else standing.unsaved_s
        start_s = facts.start_of(run.spec, track.start_s) + facts.warm_up(work.total_s) / 4
        return Need(
            left_s=standing.left_s,
            slack_s=standing.left_s - standing.work_left_s,
            changeover_s=start_s + standing.leave_s + redo_s,
            react_s=standing.react_s,
            ratio_milli=facts.spot_milli(self.seen, self.rates, where),
            pool=where,
            version=self.history.version(where),
        )
