"""The head of the queue during a pass: who it is, what is kept for it, and what may start beside it.

The head is the first unit that nothing could be done for. A spot run is only the head while no other waits so: room
kept for it would be kept from work that may stop it. What is kept is worked out when something is about to start behind
the head, so a pass in which nothing fits costs nothing more.
"""

from collections.abc import Mapping

from cumulo.domain.ask import Ask
from cumulo.domain.quantities import format_duration
from cumulo.domain.run import PurchaseOption
from cumulo.placement.fit import Place
from cumulo.placement.reserve import Kept, Reservation, cleared, held_places, reserve
from cumulo.placement.world import Waiting, World


class Head:
    """Looks on while `trial`, the world of a pass, fills up."""

    def __init__(self, trial: World, now: float | None, ends: Mapping[str, float]) -> None:
        self._trial, self._now, self._ends = trial, now, ends
        self._blocked: list[
            tuple[Waiting, Ask]
        ] = []  # distinct asks, in their turn; the first that ever fits is the head
        self._kept: Kept | None = None
        self._barred: dict[Ask, str] = {}
        self._cleared: World | None = None

    @property
    def there(self) -> bool:
        """Whether anybody waits that could be the head."""
        return self._kept is not None or bool(self._blocked)

    @property
    def reservation(self) -> Reservation | None:
        return self._kept.reservation if self._kept else None

    def blocked(self, waiting: Waiting, ask: Ask) -> None:
        """Takes note of a unit that could not start."""
        if self._now is None:
            return
        of_spot = self._kept is not None and self._kept.reservation.waiting.purchase is PurchaseOption.SPOT
        if of_spot and waiting.purchase is not PurchaseOption.SPOT:
            self._drop()
        self._blocked.append((waiting, ask))

    def kept(self) -> Kept | None:
        """What is kept for the head, if there is one."""
        if self._now is None or self._kept is not None or not self._blocked:
            return self._kept
        if self._cleared is None:
            self._cleared = cleared(self._trial)
        for waiting, ask in sorted(self._blocked, key=lambda each: each[0].purchase is PurchaseOption.SPOT):
            self._kept = reserve(self._trial, waiting, ask, now=self._now, ends=self._ends, empty=self._cleared)
            if self._kept is not None:
                break
        self._blocked.clear()
        return self._kept

    def beside(self, waiting: Waiting, ask: Ask, places: tuple[Place, ...]) -> tuple[Place, ...] | str:
        """Where `waiting` may start without delaying the head: at `places` if it can be; else why it may not."""
        kept = self.kept()
        if kept is None:
            return places
        if not kept.reservation.binds(waiting):
            if not kept.force(waiting, places):
                self._drop()
            return places
        if kept.in_time(waiting):
            return places
        if ask in self._barred:
            return self._barred[ask]
        found = kept.beside(self._trial, waiting, ask, places)
        if found is None:
            self._barred[ask] = _kept_text(kept)
            return self._barred[ask]
        return found

    def took(self, waiting: Waiting, places: tuple[Place, ...]) -> None:
        """What has started now."""
        if self._kept is not None:
            self._kept.took(held_places(waiting, places))

    def stands(self, waiting: Waiting) -> bool:
        """Whether the head is not delayed by what was cleared away in `trial` for `waiting`, and what that took."""
        before = self.kept()
        if before is None or self._now is None:
            return True
        head = before.reservation.waiting
        after = reserve(self._trial, head, head.ask, now=self._now, ends=self._ends)
        if before.reservation.binds(waiting) and (after is None or _later(after.reservation, before.reservation)):
            return False
        self._drop()
        self._kept = after
        return True

    def _drop(self) -> None:
        self._kept = None
        self._barred.clear()


def _kept_text(kept: Kept) -> str:
    head, at = kept.reservation.waiting, kept.reservation.at
    when = "" if at is None else f" in {format_duration(max(0.0, at - kept.now))} at the latest"
    return f"the room is kept for {head.name}, which is next{when} and asked for {head.ask.describe()}"


def _later(after: Reservation, before: Reservation) -> bool:
    if before.at is None:
        return after.at is None and len(after.waits_for) > len(before.waits_for)
    return after.at is None or after.at > before.at
