"""What is likely to be submitted next: the latest arrivals, as a stream to be drawn from again.

Work yet to come delays what waits: it is more urgent, or fits where what waits does not. Nothing is assumed of its law;
what came lately comes again in blocks, with the gaps it came in (the block bootstrap of Künsch, Annals of Statistics
17(3), 1989), so bursts stay bursts. Nor does it come for ever: that a stream seen for a time T goes on for t more has
the probability T / (T + t) (Gott, "Implications of the Copernican principle", Nature 363, 1993).
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from cumulo.placement.world import Waiting

MOST_REMEMBERED: Final = 256
# Fewer say nothing about a rate.
LEAST: Final = 10


@dataclass(slots=True)
class Arrivals:
    """The latest units that came to wait, by the time they were accepted (epoch seconds)."""

    since: float | None = None  # when the first came
    _latest: deque[Waiting] = field(default_factory=lambda: deque(maxlen=MOST_REMEMBERED))

    def learn(self, waiting: Waiting) -> None:
        """Takes in a unit when it is accepted, so in the order of acceptance."""
        self._latest.append(waiting)
        if self.since is None:
            self.since = waiting.accepted_at

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._latest)

    def again(self, now: float, part: float, lasting: float) -> Iterator[tuple[float, int]]:
        """A stream of (when, which of the remembered) from `now` on; empty while too little is remembered.

        It begins at `part` (0 <= part < 1) of what is remembered, and goes on for as long as with the probability
        `lasting` (0 <= lasting < 1) it does not outlast.
        """
        latest = list(self._latest)
        if len(latest) < LEAST or self.since is None:
            return
        last = now + (now - self.since) * lasting / (1.0 - lasting)
        # The time since the last arrival is a gap too, at least so far: a stream that has dried up comes slower.
        span = max(now, latest[-1].accepted_at) - latest[0].accepted_at
        mean = max(span / len(latest), 1e-3)
        place = int(part * len(latest))
        at = now + mean * (part * len(latest) - place)
        while at <= last:
            yield at, place
            place += 1
            if place == len(latest):
                place = 0
                at += mean
            else:
                at += latest[place].accepted_at - latest[place - 1].accepted_at
