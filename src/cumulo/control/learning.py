"""What placement learns from what happens here: how long runs take, what is submitted, and how its forecasts fared.

It lives beside the picture and outlasts it: when the picture is read afresh, what was learnt stays. At the start it is
taken from the last runs in the store. Nothing of it decides anything: it is for those who ask when a run will start.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sqlalchemy import RowMapping

from cumulo.domain.lifecycle import EndReason
from cumulo.placement.cast import Key, Past
from cumulo.placement.record import Range
from cumulo.placement.traits import Traits, family, traits_of

if TYPE_CHECKING:
    from cumulo.control.live import LiveInstance, LiveRun

# How many ended runs are read at the start, and how many forecasts are remembered until the run starts.
MOST_ENDED: Final = 500
MOST_TOLD: Final = 2000
_BY_ITSELF: Final = frozenset({EndReason.SUCCEEDED, EndReason.FAILED, EndReason.TIMEOUT})


@dataclass(slots=True)
class Learning:
    """What is known so far, and what was told of runs that have not started yet: when, and which range."""

    past: Past = field(default_factory=Past)
    told: dict[Key, tuple[float, Range]] = field(default_factory=dict)

    def accepted(self, run: "LiveRun") -> None:
        """A run was accepted."""
        for waiting in run.waiting(run.accepted_at, 1):
            self.past.arrivals.learn(waiting)

    def tell(self, key: Key, now: float, raw: Range | None) -> None:
        """Somebody was told when it starts. The first word counts: later ones are easier."""
        if raw is not None and key not in self.told:
            self.told[key] = now, raw
            if len(self.told) > MOST_TOLD:
                del self.told[next(iter(self.told))]

    def placed(self, key: Key, now: float) -> None:
        """It started."""
        told = self.told.pop(key, None)
        if told is not None:
            self.past.record.learn(told[1], told[0], now)

    def ended(self, instance: "LiveInstance", run: "LiveRun") -> None:
        """An instance ended. Those of one attempt end together: the first speaks for all."""
        if instance.rank or instance.started_at is None or instance.ended_at is None:
            return
        mine = run.waits_as(instance.unit, instance.attempt)
        took = instance.ended_at - instance.started_at
        self.past.durations.learn(traits_of(mine), took, ended=instance.reason in _BY_ITSELF)

    def remember(self, rows: Iterable[RowMapping]) -> None:
        """Takes in what ended before the server started, the oldest first: rows of `store.picture.ended_attempts`."""
        for row in rows:
            spec = json.loads(row["spec"])
            gpu = spec["ask"]["gpu"]
            traits = Traits(
                project=row["project"],
                account=row["account"],
                family=family(spec["name"]),
                gpus=gpu["count_min"] * spec["ask"]["nodes"] if gpu else 0,
                limit_s=spec["max_duration_s"],
            )
            ended = row["reason"] in _BY_ITSELF
            self.past.durations.learn(traits, row["ended_at"] - row["started_at"], ended=ended)
