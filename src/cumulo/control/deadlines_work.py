"""How much work a unit with a deadline has done and has left, from what it tells: its progress, else what it saved.

Progress says how far it is; without, time that it ran counts as work. What an attempt did after it last saved is to be
done again if it is preempted, and what an earlier attempt did not save was lost with it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from cumulo.control.live import LiveInstance, LiveRun, LiveUnit
from cumulo.domain.progress import Progress, remaining_s


class Work(NamedTuple):
    """Seconds of work: in all, left to do, and how much of what is done a preemption would lose."""

    total_s: float
    left_s: float
    unsaved_s: float


@dataclass(slots=True)
class Pace:
    """How fast a run gets on, measured within one attempt: waiting between attempts is no work."""

    attempt: int = 0
    first: Progress | None = None
    per_s: float | None = None  # of the whole

    def look(self, attempt: int, progress: Progress | None) -> None:
        """Takes in the run's last progress."""
        if progress is None or progress.total <= 0:
            return
        first = self.first
        if first is None or attempt != self.attempt or progress.done < first.done or progress.total != first.total:
            self.attempt, self.first = attempt, progress
        elif (left := remaining_s(first, progress)) and progress.done < progress.total:
            self.per_s = (progress.total - progress.done) / progress.total / left


@dataclass(slots=True)
class Saved:
    """What earlier attempts of a unit had saved of the work that each did, by attempt."""

    by_attempt: dict[int, float] = field(default_factory=dict)

    def ended(self, attempt: int, started_at: float | None, checkpointed_at: float | None) -> None:
        """An attempt is over; told twice of one it counts once."""
        if started_at is not None and checkpointed_at is not None:
            self.by_attempt[attempt] = max(0.0, checkpointed_at - started_at)

    def before(self, attempt: int) -> float:
        return sum(seconds for earlier, seconds in self.by_attempt.items() if earlier < attempt)


def work_of(run: LiveRun, unit: LiveUnit | None, *, saved: Saved, pace: Pace, now: float) -> Work | None:
    """The work of a unit, or of one that was never placed (None); None if nobody knows how much there is."""
    ran_s, unsaved_s = _ran(unit, now)
    attempt = unit.attempts if unit else 0
    done_s = saved.before(attempt if ran_s is not None else attempt + 1) + (ran_s or 0.0)
    progress = run.last_progress if run.spec.array is None else None
    fraction = progress.fraction if progress else None
    declared = run.spec.work_s
    if fraction is None:
        if declared is None:
            return None
        left_s = max(0.0, declared - done_s)
        return Work(declared, left_s, min(unsaved_s, done_s))
    known = [(1.0 - fraction) * declared] if declared is not None else []
    if pace.per_s:
        known.append((1.0 - fraction) / pace.per_s)
    if not known:
        return None
    left_s = max(known)  # whichever is the slower: to be early costs less than to be late
    total_s = left_s / (1.0 - fraction) if fraction < 1.0 else declared or done_s
    return Work(total_s, left_s, min(unsaved_s, total_s - left_s))


def _ran(unit: LiveUnit | None, now: float) -> tuple[float | None, float]:
    """For how long the attempt has run (None: it does not), and how much of that is not saved."""
    first = first_of(unit)
    if first is None or first.started_at is None:
        return None, 0.0
    until = first.ended_at or now
    since = max(first.started_at, first.checkpointed_at or 0.0)
    return max(0.0, until - first.started_at), max(0.0, until - since)


def first_of(unit: LiveUnit | None) -> LiveInstance | None:
    """The instance of rank 0 of the attempt that is under way."""
    instances = unit.instances.values() if unit else ()
    return next((instance for instance in instances if instance.rank == 0), None)


def rounds(run: LiveRun) -> int:
    """How often in turn the units of an array that were never placed have to run, where few may at once."""
    array = run.spec.array
    if array is None or not array.parallel:
        return 1
    left = run.spec.units() - run.units_started
    return max(1, -(-left // array.parallel))
