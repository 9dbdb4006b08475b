"""The head of the queue during a pass: who it is, what is kept for it, and what may start beside it.

The head is the first unit that nothing could be done for. Work that may stop spot runs has a head of its own: spot runs
neither delay it nor keep anything from it. What is kept is worked out when something is about to start behind the head,
so a pass in which nothing fits costs nothing more.
"""

from collections.abc import Mapping

from cumulo.domain.ask import Ask
from cumulo.domain.quantities import format_duration
from cumulo.placement.fit import Place
from cumulo.placement.reserve import Kept, Reservation, cleared, held_places, reserve
from cumulo.placement.world import Waiting, World


class Head:
    """Looks on while `trial`, the world of a pass, fills up. `spot_yields`: spot runs are gone when it needs them."""

    def __init__(self, trial: World, now: float | None, ends: Mapping[str, float], *, spot_yields: bool) -> None:
        self._trial, self._now, self._ends, self._spot_yields = trial, now, ends, spot_yields
        self._blocked: list[
            tuple[Waiting, Ask]
        ] = []  # distinct asks, in their turn; the first that ever fits is the head
        self._kept: Kept | None = None
        self._barred: dict[Ask, str] = {}

    @property
    def there(self) -> bool:
        """Whether anybody waits that could be the head."""
        return self._kept is not None or bool(self._blocked)

    @property
    def reservation(self) -> Reservation | None:
        return self._kept.reservation if self._kept else None

    def blocked(self, waiting: Waiting, ask: Ask) -> None:
        """Takes note of a unit that could not start."""
        if self._now is not None and self._kept is None:
            self._blocked.append((waiting, ask))

    def kept(self) -> Kept | None:
        """What is kept for the head, if there is one."""
        empty = cleared(self._trial) if self._blocked else None
        while self._kept is None and self._blocked:
            self._kept = self._reserve(*self._blocked.pop(0), empty)
        self._blocked.clear()
        return self._kept

    def _reserve(self, waiting: Waiting, ask: Ask, empty: World | None = None) -> Kept | None:
        if self._now is None:
            return None
        return reserve(
            self._trial, waiting, ask, now=self._now, ends=self._ends, spot_yields=self._spot_yields, empty=empty
        )

    def beside(self, waiting: Waiting, ask: Ask, places: tuple[Place, ...]) -> tuple[Place, ...] | str:
        """Where `waiting` may start without delaying the head: at `places` if it can be; else why it may not."""
        kept = self.kept()
        if kept is None or kept.in_time(waiting):
            return places
        if ask in self._barred:
            return self._barred[ask]
        found = kept.beside(self._trial, waiting, ask, places)
        if found is None:
            self._barred[ask] = _text(kept)
            return self._barred[ask]
        return found

    def took(self, waiting: Waiting, places: tuple[Place, ...]) -> None:
        """What has started now."""
        if self._kept is not None:
            self._kept.took(held_places(waiting, places))

    def overtaken(self) -> None:
        """Something started that need not care: what is kept now is less, or nothing."""
        if self._kept is not None:
            head = self._kept.reservation.waiting
            self._barred.clear()
            self._kept = None
            self._blocked.append((head, head.ask))

    def stands(self) -> bool:
        """Whether what was kept is not delayed by what was since cleared away in `trial` for another, and by that."""
        before = self._kept
        if before is None:
            return True
        head = before.reservation.waiting
        after = self._reserve(head, head.ask)
        if after is None or _later(after.reservation, before.reservation):
            return False
        self._barred.clear()
        self._kept = after
        return True


def _text(kept: Kept) -> str:
    head, at = kept.reservation.waiting, kept.reservation.at
    when = "" if at is None else f" in {format_duration(max(0.0, at - kept.now))} at the latest"
    return f"the room is kept for {head.name}, which is next{when} and asked for {head.ask.describe()}"


def _later(after: Reservation, before: Reservation) -> bool:
    if before.at is None:
        return after.at is None and len(after.waits_for) > len(before.waits_for)
    return after.at is None or after.at > before.at
