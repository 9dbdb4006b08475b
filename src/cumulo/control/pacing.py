"""When to look over the queue again: a pass that finds nothing to do on a large cloud costs what others wait for.

A pass after which something was placed or stopped is followed by the next at once. One that changed nothing need not be
repeated before something else has; then it gets half of the loop's time at most, and a twentieth for what comes with
time alone (a retry, an end that is late).
"""

from typing import Final

_HALF: Final = 1.0
_TWENTIETH: Final = 19.0


class Pacing:
    """Told what happens; tells whether a pass is due. Times are of one clock, in seconds."""

    def __init__(self) -> None:
        self._changed = True
        self._ended, self._cost = 0.0, 0.0

    def changed(self) -> None:
        """Something came, went, or is wanted otherwise: another pass may find something to do."""
        self._changed = True

    def wait(self, now: float) -> float:
        """How long until a pass is due; 0 if it is."""
        times = _HALF if self._changed else _TWENTIETH
        return max(0.0, self._ended + times * self._cost - now)

    def passed(self, began: float, ended: float, *, did: bool) -> None:
        """A pass was made; `did`: it placed or stopped something."""
        self._changed = did
        self._ended, self._cost = ended, 0.0 if did else max(0.0, ended - began)
