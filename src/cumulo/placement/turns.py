"""Whose turn it is: priority first, then what a project is sure of, then its share, then age.

Nothing is sorted twice: each project's units stand in a heap of their own, and the projects in another, so that a turn
costs O(log n) with n units waiting.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from cumulo.domain.ask import Ask
from cumulo.placement.fit import admitted_kinds
from cumulo.placement.policy import Policy
from cumulo.placement.quota import least_milli
from cumulo.placement.shares import Shares
from cumulo.placement.world import Waiting, World

_Aged = tuple[float, tuple[str, int, int], Waiting]


class Turns:
    """Iterates over the queue. Shares are asked anew after each turn, since what was placed in it changes them."""

    def __init__(self, queue: Iterable[Waiting], world: World, policy: Policy, shares: Shares | None) -> None:
        self._world, self._policy, self._shares = world, policy, shares
        self._levels: dict[int, dict[str, list[_Aged]]] = defaultdict(lambda: defaultdict(list))
        self._kinds: dict[Ask, frozenset[str]] = {}
        for waiting in queue:
            # Without shares all projects are one.
            project = waiting.project if shares else ""
            self._levels[waiting.priority][project].append((waiting.accepted_at, waiting.key, waiting))

    def __iter__(self) -> Iterator[Waiting]:
        for priority in sorted(self._levels, reverse=True):
            level = self._levels[priority]
            for units in level.values():
                heapify(units)
            if self._shares is not None and len(level) > 1:
                yield from self._fairly(level, self._shares)
                continue
            for units in level.values():
                while units:
                    yield heappop(units)[2]

    def _fairly(self, level: dict[str, list[_Aged]], shares: Shares) -> Iterator[Waiting]:
        order = [(*self._claim(project, units, shares), project) for project, units in level.items()]
        heapify(order)
        while order:
            project = heappop(order)[-1]
            units = level[project]
            yield heappop(units)[2]
            if units:
                heappush(order, (*self._claim(project, units, shares), project))

    def _claim(self, project: str, units: list[_Aged], shares: Shares) -> tuple[bool, float, float]:
        accepted_at, _, waiting = units[0]
        return not self._sure(waiting, shares), shares.of(project), accepted_at

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
