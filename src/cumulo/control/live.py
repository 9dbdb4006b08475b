"""The picture the control loop works on: all that is not over, in memory.

It is read from the store at the start and kept by the loop's own steps; after any failed write it is thrown away and
read again, so that it never runs ahead of the store. Only the control thread touches it.
"""

import json
from collections import Counter
from dataclasses import dataclass, field

from sqlalchemy import Connection, RowMapping

from cumulo.domain.lifecycle import EndReason, InstanceState, RunStatus
from cumulo.domain.node import Device, DeviceHealth, Node, NodeState
from cumulo.domain.progress import Progress
from cumulo.domain.run import RunSpec, from_wire
from cumulo.placement.world import Hold, Waiting, World
from cumulo.store import picture


@dataclass(slots=True, kw_only=True)
class LiveInstance:
    """An instance that has not ended, or whose attempt has not. Once it has ended only its unit knows it."""

    id: str
    run_id: str
    unit: int
    attempt: int
    rank: int
    node_id: str
    region: str
    state: InstanceState
    devices: tuple[str, ...]
    device_model: str
    cpus_milli: int
    memory_bytes: int
    address: str
    master_port: int
    price_nano_h: int
    rental_nano_h: int
    placed_at: float
    started_at: float | None = None
    ended_at: float | None = None
    stop_reason: EndReason | None = None
    stop_grace_s: float | None = None
    reason: EndReason | None = None
    exit_code: int | None = None
    message: str = ""

    @property
    def ended(self) -> bool:
        return self.state is InstanceState.ENDED


@dataclass(slots=True, kw_only=True)
class LiveUnit:
    """A unit that is not over: in an attempt, or waiting for the next one until `not_before`."""

    place: int
    status: RunStatus
    attempts: int
    not_before: float | None = None
    placed_at: float | None = None
    started_at: float | None = None
    instances: dict[str, LiveInstance] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class LiveRun:
    """A run that is not over. `units` are those with a row that are not over; `outcomes` counts those that are."""

    id: str
    spec: RunSpec
    account: str
    unix_uid: int | None
    status: RunStatus
    wanted: str
    accepted_at: float
    waits_for: set[str]
    units_started: int
    attempts: int
    placed_at: float | None
    started_at: float | None
    cost_nano: int
    rental_nano: int
    units: dict[int, LiveUnit] = field(default_factory=dict)
    # Of the units that ended since this was read.
    last_ended_at: float | None = field(default=None, compare=False)
    skipped: set[int] = field(default_factory=set)
    outcomes: Counter[RunStatus] = field(default_factory=Counter)
    first_progress: Progress | None = field(default=None, compare=False)
    last_progress: Progress | None = None

    @property
    def project(self) -> str:
        return self.spec.project

    @property
    def all_started(self) -> bool:
        return self.units_started >= self.spec.units()

    def waiting(self, now: float, most: int) -> list[Waiting]:
        """The units that wait to be placed now, at most `most`: those that recover first, then the next places."""
        if self.wanted != "running" or self.waits_for or self.status is RunStatus.STOPPED:
            return []
        found = [
            self._wait(unit.place, unit.attempts + 1)
            for unit in self.units.values()
            if not unit.instances and (unit.not_before or 0) <= now
        ]
        parallel = (self.spec.array and self.spec.array.parallel) or self.spec.units()
        room = min(most, parallel - len(self.units))
        place, last = self.units_started, self.spec.units()
        while room > 0 and place < last:
            if place not in self.skipped:
                found.append(self._wait(place, 1))
                room -= 1
            place += 1
        return found

    def _wait(self, place: int, attempt: int) -> Waiting:
        return Waiting(
            key=(self.id, place, attempt),
            name=self.spec.name,
            ask=self.spec.ask,
            priority=self.spec.priority,
            accepted_at=self.accepted_at,
            duration_s=self.spec.max_duration_s,
        )


@dataclass(slots=True, kw_only=True)
class Picture:
    """Everything that is not over. `leaked` are attempts of which an engine has an instance that the store forgot."""

    runs: dict[str, LiveRun] = field(default_factory=dict)
    instances: dict[str, LiveInstance] = field(default_factory=dict)
    world: World = field(default_factory=World)
    leaked: set[tuple[str, int, int]] = field(default_factory=set, compare=False)

    def waiting(self, now: float, most: int) -> list[Waiting]:
        """What waits to be placed now, at most `most` units of each run.

        An attempt that leaked is not placed: its instances would get the ids of those that run.
        """
        found = [waiting for run in self.runs.values() for waiting in run.waiting(now, most)]
        return [waiting for waiting in found if waiting.key not in self.leaked] if self.leaked else found

    def unit_of(self, instance: LiveInstance) -> tuple[LiveRun, LiveUnit]:
        run = self.runs[instance.run_id]
        return run, run.units[instance.unit]

    def add_runs(self, rows: list[RowMapping]) -> list[LiveRun]:
        """Takes in rows of new runs; what is known stays as it is."""
        new = [_run(row) for row in rows if row["id"] not in self.runs]
        self.runs.update((run.id, run) for run in new)
        return new


def load(tx: Connection) -> Picture:
    """Reads the whole picture afresh."""
    seen = Picture()
    seen.add_runs(list(picture.open_runs(tx)))
    for row in picture.open_units(tx):
        unit = LiveUnit(
            place=row["place"],
            status=RunStatus(row["status"]),
            attempts=row["attempts"],
            not_before=row["not_before"],
            placed_at=row["placed_at"],
            started_at=row["started_at"],
        )
        seen.runs[row["run_id"]].units[unit.place] = unit
    for run_id, status, count in picture.outcomes(tx):
        seen.runs[run_id].outcomes[RunStatus(status)] += count
    for run_id, place in picture.skipped_places(tx):
        seen.runs[run_id].skipped.add(place)
    for row in picture.open_instances(tx):
        instance = _instance(row)
        if instance.run_id in seen.runs and instance.unit in seen.runs[instance.run_id].units:
            if not instance.ended:
                seen.instances[instance.id] = instance
            seen.runs[instance.run_id].units[instance.unit].instances[instance.id] = instance
    _load_world(tx, seen)
    return seen


def _load_world(tx: Connection, seen: Picture) -> None:
    devices: dict[str, list[Device]] = {}
    for row in picture.devices(tx):
        devices.setdefault(row["node_id"], []).append(_device(row))
    for row in picture.nodes(tx):
        seen.world.see_node(row["id"], _node(row, devices.get(row["id"], [])), generation=row["generation"])
    for instance in seen.instances.values():
        seen.world.hold(hold_of(instance, seen.runs[instance.run_id]))


def hold_of(instance: LiveInstance, run: LiveRun) -> Hold:
    """What a live instance holds, until when at the latest as far as it declared."""
    limit = run.spec.max_duration_s
    until = (instance.started_at or instance.placed_at) + limit if limit is not None else None
    return Hold(
        instance_id=instance.id,
        run_id=run.id,
        run_name=run.spec.name,
        node_id=instance.node_id,
        cpus_milli=instance.cpus_milli,
        memory_bytes=instance.memory_bytes,
        device_uuids=instance.devices,
        until=until,
    )


def _run(row: RowMapping) -> LiveRun:
    first, last = _progress(row["progress"])
    return LiveRun(
        id=row["id"],
        spec=from_wire(json.loads(row["spec"])),
        account=row["account"],
        unix_uid=row["unix_uid"],
        status=RunStatus(row["status"]),
        wanted=row["wanted"],
        accepted_at=row["accepted_at"],
        waits_for=set(filter(None, row["waits_for"].split(","))),
        units_started=row["units_started"],
        attempts=row["attempts"],
        placed_at=row["placed_at"],
        started_at=row["started_at"],
        cost_nano=row["cost_nano"],
        rental_nano=row["rental_nano"],
        first_progress=first,
        last_progress=last,
    )


def _progress(text: str | None) -> tuple[Progress | None, Progress | None]:
    """(the value that the rate is reckoned from, the last value), as `observing` wrote them."""
    if text is None:
        return None, None
    values = json.loads(text)
    done, at = values.pop("since_done"), values.pop("since_at")
    last = Progress(**values)
    return Progress(done=done, total=last.total, at=at), last


def _instance(row: RowMapping) -> LiveInstance:
    return LiveInstance(
        id=row["id"],
        run_id=row["run_id"],
        unit=row["unit"],
        attempt=row["attempt"],
        rank=row["rank"],
        node_id=row["node_id"],
        region=row["region"],
        state=InstanceState(row["state"]),
        devices=tuple(filter(None, row["devices"].split(","))),
        device_model=row["device_model"],
        cpus_milli=row["cpus_milli"],
        memory_bytes=row["memory_bytes"],
        address=row["address"],
        master_port=row["master_port"],
        price_nano_h=row["price_nano_h"],
        rental_nano_h=row["rental_nano_h"],
        placed_at=row["placed_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        stop_reason=EndReason(row["stop_reason"]) if row["stop_reason"] else None,
        stop_grace_s=row["stop_grace_s"],
        reason=EndReason(row["reason"]) if row["reason"] else None,
        exit_code=row["exit_code"],
        message=row["message"],
    )


def _device(row: RowMapping) -> Device:
    return Device(
        uuid=row["uuid"],
        index=row["place"],
        model=row["model"],
        memory_bytes=row["memory_bytes"],
        emulated=row["emulated"],
        numa_node=row["numa_node"],
        health=DeviceHealth(row["health"]),
        health_reason=row["health_reason"],
        foreign=row["foreign_use"],
    )


def _node(row: RowMapping, devices: list[Device]) -> Node:
    return Node(
        name=row["name"],
        cpus_milli=row["cpus_milli"],
        memory_bytes=row["memory_bytes"],
        devices=tuple(devices),
        address=row["address"],
        emulated=row["emulated"],
        state=NodeState(row["state"]),
        state_reason=row["state_reason"],
        labels=json.loads(row["labels"]),
    )
