"""How many CPUs instances keep busy, from one reading of their CPU time to the next."""

import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from cumulo.engines.local.hardware import Held

_TOO_SOON_S: Final = 0.05  # readings closer together than this say nothing about a rate


class _Reading(NamedTuple):
    at: float  # monotonic seconds
    cpu_seconds: float
    busy: float


class Pace:
    """Remembers the last reading of each living instance."""

    def __init__(self) -> None:
        self._before: dict[str, _Reading] = {}

    def busy(self, held: Iterable[Held], now: float) -> dict[str, float]:
        """CPUs busy by instance id since the reading before; at the first reading since its start."""
        self._before = {each.spec.instance_id: self._read(each, now) for each in held}
        return {name: reading.busy for name, reading in self._before.items()}

    def _read(self, held: Held, now: float) -> _Reading:
        since_start = max(0.0, time.time() - held.started_at) if held.started_at is not None else 0.0
        before = self._before.get(held.spec.instance_id, _Reading(now - since_start, 0.0, 0.0))
        if now - before.at <= _TOO_SOON_S:
            return before
        return _Reading(now, held.cpu_seconds, max(0.0, (held.cpu_seconds - before.cpu_seconds) / (now - before.at)))
