"""What the engines are told: to start, to stop and to forget, once it is in the store.

What a crash loses here, a fresh picture or the next complete observation makes good.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from cumulo.control.absence import Absences
from cumulo.control.driver import EngineDriver, Stop
from cumulo.control.live import LiveInstance, Picture
from cumulo.control.moves import stop_of
from cumulo.control.scheduling import Hazard, specs_for
from cumulo.store.batch import Batch


class Watch(Protocol):
    """Told which instances came and which are gone; without `came`, all that there are came."""

    def __call__(
        self, seen: Picture, *, came: Iterable[LiveInstance] | None = None, gone: Iterable[str] = ()
    ) -> None: ...


class Orders:
    """Passes on what a step decided, and to `watch` which instances there are."""

    def __init__(
        self,
        drivers: Mapping[str, EngineDriver],
        absences: Absences,
        *,
        cloud_id: str,
        clock: Callable[[], float],
        watch: Watch,
        hazard: Hazard,
    ) -> None:
        self._drivers, self._absences = drivers, absences
        self._cloud_id, self._clock, self._watch, self._hazard = cloud_id, clock, watch, hazard

    def give(self, seen: Picture, batch: Batch, placed: list[LiveInstance], ended: list[LiveInstance]) -> None:
        """Passes on what follows from a batch that has been written."""
        stopped = [seen.instances.get(key) for key, row in batch.instances.items() if "stop_grace_s" in row]
        released = set(batch.released)
        for region, driver in self._drivers.items():
            starting = [instance for instance in placed if instance.region == region]
            if starting:
                self.start(seen, region, starting)
            stops = {i.id: stop_of(i) for i in stopped if i is not None and i.region == region}
            release = [instance.id for instance in ended if instance.region == region and instance.id in released]
            started = [name for name, at in batch.new_usage if _has_started(seen.instances.get(name), region, at)]
            if stops or release or started:
                self.stop(region, stops)
                driver.ask(release=release, started=started)
        self._absences.forget(released, self._clock())
        if placed or released:
            self._watch(seen, came=placed, gone=released)

    def give_anew(self, seen: Picture) -> None:
        """After a fresh look at the store: asks again for what has not started yet and for what should end.

        Nothing that has started is asked for again: if its engine has lost it, it is lost, and must not start twice.
        """
        for region, driver in self._drivers.items():
            here = [instance for instance in seen.instances.values() if instance.region == region]
            self.start(seen, region, [i for i in here if i.stop_reason is None and i.started_at is None])
            self.stop(region, {i.id: stop_of(i) for i in here if i.stop_reason is not None})
            driver.ask(running=_running(seen, region))
        self._watch(seen)

    def start(self, seen: Picture, region: str, instances: list[LiveInstance]) -> None:
        specs = list(specs_for(seen, instances, self._cloud_id, self._hazard))
        self._absences.told((spec.instance_id for spec in specs), self._clock())
        self._drivers[region].ask(ensure=specs)

    def stop(self, region: str, stops: dict[str, Stop]) -> None:
        self._absences.told_to_stop(stops, self._clock())
        self._drivers[region].ask(stop=stops)


def _has_started(instance: LiveInstance | None, region: str, at: float) -> bool:
    """Whether a segment of use that began at `at` is its first."""
    return instance is not None and instance.region == region and instance.started_at == at


def _running(seen: Picture, region: str) -> set[str]:
    return {i.id for i in seen.instances.values() if i.region == region and i.started_at is not None}
