"""What projects have used, so that fair shares have a memory: sampled as time passes, read from the store at start.

Each time it is sampled, every project is charged with what it holds as if it had held that since the last time. What
came and went in between is missed as often as what stayed is counted for too long.
"""

from typing import Final

from sqlalchemy import Connection

from cumulo.placement.shares import Resources, Usage, holdings
from cumulo.placement.world import World
from cumulo.store import people
from cumulo.store.used import used

EVERY_S: Final = 5.0
# What is older than so many half-lives counts for less than a thousandth.
HALF_LIVES: Final = 10
# Into how many buckets a half-life is cut where use is added up.
BUCKETS: Final = 64


class Ledger:
    """Keeps `usage` up to date. It outlasts the picture, which may be thrown away and read again."""

    def __init__(self, half_life_s: float) -> None:
        self.usage = Usage(half_life_s)
        self._sampled_at: float | None = None

    def restore(self, tx: Connection, now: float) -> None:
        """Takes in what the store has of the past, once."""
        if self._sampled_at is not None:
            return
        half_life_s = self.usage.half_life_s
        self.usage.advance({}, now)
        self._sampled_at = now
        if len(people.projects(tx, limit=2)) < 2:
            return  # there is nobody to share with
        since, bucket_s = now - HALF_LIVES * half_life_s, half_life_s / BUCKETS
        for piece in used(tx, since=since, bucket_s=bucket_s, now=now):
            amounts = Resources(piece.gpus_milli, piece.cpus_milli, piece.memory_bytes)
            self.usage.charge(piece.project, amounts, piece.seconds, piece.until)

    def sample(self, world: World, now: float) -> None:
        """Charges what is held, if it is time: looking at all that is held at every step would cost too much."""
        if self._sampled_at is None or now - self._sampled_at >= min(EVERY_S, self.usage.half_life_s / BUCKETS):
            self.usage.advance(holdings(world), now)
            self._sampled_at = now
