"""The heads of the queue during a pass: who they are, what is kept for them, and what may start beside them.

The heads are the first units that nothing could be done for. Work that may stop spot runs has heads of its own: spot
runs neither delay them nor keep anything from them. What is kept is worked out when something is about to start behind
the heads, so a pass in which nothing fits costs nothing more.
"""

from collections.abc import Mapping

from cumulo.domain.ask import Ask
from cumulo.domain.quantities import format_duration
from cumulo.placement.fit import Place, choose
from cumulo.placement.reserve import Exchange, Kept, Reservation, cleared, held_places, reserve
from cumulo.placement.world import Hold, Waiting, World


class Heads:
    """Looks on while `trial`, the world of a pass, fills up. `spot_yields`: spot runs get out of the way."""

    def __init__(
        self, trial: World, now: float | None, ends: Mapping[str, float], *, most: int, spot_yields: bool
    ) -> None:
        self._trial, self._now, self._ends, self._most, self._spot_yields = trial, now, ends, most, spot_yields
        self._blocked: list[tuple[Waiting, Ask]] = []  # distinct asks, in their turn
        self._kept: list[Kept] = []
        self._barred: dict[Ask, Kept] = {}  # asks that would delay a head wherever they start
        self._others: World | None = None  # the nodes that no head needs, as they are now
        self._empty: World | None = None

    @property
    def there(self) -> bool:
        """Whether anybody waits that room could be kept for."""
        return bool(self._kept or self._blocked)

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        return tuple(kept.reservation for kept in self._kept)

    def blocked(self, waiting: Waiting, ask: Ask) -> None:
        """Takes note of a unit that could not start."""
        if self._now is not None and len(self._kept) < self._most:
            self._blocked.append((waiting, ask))

    def kept(self) -> list[Kept]:
        """What is kept, for those that come first."""
        while self._blocked and len(self._kept) < self._most:
            found = self._reserve(*self._blocked.pop(0))
            if found is not None:
                self._kept.append(found)
                self._others = None
        self._blocked.clear()
        return self._kept

    def _reserve(self, waiting: Waiting, ask: Ask) -> Kept | None:
        if self._now is None:
            return None
        self._empty = self._empty or cleared(self._trial)
        return reserve(
            self._trial, waiting, ask, now=self._now, ends=self._ends, spot_yields=self._spot_yields, empty=self._empty
        )

    def beside(self, waiting: Waiting, ask: Ask, places: tuple[Place, ...]) -> tuple[Place, ...] | str:
        """Where `waiting` may start without delaying a head: at `places` if it can be; else why it may not."""
        delayed = [kept for kept in self.kept() if not kept.in_time(waiting)]
        if any(self._barred.get(ask) is kept for kept in delayed):
            return _text(self._barred[ask])
        against = _exchange([(kept, held_places(waiting, places)) for kept in delayed])
        if against is None:
            return places
        elsewhere = choose(self._rest(), ask)
        if elsewhere and _exchange([(kept, held_places(waiting, elsewhere)) for kept in delayed]) is None:
            return elsewhere
        if len(delayed) == len(self._kept):
            self._barred[ask] = against
        return _text(against)

    def _rest(self) -> World:
        if self._others is None:
            needed = frozenset[str]().union(*(kept.reservation.node_ids for kept in self._kept))
            nodes = {name: use.copy() for name, use in self._trial.nodes.items() if name not in needed}
            self._others = World(nodes=nodes, may_change_mode=self._trial.may_change_mode)
        return self._others

    def took(self, waiting: Waiting, places: tuple[Place, ...]) -> None:
        """What has started now."""
        if self._others is not None:
            for hold in held_places(waiting, places):
                if hold.node_id in self._others.nodes:
                    self._others.hold(hold)

    def overtaken(self) -> None:
        """Something started that need not care: what is kept now is less, or nothing."""
        heads = [kept.reservation.waiting for kept in self._kept]
        self._forget()
        self._blocked = [(head, head.ask) for head in heads] + self._blocked

    def stands(self, waiting: Waiting, made: Exchange) -> bool:
        """Whether no head is delayed by what was cleared away for `waiting` and what came; if none, it is noted."""
        moved = tuple(hold for hold in made.taken if hold.run_id != waiting.key[0])
        if _exchange([(kept, moved if kept.in_time(waiting) else made.taken) for kept in self._kept], made.gone):
            return False
        self._others = None
        return True

    def _forget(self) -> None:
        self._kept, self._others = [], None
        self._barred.clear()


def _exchange(taken: list[tuple[Kept, tuple[Hold, ...]]], gone: tuple[Hold, ...] = ()) -> Kept | None:
    """Carries an exchange out in all futures, in each with what comes there; or in none, and whom it would delay."""
    done: list[tuple[Kept, Exchange]] = []
    for kept, holds in taken:
        made = kept.exchange(gone, holds)
        if made is None:
            for other, its in done:
                its.undo(other.future)
            return kept
        done.append((kept, made))
    return None


def _text(kept: Kept) -> str:
    head, at = kept.reservation.waiting, kept.reservation.at
    when = "" if at is None else f" in {format_duration(max(0.0, at - kept.now))} at the latest"
    return f"the room is kept for {head.name}, which is next{when} and asked for {head.ask.describe()}"
