"""What the nodes could take if nobody held anything of them: every submit asks, so what was found is kept."""

from typing import Final

from cumulo.domain.ask import Ask
from cumulo.placement.explain import reasons
from cumulo.placement.fit import choose
from cumulo.placement.world import World

_MOST_KEPT: Final = 4096


class Capacity:
    """`world` has the nodes and no holds. It is never changed, only replaced, so any thread may ask it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._taken: set[Ask] = set()

    def takes(self, ask: Ask) -> bool:
        """Whether waiting could be enough for the ask to start here. Why it is not is for `reasons` to say."""
        if ask in self._taken:
            return True
        if choose(self.world, ask) is None and not reasons(self.world, ask).ever:
            return False
        if len(self._taken) >= _MOST_KEPT:
            self._taken = set()
        self._taken.add(ask)
        return True
