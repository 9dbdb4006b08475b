"""Whose turn it is: priority first, then who bids most, then what a project is sure of, its share, who is due first.

Only spot runs bid; all others, and spot runs that pay whatever it costs, come before those that named a price.

A unit is due once it has waited `stretch` times its own length:

    due = accepted + stretch * length

With a stretch of 0 that is age alone. With more, short units pass long ones, as in shortest-first; but only units that
came before a unit was due can come before it, so unlike there nothing starves, however many short ones follow. (It is
earliest-deadline-first, Liu and Layland, JACM 20(1), 1973, with deadlines that ask the same slowdown of all.) The
length is what is expected, else what was declared, else UNTOLD_S.

Nothing is sorted twice: each project's units stand in a heap of their own, and the projects in another, so that a turn
costs O(log n) with n units waiting.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from operator import itemgetter

from cumulo.domain.ask import Ask
from cumulo.placement.fit import admitted_kinds
from cumulo.placement.policy import UNTOLD_S, Policy
from cumulo.placement.quota import least_milli
from cumulo.placement.shares import Shares
from cumulo.placement.world import Waiting, World, most_bid

_Due = tuple[float, float, tuple[str, int, int], Waiting]


def due(waiting: Waiting, stretch: float) -> float:
    """When a unit should have started (epoch seconds)."""
    return waiting.accepted_at + stretch * (UNTOLD_S if waiting.duration_s is None else waiting.duration_s)


class Turns:
    """Iterates over the queue. Shares are asked anew after each turn, since what was placed in it changes them."""

    def __init__(
        self, queue: Iterable[Waiting], world: World, policy: Policy, shares: Shares | None, stretch: float
    ) -> None:
        self._world, self._policy, self._shares = world, policy, shares
        self._levels: dict[tuple[int, float], dict[str, list[_Due]]] = defaultdict(lambda: defaultdict(list))
        self._kinds: dict[Ask, frozenset[str]] = {}
        for waiting in queue:
            # Without shares all projects are one.
            project = waiting.project if shares else ""
            unit = due(waiting, stretch), waiting.accepted_at, waiting.key, waiting
            self._levels[waiting.priority, most_bid(waiting.bid_nano_h)][project].append(unit)

    def __iter__(self) -> Iterator[Waiting]:
        for _, level in sorted(self._levels.items(), key=itemgetter(0), reverse=True):
            for units in level.values():
                heapify(units)
            if self._shares is not None and len(level) > 1:
                yield from self._fairly(level, self._shares)
                continue
            for units in level.values():
                while units:
                    yield heappop(units)[-1]

    def _fairly(self, level: dict[str, list[_Due]], shares: Shares) -> Iterator[Waiting]:
        order = [(*self._claim(project, units, shares), project) for project, units in level.items()]
        heapify(order)
        while order:
            project = heappop(order)[-1]
            units = level[project]
            yield heappop(units)[-1]
            if units:
                heappush(order, (*self._claim(project, units, shares), project))

    def _claim(self, project: str, units: list[_Due], shares: Shares) -> tuple[bool, float, float]:
        due_at, *_, waiting = units[0]
        return not self._sure(waiting, shares), shares.of(project), due_at

    def _sure(self, waiting: Waiting, shares: Shares) -> bool:
        """Whether its project is sure of what it asks, of any kind that will do."""
        if not self._policy.rules(waiting.project).guaranteed:
            return False
        least = least_milli(waiting.ask)
        return any(shares.guaranteed(waiting.project, kind, least) for kind in self.kinds(waiting.ask))

    def kinds(self, ask: Ask) -> frozenset[str]:
        """The GPU kinds of this world that will do."""
        if ask.gpu is None:
            return frozenset()
        known = self._kinds.get(ask)
        if known is None:
            admitted, there = admitted_kinds(ask.gpu, self._world), self._world.models()
            known = self._kinds[ask] = there if admitted is None else admitted & there
        return known
