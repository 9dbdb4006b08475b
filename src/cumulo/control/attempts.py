"""What became of a unit's last attempts: whom they made room for, what that cost, and whether they fail in a loop.

Whatever `retry` allows, a unit that fails at once and in the same way again and again, and never gets further, is not
tried once more: it would hold its GPUs for nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cumulo.domain.lifecycle import RETRY_EVENT, EndReason
from cumulo.domain.quantities import format_duration

MOST_ALIKE: Final = 3  # such failures in a row are a loop
QUICK_S: Final = 60.0
MOST_KEPT: Final = 8


class Ending(NamedTuple):
    """How one instance of an attempt ended. Times are epoch seconds."""

    rank: int
    reason: EndReason
    stop_reason: EndReason | None
    exit_code: int | None
    began_at: float  # when it started, or was placed if it never did
    ended_at: float
    saved_at: float | None
    stopped_for: str | None
    told_at: float | None  # that it must make room


class Attempt(NamedTuple):
    """An attempt that is over. `made_room_for` names the attempt that it was stopped for, of which it was told then."""

    number: int
    reason: EndReason
    exit_code: int | None
    began_at: float
    ended_at: float
    saved_at: float | None
    made_room_for: str | None
    told_at: float | None = None

    @property
    def lost_s(self) -> float:
        """Seconds of work that were not saved, as far as it told. Who saved when told to leave has lost nothing."""
        saved_at = self.began_at if self.saved_at is None else self.saved_at
        if self.told_at is not None and saved_at >= self.told_at:
            return 0.0
        return max(0.0, self.ended_at - max(self.began_at, saved_at))


def attempt_of(number: int, endings: Iterable[Ending]) -> Attempt:
    """What one attempt came to: the first of its instances that ended badly by itself tells why."""
    every = list(endings)
    bad = [each for each in every if each.reason is not EndReason.SUCCEEDED]
    causes = [each for each in bad if each.reason is not EndReason.PEER_ENDED] or bad or every
    cause = min(causes, key=lambda each: (each.ended_at, each.rank))
    made_room = next((each for each in every if each.stop_reason is EndReason.PREEMPTED), None)
    saved = [each.saved_at for each in every if each.saved_at is not None]
    return Attempt(
        number=number,
        reason=EndReason.PREEMPTED if made_room else cause.reason,
        exit_code=cause.exit_code,
        began_at=cause.began_at,
        ended_at=cause.ended_at,
        saved_at=max(saved, default=None),
        made_room_for=made_room.stopped_for if made_room else None,
        told_at=made_room.told_at if made_room else None,
    )


def loop_text(past: Sequence[Attempt], furthest_at: float | None) -> str:
    """Why the unit is not tried again although `retry` would allow it; empty if it may be.

    `furthest_at` is when its progress came further than ever before.
    """
    alike: list[Attempt] = []
    for one in reversed([each for each in past if RETRY_EVENT.get(each.reason) != "interruption"]):
        further = furthest_at is not None and one.began_at <= furthest_at <= one.ended_at
        quick = one.ended_at - one.began_at < QUICK_S
        same = not alike or (one.reason, one.exit_code) == (alike[0].reason, alike[0].exit_code)
        if RETRY_EVENT.get(one.reason) != "error" or further or one.saved_at is not None or not quick or not same:
            break
        alike.append(one)
    if len(alike) < MOST_ALIKE:
        return ""
    longest = max(one.ended_at - one.began_at for one in alike)
    soon = "at once" if longest < 1.0 else f"within {_seconds(longest)}"
    return (
        f"{len(alike)} attempts in a row {ended_text(alike[0])} {soon}, and none got further, so it is not tried again"
    )


def ended_text(one: Attempt) -> str:
    """How it ended, as what one says of an attempt: `ended with code 1`."""
    match one.reason:
        case EndReason.FAILED if one.exit_code is not None:
            return f"ended with code {one.exit_code}"
        case EndReason.OUT_OF_MEMORY:
            return "ran out of memory"
        case EndReason.SETUP_FAILED:
            return "failed in setup"
        case EndReason.PREEMPTED:
            return "made room for another"
        case EndReason.LOST:
            return "was lost"
    return f"ended ({one.reason})"


def past_text(last: Attempt, made_room_for: str, now: float) -> str:
    """What became of an attempt and what that lost, in a sentence. `made_room_for` is what that run is called."""
    how, ago = ended_text(last), _seconds(max(0.0, now - last.ended_at))
    if last.made_room_for is not None:
        run_id = last.made_room_for.partition("-")[0]
        how = f"made room for {made_room_for} ({run_id})" if made_room_for else f"made room for {run_id}"
    if last.saved_at is not None and last.lost_s < 1.0:
        lost = "what it had done is saved"
    elif last.saved_at is not None:
        lost = f"{_seconds(last.lost_s)} of work since its last checkpoint is lost"
    else:
        lost = f"it told of no checkpoint in the {_seconds(last.lost_s)} that it ran"
    return f"attempt {last.number} {how} {ago} ago; {lost}"


def _seconds(seconds: float) -> str:
    return format_duration(round(seconds, 1))
