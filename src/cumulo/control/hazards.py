"""What spot has been like in each pool (region and GPU kind): learnt from this cloud's own attempts, from priors on.

Up is for how long spot had not been taken from anybody: an instance tells that it stayed, from when it started, until
somebody took its place or it ended otherwise. Down is how long spot units waited, where they had to. Both stand in the
store with the attempts, so a server that starts knows what the last one did.
"""

from bisect import bisect, insort
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import RowMapping

from cumulo.control.live import LiveInstance
from cumulo.control.prices import Pool
from cumulo.domain.lifecycle import EndReason
from cumulo.domain.run import PurchaseOption
from cumulo.market.hazards import Hazards, Priors, Spell, learn

# How many spells are remembered of a pool, and how many attempts are read at the start.
MOST_SPELLS: Final = 1000
MOST_READ: Final = 4000
# A start that took less had not to wait for spot.
AT_ONCE_S: Final = 5.0
# A pool in which spot was never taken from anybody has been calm for as long as is worth telling.
CALM_S: Final = 7 * 86400.0
# A pool's hazards are learnt anew once so many of its spells are news.
_NEWS: Final = 0.05


@dataclass(slots=True)
class _History:
    """One pool's spells, and what was learnt from how many of them."""

    spells: deque[Spell] = field(default_factory=lambda: deque(maxlen=MOST_SPELLS))
    seen: int = 0
    learnt_of: int = 0
    hazards: Hazards | None = None
    losses: list[float] = field(default_factory=list)  # when spot was taken from somebody, in order
    begun: list[float] = field(default_factory=list)  # when somebody got it, in order


class SpotHistory:
    """Keeps what is known of every pool. It outlasts the picture."""

    def __init__(self, priors: Priors) -> None:
        self._priors = priors
        self._pools: dict[Pool, _History] = defaultdict(_History)

    def hazards(self, pool: Pool) -> Hazards:
        """What is known of the pool now: the priors, where it has no history."""
        history = self._pools[pool]
        if history.hazards is None or history.seen - history.learnt_of > _NEWS * history.learnt_of:
            history.hazards = learn(history.spells, self._priors)
            history.learnt_of = history.seen
        return history.hazards

    def version(self, pool: Pool) -> int:
        """Changes whenever the pool's hazards were learnt anew."""
        self.hazards(pool)
        return self._pools[pool].learnt_of

    def calm_s(self, pool: Pool, at: float) -> float:
        """For how long spot had been there at a moment: since somebody got it after it was last taken from anybody.

        Where nobody has asked for it since, nobody knows when it came back, and it is since it was taken.
        """
        history = self._pools[pool]
        earlier = bisect(history.losses, at)
        if not earlier:
            return CALM_S
        lost_at = history.losses[earlier - 1]
        first = bisect(history.begun, lost_at)
        back = first < len(history.begun) and history.begun[first] <= at
        return min(CALM_S, at - (history.begun[first] if back else lost_at))

    def ended(self, instance: LiveInstance) -> None:
        """An instance ended; those of one attempt end together, and the first speaks for all."""
        if instance.rank == 0 and instance.purchase is PurchaseOption.SPOT and instance.ended_at is not None:
            lost, pool = EndReason.PREEMPTED in (instance.reason, instance.stop_reason), pool_of(instance)
            if lost:
                _note(self._pools[pool].losses, instance.ended_at)
            self._lasted(pool, instance.started_at, instance.ended_at, lost=lost)

    def placed(self, instance: LiveInstance, waited_from: float) -> None:
        """An instance was placed, whose unit has waited since then."""
        if instance.rank == 0 and instance.purchase is PurchaseOption.SPOT:
            pool = pool_of(instance)
            _note(self._pools[pool].begun, instance.placed_at)
            self.waited(pool, instance.placed_at - waited_from, came=True)

    def waited(self, pool: Pool, seconds: float, *, came: bool) -> None:
        """A unit waited for spot, until it `came` or the unit took something else."""
        if seconds >= AT_ONCE_S:
            self._learn(pool, Spell(False, 0.0, seconds, came))

    def remember(self, rows: Iterable[RowMapping]) -> None:
        """Takes in what was before the server started: rows of `store.picture.spot_attempts`, in order."""
        before: dict[tuple[str, int], RowMapping] = {}
        attempts = list(rows)
        for row in attempts:
            if row["purchase"] == PurchaseOption.SPOT:
                history = self._pools[Pool(row["region"], row["device_model"])]
                _note(history.begun, row["placed_at"])
                if row["reason"] == EndReason.PREEMPTED:
                    _note(history.losses, row["ended_at"])
        for row in attempts:
            last = before.get((row["run_id"], row["unit"]))
            before[row["run_id"], row["unit"]] = row
            if row["purchase"] != PurchaseOption.SPOT:
                continue
            pool = Pool(row["region"], row["device_model"])
            waited_from = last["ended_at"] if last else row["accepted_at"]
            if waited_from is not None and (last is not None or row["attempt"] == 1):
                self.waited(pool, row["placed_at"] - waited_from, came=True)
            if row["ended_at"] is not None:
                lost = row["reason"] == EndReason.PREEMPTED
                self._lasted(pool, row["started_at"], row["ended_at"], lost=lost)

    def _lasted(self, pool: Pool, started_at: float | None, ended_at: float, *, lost: bool) -> None:
        if started_at is not None:
            age_s = self.calm_s(pool, started_at)
            self._learn(pool, Spell(True, age_s, age_s + max(0.0, ended_at - started_at), lost))

    def _learn(self, pool: Pool, spell: Spell) -> None:
        self._pools[pool].spells.append(spell)
        self._pools[pool].seen += 1

    def counts(self) -> Mapping[Pool, int]:
        """How many spells were seen of each pool."""
        return {pool: history.seen for pool, history in self._pools.items() if history.seen}


def _note(times: list[float], at: float) -> None:
    insort(times, at)
    del times[:-MOST_SPELLS]


def pool_of(instance: LiveInstance) -> Pool:
    """Where an instance is bought."""
    return Pool(instance.region, instance.device_model)
