"""Where store and engine disagree on what exists: what is missing, and what should not be there.

Missing counts only in a complete observation that is newer than what was asked of the engine and than the last sight
of it. What an engine seems to have forgotten it is asked for again. Something that carries
our cloud id and that the store does not know is a leak: recorded, reported, and stopped if it began after this server
opened the store; an older one may be a run that a restored backup has forgotten, so it is held for the admin. Either
way what it holds is held.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cumulo.control.driver import EngineDriver, Stop
from cumulo.control.live import LiveInstance, Picture
from cumulo.control.moves import stop_of
from cumulo.control.nodes import lost
from cumulo.domain.instance import InstanceParts, Observation, ObservedInstance, parse_instance_id
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.placement.world import Hold, OverHeld
from cumulo.store import picture
from cumulo.store.batch import Batch
from cumulo.store.database import Database
from cumulo.store.events import NewEvent

log = logging.getLogger(__name__)

LEAK_GRACE_S: Final = 30.0
# An instance that is still missing after it was asked for so often, once a complete look, will not come.
MOST_ASKS: Final = 300
# A stop is told again when an instance runs on for so long after its grace.
STOP_AGAIN_S: Final = 10.0
# How long observations may be on their way.
REMEMBER_S: Final = 600.0
_ENDING: Final = (InstanceState.STOPPING, InstanceState.ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """An instance of ours that the store does not know."""

    instance_id: str
    region: str
    node: str
    since: float
    stopped: bool
    text: str
    hold: Hold


class Absences:
    """Remembers what was asked of which engine when, and the leaks that were found."""

    def __init__(self, db: Database, drivers: dict[str, EngineDriver], *, cloud_id: str, opened_at: float) -> None:
        self.leaks: dict[str, Leak] = {}
        self._db, self._drivers, self._cloud_id, self._opened_at = db, drivers, cloud_id, opened_at
        self._untold: set[str] = set()  # leaks whose event is not in the store yet
        self._known_at: dict[str, float] = {}  # when it was asked for or seen last: absence counts after that
        self._asks: Counter[str] = Counter()
        self._stopped_at: dict[str, float] = {}  # when a stop was told last
        self._over_at: dict[str, float] = {}  # when the end of what was seen running was taken in

    def told(self, instance_ids: Iterable[str], now: float) -> None:
        """The engine has just been asked to start these."""
        for instance_id in instance_ids:
            self._known_at[instance_id] = now
            self._asks[instance_id] += 1

    def told_to_stop(self, instance_ids: Iterable[str], now: float) -> None:
        self._stopped_at.update((instance_id, now) for instance_id in instance_ids)

    def forget(self, instance_ids: Iterable[str], now: float) -> None:
        """These are over. What is seen of them from now on is news; what was seen before is not."""
        self._over_at = {name: at for name, at in self._over_at.items() if now - at < REMEMBER_S}
        for instance_id in instance_ids:
            self._over_at[instance_id] = now
            self._known_at.pop(instance_id, None)
            self._asks.pop(instance_id, None)
            self._stopped_at.pop(instance_id, None)

    def written(self) -> None:
        """What was noted in the step's batch is in the store."""
        self._untold.clear()

    def restore(self, seen: Picture) -> None:
        """What leaks hold is held on a picture that was read afresh, and on a node that was not there before."""
        for leak in self.leaks.values():
            _hold(seen, leak)

    def sighted(self, seen: Picture, observation: Observation) -> None:
        """Takes note of what is there, so that an older observation that arrives later proves nothing."""
        for observed in observation.instances:
            if observed.instance_id in seen.instances or observed.instance_id in self.leaks:
                before = self._known_at.get(observed.instance_id, 0.0)
                self._known_at[observed.instance_id] = max(before, observation.as_of)

    def unstopped(self, seen: Picture, observation: Observation) -> dict[str, Stop]:
        """Instances, and how they are to end, that run on although they were told to stop and their grace is over."""
        found: dict[str, Stop] = {}
        for observed in observation.instances:
            instance = seen.instances.get(observed.instance_id)
            if instance is None or instance.stop_reason is None or observed.state in _ENDING:
                continue
            grace_s = instance.stop_grace_s or 0.0
            if observation.as_of > self._stopped_at.get(instance.id, 0.0) + grace_s + STOP_AGAIN_S:
                found[instance.id] = stop_of(instance)
        return found

    def missing(
        self, seen: Picture, region: str, observation: Observation
    ) -> tuple[list[tuple[LiveInstance, ObservedInstance]], list[LiveInstance]]:
        """(what is over, as what it must be taken for; what must be asked for again)."""
        if not observation.complete:
            return [], []
        there = {observed.instance_id for observed in observation.instances}
        over: list[tuple[LiveInstance, ObservedInstance]] = []
        again: list[LiveInstance] = []
        for instance in list(seen.instances.values()):
            if instance.region != region or instance.id in there or instance.ended:
                continue
            if observation.as_of <= self._known_at.get(instance.id, 0.0):
                continue
            if instance.started_at is not None:
                text = "its engine no longer knows it; was its folder deleted?"
                over.append((instance, lost(instance, text, observation.as_of)))
            elif instance.stop_reason is not None:
                text = "it was stopped before it started"
                over.append((instance, _never_started(instance, EndReason.CANCELLED, text, observation.as_of)))
            elif self._asks[instance.id] >= MOST_ASKS:
                text = "its engine never took it in"
                over.append((instance, _never_started(instance, EndReason.START_FAILED, text, observation.as_of)))
            else:
                again.append(instance)
        for leak in [leak for leak in self.leaks.values() if leak.region == region]:
            if leak.instance_id not in there and observation.as_of > self._known_at.get(leak.instance_id, 0.0):
                self._let_go(seen, leak.instance_id, observation.as_of)
        return over, again

    def unexpected(
        self, seen: Picture, batch: Batch, region: str, observed: ObservedInstance, as_of: float, now: float
    ) -> None:
        """An engine has something that is not in the picture."""
        if observed.cloud_id != self._cloud_id:
            return  # somebody else's: the engine counts it as use, and we never touch it
        if as_of <= self._over_at.get(observed.instance_id, 0.0):
            return  # it was seen before its end was
        if leak := self.leaks.get(observed.instance_id):
            if leak.instance_id in self._untold:
                _tell(batch, leak, now)
            if observed.state is InstanceState.ENDED:
                self._let_go(seen, leak.instance_id, as_of)
                self._drivers[region].ask(release=[leak.instance_id])
            return
        with self._db.read() as tx:
            known = picture.instance_state(tx, observed.instance_id)
        if observed.state is InstanceState.ENDED:
            if known in (None, InstanceState.ENDED):
                self._drivers[region].ask(release=[observed.instance_id])
        elif known == InstanceState.ENDED:
            text = "was taken for ended; it is being stopped"
            self._found(seen, batch, region, observed, as_of, now, stop=True, why=text)
        elif known is None:
            young = (observed.started_at or now) >= self._opened_at
            what = "it is being stopped" if young else "it is older than this server's start, so the admin must decide"
            self._found(seen, batch, region, observed, as_of, now, stop=young, why=f"is not in the store; {what}")

    def _found(
        self,
        seen: Picture,
        batch: Batch,
        region: str,
        observed: ObservedInstance,
        as_of: float,
        now: float,
        *,
        stop: bool,
        why: str,
    ) -> None:
        text = f"{observed.instance_id} runs on {observed.node} but {why}"
        log.warning("leak: %s", text)
        parts = _parts(observed.instance_id)
        hold = Hold(
            instance_id=observed.instance_id,
            run_id=parts.run_id if parts else "",
            run_name=f"leak {observed.instance_id}",
            node_id=f"{region}/{observed.node}",
            cpus_milli=0,
            memory_bytes=0,
            slices=observed.slices or (),
            project="",  # it counts against nobody
            lasting=True,
        )
        leak = Leak(
            instance_id=hold.instance_id,
            region=region,
            node=observed.node,
            since=now,
            stopped=stop,
            text=text,
            hold=hold,
        )
        self.leaks[leak.instance_id] = leak
        self._known_at[leak.instance_id] = as_of
        self._untold.add(leak.instance_id)
        _tell(batch, leak, now)
        _hold(seen, leak)
        if stop:
            self._drivers[region].ask(stop={observed.instance_id: Stop(LEAK_GRACE_S)})

    def _let_go(self, seen: Picture, instance_id: str, as_of: float) -> None:
        self._over_at[instance_id] = as_of
        del self.leaks[instance_id]
        self._untold.discard(instance_id)
        self._known_at.pop(instance_id, None)
        seen.world.release(instance_id)
        left = (_parts(other) for other in self.leaks)
        seen.leaked = {parts[:3] for parts in left if parts}


def _parts(instance_id: str) -> InstanceParts | None:
    """What the id says; None for what is no instance's id."""
    try:
        return parse_instance_id(instance_id)
    except ValueError:
        return None


def _tell(batch: Batch, leak: Leak, now: float) -> None:
    batch.event(NewEvent(at=now, kind="instance.leaked", message=leak.text, project="default", account=""))


def _hold(seen: Picture, leak: Leak) -> None:
    if parts := _parts(leak.instance_id):
        seen.leaked.add(parts[:3])
    if leak.instance_id in seen.world.holds or leak.hold.node_id not in seen.world.nodes:
        return
    try:
        seen.world.hold(leak.hold)
    except OverHeld as error:
        log.error("a leak holds what is held already: %s", error)


def _never_started(instance: LiveInstance, reason: EndReason, message: str, now: float) -> ObservedInstance:
    return ObservedInstance(
        instance_id=instance.id,
        cloud_id="",
        state=InstanceState.ENDED,
        ended_at=now,
        reason=reason,
        message=message,
    )
