"""Reads the picture from the store: at the start, and afresh after a write that failed."""

import json
from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection, RowMapping

from cumulo.control.attempts import MOST_KEPT, Ending, attempt_of
from cumulo.control.live import LiveInstance, LiveRun, LiveUnit, Metered, Picture, ending_of, hold_of
from cumulo.control.rules import Rules
from cumulo.domain.lifecycle import EndReason, InstanceState, RunStatus
from cumulo.domain.node import Device, DeviceHealth, Node, NodeState
from cumulo.domain.progress import Progress
from cumulo.domain.run import PurchaseOption, from_wire
from cumulo.domain.sharing import SharingMode, Slice
from cumulo.placement.index import expect
from cumulo.placement.world import World
from cumulo.store import market, picture


def load(tx: Connection, rules: Rules | None = None) -> Picture:
    """Reads the whole picture afresh."""
    rules = rules or Rules()
    seen = Picture(rules=rules, world=World(may_change_mode=rules.change_sharing_mode))
    add_runs(seen, picture.open_runs(tx))
    for row in picture.open_units(tx):
        unit = LiveUnit(
            place=row["place"],
            status=RunStatus(row["status"]),
            attempts=row["attempts"],
            preemptions=row["preemptions"],
            purchase=PurchaseOption(row["purchase"]) if row["purchase"] else None,
            not_before=row["not_before"],
            placed_at=row["placed_at"],
            started_at=row["started_at"],
        )
        seen.runs[row["run_id"]].units[unit.place] = unit
    for run_id, status, count in picture.outcomes(tx):
        seen.runs[run_id].outcomes[RunStatus(status)] += count
    for run_id, place in picture.skipped_places(tx):
        seen.runs[run_id].skipped.add(place)
    held = _slices(picture.holds(tx))
    for row in picture.open_instances(tx):
        instance = _instance(row, held.get(row["id"], ()))
        if instance.run_id in seen.runs and instance.unit in seen.runs[instance.run_id].units:
            if not instance.ended:
                seen.instances[instance.id] = instance
            seen.runs[instance.run_id].units[instance.unit].instances[instance.id] = instance
    _load_past(tx, seen)
    for instance_id, since, until, price_nano_h in picture.open_segments(tx):
        if instance_id in seen.instances:
            seen.instances[instance_id].metered.append(Metered(since, until, price_nano_h))
    _load_world(tx, seen)
    for one in market.open_reservations(tx):
        seen.reservations[one.id] = one
    return seen


def _load_past(tx: Connection, seen: Picture) -> None:
    """What the last attempts of units came to."""
    endings: dict[tuple[str, int], dict[int, list[Ending]]] = {}
    for row in picture.past_instances(tx, MOST_KEPT):
        of = endings.setdefault((row["run_id"], row["unit"]), {})
        of.setdefault(row["attempt"], []).append(ending_of(_instance(row, ())))
    for (run_id, place), attempts in endings.items():
        unit = seen.runs[run_id].units[place]
        over = [number for number in sorted(attempts) if number < unit.attempts or not unit.instances]
        unit.past = tuple(attempt_of(number, attempts[number]) for number in over)[-MOST_KEPT:]


def add_runs(seen: Picture, rows: Iterable[RowMapping]) -> list[LiveRun]:
    """Takes in rows of new runs, which are returned; what is known stays as it is."""
    new = [_run(row) for row in rows if row["id"] not in seen.runs]
    seen.runs.update((run.id, run) for run in new)
    return new


def _load_world(tx: Connection, seen: Picture) -> None:
    devices: dict[str, list[Device]] = {}
    for row in picture.devices(tx):
        devices.setdefault(row["node_id"], []).append(_device(row))
    for row in picture.nodes(tx):
        seen.world.see_node(row["id"], _node(row, devices.get(row["id"], [])), generation=row["generation"])
    for instance in seen.instances.values():
        seen.world.restore(hold_of(instance, seen.runs[instance.run_id]))
        if instance.rank == 0:
            expect(seen.world, seen.runs[instance.run_id].spec.ask)


def _run(row: RowMapping) -> LiveRun:
    first, last, furthest = _progress(row["progress"])
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
        furthest=furthest,
    )


def _progress(text: str | None) -> tuple[Progress | None, Progress | None, Progress | None]:
    """(the value that the rate is reckoned from, the last one, the furthest), as `observing` wrote them."""
    if text is None:
        return None, None, None
    values = json.loads(text)
    first = {"done": values.pop("since_done"), "at": values.pop("since_at")}
    most = {"done": values.pop("most_done", values["done"]), "at": values.pop("most_at", values["at"])}
    last = Progress(**values)
    return replace(last, **first), last, replace(last, **most)


def _slices(rows: Iterable[RowMapping]) -> dict[str, tuple[Slice, ...]]:
    """The slices that each instance holds, by its id."""
    found: dict[str, tuple[Slice, ...]] = {}
    for row in rows:
        one = Slice(
            device_uuid=row["device_uuid"],
            mode=SharingMode(row["mode"]),
            milli=row["milli"],
            memory_bytes=row["memory_bytes"],
            profile=row["profile"],
            start=row["start"],
        )
        found[row["instance_id"]] = (*found.get(row["instance_id"], ()), one)
    return found


def _instance(row: RowMapping, slices: tuple[Slice, ...]) -> LiveInstance:
    return LiveInstance(
        id=row["id"],
        run_id=row["run_id"],
        unit=row["unit"],
        attempt=row["attempt"],
        rank=row["rank"],
        node_id=row["node_id"],
        region=row["region"],
        state=InstanceState(row["state"]),
        slices=slices,
        device_model=row["device_model"],
        cpus_milli=row["cpus_milli"],
        memory_bytes=row["memory_bytes"],
        address=row["address"],
        master_port=row["master_port"],
        price_nano_h=row["price_nano_h"],
        rental_nano_h=row["rental_nano_h"],
        placed_at=row["placed_at"],
        purchase=PurchaseOption(row["purchase"]),
        reservation_id=row["reservation_id"],
        checkpointed_at=row["checkpointed_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        stop_reason=EndReason(row["stop_reason"]) if row["stop_reason"] else None,
        stop_grace_s=row["stop_grace_s"],
        stopped_for=row["stopped_for"],
        preempt_at=row["preempt_at"],
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
        modes=tuple(map(SharingMode, row["modes"].split(","))),
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
