"""Where store and engine disagree on what exists: what is missing, and what should not be there.

Missing counts only in a complete observation that is newer than what was asked of the engine. Something that carries
our cloud id and that the store does not know is a leak: recorded, reported, and stopped if it began after this server
opened the store; an older one may be a run that a restored backup has forgotten, so it is held for the admin. Either
way what it holds is held.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from cumulo.control.driver import EngineDriver
from cumulo.control.live import LiveInstance, Picture
from cumulo.control.nodes import lost
from cumulo.domain.instance import Observation, ObservedInstance, parse_instance_id
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.placement.world import Hold, OverHeld
from cumulo.store import picture
from cumulo.store.batch import Batch
from cumulo.store.database import Database
from cumulo.store.events import NewEvent

log = logging.getLogger(__name__)

LEAK_GRACE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """An instance of ours that the store does not know."""

    instance_id: str
    region: str
    node: str
    since: float
    stopped: bool
    text: str


class Absences:
    """Remembers what was asked of which engine when, and the leaks that were found."""

    def __init__(self, db: Database, drivers: dict[str, EngineDriver], *, cloud_id: str, opened_at: float) -> None:
        self.leaks: dict[str, Leak] = {}
        self._db, self._drivers, self._cloud_id, self._opened_at = db, drivers, cloud_id, opened_at
        self._told_at: dict[str, float] = {}

    def told(self, instance_ids: Iterable[str], now: float) -> None:
        """The engine has just been asked to start these."""
        self._told_at.update((instance_id, now) for instance_id in instance_ids)

    def forget(self, instance_ids: Iterable[str]) -> None:
        for instance_id in instance_ids:
            self._told_at.pop(instance_id, None)

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
            if observation.as_of <= self._told_at.get(instance.id, 0.0):
                continue
            if instance.started_at is not None:
                text = "its engine no longer knows it; was its folder deleted?"
                over.append((instance, lost(instance, text, observation.as_of)))
            elif instance.stop_reason is not None:
                over.append((instance, _never_started(instance, observation.as_of)))
            else:
                again.append(instance)
        self._gone_leaks(seen, region, there)
        return over, again

    def _gone_leaks(self, seen: Picture, region: str, there: set[str]) -> None:
        for instance_id in [i for i, leak in self.leaks.items() if leak.region == region and i not in there]:
            del self.leaks[instance_id]
            seen.world.release(instance_id)

    def unexpected(self, seen: Picture, batch: Batch, region: str, observed: ObservedInstance, now: float) -> None:
        """An engine has something that is not in the picture."""
        if observed.cloud_id != self._cloud_id:
            return  # somebody else's: the engine counts it as use, and we never touch it
        if observed.instance_id in self.leaks:
            if observed.state is InstanceState.ENDED:
                self._end_leak(seen, observed)
            return
        with self._db.read() as tx:
            known = picture.instance_state(tx, observed.instance_id)
        if known == InstanceState.ENDED:
            self._over_already(region, observed)
        elif known is not None:
            return  # of an attempt that the picture has not read yet
        elif observed.state is InstanceState.ENDED:
            self._drivers[region].ask(release=[observed.instance_id])
        else:
            self._found(seen, batch, region, observed, now)

    def _over_already(self, region: str, observed: ObservedInstance) -> None:
        """The store has its end: the engine may forget it, or must end it."""
        driver = self._drivers[region]
        if observed.state is InstanceState.ENDED:
            driver.ask(release=[observed.instance_id])
        else:
            driver.ask(stop={observed.instance_id: LEAK_GRACE_S})

    def _found(self, seen: Picture, batch: Batch, region: str, observed: ObservedInstance, now: float) -> None:
        young = (observed.started_at or now) >= self._opened_at
        what = "it is being stopped" if young else "it is older than this server's start, so it is left to the admin"
        text = f"{observed.instance_id} runs on {observed.node} but the store does not know it; {what}"
        log.warning("leak: %s", text)
        self.leaks[observed.instance_id] = Leak(
            instance_id=observed.instance_id, region=region, node=observed.node, since=now, stopped=young, text=text
        )
        event = NewEvent(at=now, kind="instance.leaked", message=text, project="default", account="")
        batch.event(event)
        node_id = f"{region}/{observed.node}"
        try:
            run_id = parse_instance_id(observed.instance_id).run_id
        except ValueError:
            run_id = ""
        hold = Hold(
            instance_id=observed.instance_id,
            run_id=run_id,
            run_name=f"leak {observed.instance_id}",
            node_id=node_id,
            cpus_milli=0,
            memory_bytes=0,
            device_uuids=observed.device_uuids or (),
        )
        try:
            seen.world.hold(hold)
        except OverHeld as error:
            log.error("a leak holds what is held already: %s", error)
        if young:
            self._drivers[region].ask(stop={observed.instance_id: LEAK_GRACE_S})

    def _end_leak(self, seen: Picture, observed: ObservedInstance) -> None:
        leak = self.leaks.pop(observed.instance_id)
        seen.world.release(leak.instance_id)
        self._drivers[leak.region].ask(release=[leak.instance_id])


def _never_started(instance: LiveInstance, now: float) -> ObservedInstance:
    return ObservedInstance(
        instance_id=instance.id,
        cloud_id="",
        state=InstanceState.ENDED,
        ended_at=now,
        reason=EndReason.CANCELLED,
        message="it was stopped before it started",
    )
