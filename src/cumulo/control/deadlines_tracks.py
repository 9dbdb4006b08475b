"""What is remembered of the units of runs with a deadline, from one step of the control loop to the next."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from cumulo.control.deadlines_facts import AT_ONCE, Room
from cumulo.control.deadlines_work import Pace, Saved, first_of
from cumulo.control.live import FRESH, LiveRun
from cumulo.domain.run import PurchaseOption
from cumulo.market.deadline import DeadlinePolicy

Stands = tuple[object, ...]


@dataclass(slots=True)
class Track:
    """What is remembered of one unit. `stands` is what it stood as: anything else is charted at once."""

    pace: Pace
    saved: Saved = field(default_factory=Saved)
    stands: Stands = ()
    policy: DeadlinePolicy | None = None  # by which it was charted: good enough until the next is solved
    due: float = 0.0
    asks_for: PurchaseOption | None = None  # as what it stands in the queue
    refused_at: float | None = None  # since when it has asked for spot in vain
    bought_at: float | None = None  # when it was last bought otherwise
    start_s: float | None = None  # what its last start took
    redo_s: float = 0.0  # the most that a preemption of this attempt would have lost
    room: Room = AT_ONCE  # when there is room for it on-demand, as of `room_at`
    room_at: float = -inf

    def begins(self, stands: Stands) -> None:
        """Something has happened to the unit: what was true of how it stood is no more."""
        self.stands, self.asks_for, self.refused_at = stands, None, None
        self.redo_s, self.room, self.room_at = 0.0, AT_ONCE, -inf


class Tracks:
    """The tracks of all units; FRESH stands for those of a run that were never placed."""

    def __init__(self) -> None:
        self._tracks: dict[tuple[str, int], Track] = {}
        self._paces: dict[str, Pace] = {}

    def __bool__(self) -> bool:
        return bool(self._tracks)

    def __iter__(self) -> Iterator[tuple[tuple[str, int], Track]]:
        return iter(self._tracks.items())

    def of(self, run: LiveRun, place: int) -> Track:
        """The track of a unit; what was while it had never been placed goes on."""
        known = self._tracks.get((run.id, place))
        if known is None and run.spec.array is None:
            known = self._tracks.pop((run.id, FRESH), None)
        if known is None:
            known = Track(self._paces.setdefault(run.id, Pace()))
        self._tracks[run.id, place] = known
        return known

    def keep(self, runs: dict[str, LiveRun]) -> None:
        """Forgets all but these."""
        for key in [key for key in self._tracks if key[0] not in runs]:
            del self._tracks[key]
        for run_id in [run_id for run_id in self._paces if run_id not in runs]:
            del self._paces[run_id]


def places(run: LiveRun) -> Iterator[int]:
    """The units to chart: those that are not over, and FRESH for all that were never placed."""
    if run.wanted != "running" or run.waits_for:
        return
    yield from list(run.units)
    if not run.all_started:
        yield FRESH


def stands(run: LiveRun, place: int) -> Stands:
    """What tells that something has happened to a unit."""
    unit = run.units.get(place)
    first = first_of(unit)
    if unit is None:
        return ()
    if first is None:
        return unit.attempts, unit.not_before
    return unit.attempts, first.started_at, first.stop_reason
