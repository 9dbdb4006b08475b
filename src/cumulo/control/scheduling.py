"""From placement's decisions to instances: rows, holds, prices and what the engine is told."""

import pwd
from collections.abc import Callable, Iterable
from os import getgrouplist, getuid
from zlib import crc32

from cumulo.catalog.prices import price
from cumulo.control.deciding import MOST_PER_STEP, decide
from cumulo.control.live import LiveInstance, LiveRun, LiveUnit, Picture, hold_of
from cumulo.control.moves import advance, set_run, set_unit, tell, unit_row
from cumulo.control.pricing import price_of
from cumulo.control.rates import Rates
from cumulo.control.yielding import carry_out
from cumulo.domain.instance import Identity, InstanceSpec, instance_id
from cumulo.domain.lifecycle import InstanceState, RunStatus
from cumulo.domain.run import PurchaseOption, RunKind
from cumulo.domain.sharing import WHOLE_MILLI, Isolation, SharingMode, Slice, described, share_milli
from cumulo.placement.fit import Place
from cumulo.placement.index import expect
from cumulo.placement.order import Decision
from cumulo.placement.world import NodeUse
from cumulo.store.batch import Batch

# The runtime that fences what it hides: with another, hard isolation would be a word.
HARD_RUNTIME = "sandbox"
_FIRST_PORT, _PORTS = 20000, 10000


def place_waiting(seen: Picture, batch: Batch, rates: Rates, now: float) -> list[LiveInstance]:
    """Places what fits of all that waits, has others make room where they must, and returns the new instances."""
    queue = seen.waiting(now, MOST_PER_STEP)
    decided = decide(seen, queue, now)
    ports = {instance.master_port for instance in seen.instances.values()} if decided.decisions else set()
    placed: list[LiveInstance] = []
    for decision in decided.decisions:
        port = _port(decision.waiting.key, ports)
        ports.add(port)
        placed += _take(seen, batch, decision, port, rates, now)
    for run in {instance.run_id: seen.runs[instance.run_id] for instance in placed}.values():
        batch.run(run.id, units_active=sum(bool(unit.instances) for unit in run.units.values()))
    carry_out(seen, batch, queue, decided, now)
    return placed


def _port(key: tuple[str, int, int], taken: set[int]) -> int:
    """A port for the attempt to meet at: the same every time unless another attempt has it now."""
    start = crc32(repr(key).encode()) % _PORTS
    ports = (_FIRST_PORT + (start + step) % _PORTS for step in range(_PORTS))
    return next((port for port in ports if port not in taken), _FIRST_PORT + start)


def _take(seen: Picture, batch: Batch, decision: Decision, port: int, rates: Rates, now: float) -> list[LiveInstance]:
    run_id, unit_place, attempt = decision.waiting.key
    run = seen.runs[run_id]
    expect(seen.world, decision.waiting.ask)
    unit = run.units.get(unit_place)
    if unit is None:
        unit = LiveUnit(place=unit_place, status=RunStatus.QUEUED, attempts=0)
        run.units[unit_place] = unit
        batch.new_units[run_id, unit_place] = unit_row(run, unit)
    unit.attempts, unit.not_before, unit.started_at = attempt, None, None
    unit.placed_at = unit.placed_at or now
    now_known = {"attempts": attempt, "not_before": None, "placed_at": unit.placed_at, "started_at": None}
    set_unit(batch, run, unit, RunStatus.STARTING, **now_known)
    placed = [_new_instance(seen, run, unit, rank, spot, port, rates, now) for rank, spot in enumerate(decision.places)]
    for instance in placed:
        instance.reservation_id = decision.reservation
        _record(seen, batch, run, unit, instance)
    _advance_run(batch, run, unit, decision, placed, seen, now)
    return placed


def _advance_run(
    batch: Batch,
    run: LiveRun,
    unit: LiveUnit,
    decision: Decision,
    placed: list[LiveInstance],
    seen: Picture,
    now: float,
) -> None:
    advance(batch, run)
    if run.units_started == unit.place:
        run.units_started += 1
        advance(batch, run)
    elif unit.place > run.units_started:
        run.skipped.add(unit.place)  # those before it wait for others to make room
    run.placed_at = run.placed_at or now
    run.attempts = max(run.attempts, unit.attempts)
    where = placed_on(seen, placed)
    batch.run(
        run.id,
        units_started=run.units_started,
        placed_at=run.placed_at,
        attempts=run.attempts,
        placed_on=where,
    )
    if run.status in (RunStatus.QUEUED, RunStatus.RECOVERING):
        set_run(batch, run, RunStatus.STARTING)
    label = f"{run.spec.name}[{run.spec.array.index(unit.place)}]" if run.spec.array else run.spec.name
    tell(batch, run, "run.placed", f"{label} was placed on {where}", now, placed[0])


def placed_on(seen: Picture, placed: list[LiveInstance]) -> str:
    """`box: 2x A100-80GB (emulated)`; gangs name their first node and how many more there are."""
    first = placed[0]
    use = seen.world.nodes[first.node_id]
    more = f" +{len(placed) - 1} nodes" if len(placed) > 1 else ""
    if not first.slices:
        return f"{use.node.name}{more}"
    emulated = " (emulated)" if use.node.emulated else ""
    return f"{use.node.name}{more}: {described(first.device_model, first.slices)}{emulated}"


def _new_instance(
    seen: Picture, run: LiveRun, unit: LiveUnit, rank: int, spot: Place, port: int, rates: Rates, now: float
) -> LiveInstance:
    use = seen.world.nodes[spot.node_id]
    milli = share_milli(spot.slices)
    return LiveInstance(
        id=instance_id(run.id, unit.place, unit.attempts, rank),
        run_id=run.id,
        unit=unit.place,
        attempt=unit.attempts,
        rank=rank,
        node_id=spot.node_id,
        region=spot.node_id.partition("/")[0],
        state=InstanceState.PLACED,
        slices=spot.slices,
        device_model=spot.device_model,
        cpus_milli=spot.cpus_milli,
        memory_bytes=spot.memory_bytes,
        address=use.node.address,
        master_port=port,
        price_nano_h=price_of(
            seen,
            rates,
            node_id=spot.node_id,
            kind=spot.device_model,
            milli=milli,
            option=run.purchase_of(unit.place),
            bid_nano_h=run.spec.max_price_nano_h,
        ),
        rental_nano_h=0 if use.node.emulated else rental_nano_h(spot.device_model, milli),
        placed_at=now,
        purchase=run.purchase_of(unit.place),
    )


def rental_nano_h(model: str, milli: int) -> int:
    """What `milli` thousandths of such a GPU rent for an hour at the median list price; 0 when no price is known.

    Nobody lists prices of fractions: a part is taken for its part of a whole GPU's.
    """
    listed = price(model) if milli else None
    return listed.on_demand.median * milli // WHOLE_MILLI if listed and listed.on_demand else 0


def _record(seen: Picture, batch: Batch, run: LiveRun, unit: LiveUnit, instance: LiveInstance) -> None:
    use = seen.world.nodes[instance.node_id]
    seen.world.hold(hold_of(instance, run))
    if instance.node_id not in batch.generations:
        batch.generations[instance.node_id] = seen.world.advance(instance.node_id)
    unit.instances[instance.id] = instance
    seen.instances[instance.id] = instance
    batch.new_instances[instance.id] = _instance_row(run, instance, use)
    for each in instance.slices:
        batch.new_holds.append(
            {
                "device_uuid": each.device_uuid,
                "slice": _key(each, instance.id),
                "instance_id": instance.id,
                "project": run.project,
                "account": run.account,
                "mode": str(each.mode),
                "milli": each.milli,
                "memory_bytes": each.memory_bytes,
                "profile": each.profile,
                "start": each.start,
            }
        )


def _key(held: Slice, instance_id: str) -> str:
    """Names a slice among those of its device, so that the store's key keeps it from being held twice."""
    if held.mode is SharingMode.EXCLUSIVE:
        return "whole"
    return f"mig {held.start}" if held.mode is SharingMode.MIG else instance_id


def _instance_row(run: LiveRun, instance: LiveInstance, use: NodeUse) -> dict[str, object]:
    return {
        "id": instance.id,
        "run_id": run.id,
        "unit": instance.unit,
        "attempt": instance.attempt,
        "rank": instance.rank,
        "project": run.project,
        "account": run.account,
        "node_id": instance.node_id,
        "region": instance.region,
        "state": str(instance.state),
        "stop_reason": None,
        "stop_grace_s": None,
        "stopped_for": None,
        "preempt_at": None,
        "reason": None,
        "message": "",
        "exit_code": None,
        "signal": None,
        "cpus_milli": instance.cpus_milli,
        "memory_bytes": instance.memory_bytes,
        "devices": ",".join(instance.devices),
        "device_model": instance.device_model,
        "gpu_milli": share_milli(instance.slices),
        "gpus": described(instance.device_model, instance.slices),
        "emulated": use.node.emulated,
        "address": instance.address,
        "master_port": instance.master_port,
        "price_nano_h": instance.price_nano_h,
        "rental_nano_h": instance.rental_nano_h,
        "purchase": str(instance.purchase),
        "reservation_id": instance.reservation_id,
        "checkpointed_at": None,
        "accepted_at": run.accepted_at,
        "placed_at": instance.placed_at,
        "started_at": None,
        "ended_at": None,
        "cpu_seconds": None,
        "max_memory_bytes": None,
    }


# ---- what the engine is told ----------------------------------------------------------------------------------------


def spec_for(
    run: LiveRun,
    unit: LiveUnit,
    instance: LiveInstance,
    node_name: str,
    cloud_id: str,
    hazard: tuple[tuple[float, float], ...],
) -> InstanceSpec:
    """All that the engine needs to start an instance. The same every time it is made, but for what was learnt since."""
    spec = run.spec
    peers = sorted(unit.instances.values(), key=lambda peer: peer.rank)
    files = [(".", spec.workdir)] if spec.workdir else []
    return InstanceSpec(
        instance_id=instance.id,
        cloud_id=cloud_id,
        run_id=run.id,
        run_name=spec.name,
        project=spec.project,
        unit=instance.unit,
        attempt=instance.attempt,
        rank=instance.rank,
        node=node_name,
        slices=instance.slices,
        cpus_milli=instance.cpus_milli,
        memory_bytes=instance.memory_bytes,
        identity=identity(run.account, run.unix_uid),
        command=spec.command or ("exec sleep infinity" if spec.kind is RunKind.DEV else ""),
        setup=spec.setup,
        requirements=spec.requirements,
        env=dict(spec.env),
        files=(*files, *((mount.target, mount.manifest) for mount in spec.file_mounts)),
        mounts=spec.mounts,
        runtime=spec.runtime or (HARD_RUNTIME if spec.ask.isolation is Isolation.HARD else None),
        dev=spec.kind is RunKind.DEV,
        grace_s=spec.grace_s,
        max_duration_s=spec.max_duration_s,
        peers=tuple(peer.address for peer in peers),
        master_port=instance.master_port,
        array_index=spec.array.index(instance.unit) if spec.array else None,
        hazard=hazard if instance.purchase is PurchaseOption.SPOT else (),
    )


def identity(account: str, unix_uid: int | None) -> Identity:
    """The Unix account of a run: the submitter's own where the server is root, else whoever the server runs as."""
    if unix_uid is None or getuid() != 0:
        me = pwd.getpwuid(getuid())
        return Identity(name=me.pw_name, home=me.pw_dir)
    try:
        entry = pwd.getpwuid(unix_uid)
    except KeyError:
        return Identity(name=account, uid=unix_uid, gid=unix_uid)
    groups = tuple(getgrouplist(entry.pw_name, entry.pw_gid))
    return Identity(name=entry.pw_name, uid=unix_uid, gid=entry.pw_gid, groups=groups, home=entry.pw_dir)


Hazard = Callable[[LiveInstance], tuple[tuple[float, float], ...]]
"""How likely spot is to be lost where an instance runs: (age in seconds from which it holds, per second)."""


def specs_for(seen: Picture, placed: Iterable[LiveInstance], cloud_id: str, hazard: Hazard) -> Iterable[InstanceSpec]:
    for instance in placed:
        run, unit = seen.unit_of(instance)
        name = instance.node_id.partition("/")[2]
        yield spec_for(run, unit, instance, name, cloud_id, hazard(instance))
