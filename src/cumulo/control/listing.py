"""The queue and the offers: lists worked out from the loop's picture when somebody asks."""

from collections import Counter
from dataclasses import replace

from cumulo.control.answers import Offer, QueueRow
from cumulo.control.explain import check_gpu_names, waiting_units, why_waiting
from cumulo.control.live import LiveRun, Picture
from cumulo.control.scheduling import Rates, rental_nano_h
from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.lifecycle import RunStatus
from cumulo.domain.node import NodeState
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import SharingMode
from cumulo.placement.explain import reasons, starts
from cumulo.placement.fit import admitted_kinds


def queue_rows(seen: Picture, now: float) -> tuple[QueueRow, ...]:
    """The runs that wait, each once, in order: first those that may start, then those that may not yet."""
    rows: dict[str, QueueRow] = {}
    texts: dict[Ask, str] = {}
    queue = list(waiting_units(seen, now))
    expected: dict[str, float] = {}
    for waiting, at in starts(seen.world, queue, now):
        expected.setdefault(waiting.key[0], at)
    for waiting in queue:
        run = seen.runs[waiting.key[0]]
        if run.id not in rows:
            if waiting.ask not in texts:
                texts[waiting.ask] = reasons(seen.world, waiting.ask).summary()
            rows[run.id] = _queue_row(len(rows) + 1, run, texts[waiting.ask], expected.get(run.id))
    for run in seen.runs.values():
        held_back = run.waits_for or run.status is RunStatus.RECOVERING
        if held_back and run.id not in rows and run.wanted == "running":
            rows[run.id] = _queue_row(len(rows) + 1, run, why_waiting(seen, run, now).summary, None)
    return tuple(rows.values())


def _queue_row(place: int, run: LiveRun, text: str, expected: float | None) -> QueueRow:
    return QueueRow(
        place=place,
        run_id=run.id,
        name=run.spec.name,
        account=run.account,
        kind=str(run.spec.kind),
        ask=run.spec.ask.describe(),
        priority=run.spec.priority,
        accepted_at=run.accepted_at,
        waiting_for=text,
        expected_start=expected,
    )


def offers(seen: Picture, gpu: GpuAsk | None, rates: Rates) -> tuple[Offer, ...]:
    """What can be launched here, one row for each region and GPU kind."""
    check_gpu_names(gpu, seen.world)
    kinds = admitted_kinds(gpu, seen.world) if gpu else None
    rows: dict[tuple[str, str, bool], Offer] = {}
    for use in seen.world.nodes.values():
        region = use.id.partition("/")[0]
        per_model: Counter[str] = Counter(device.model for device in use.node.devices)
        for device in use.node.devices:
            if (kinds is not None and device.model not in kinds) or (
                gpu is not None and not gpu.admits_memory(device.memory_bytes)
            ):
                continue
            key = (region, device.model, device.emulated)
            row = rows.get(key) or _offer(region, device.model, device.memory_bytes, device.emulated, rates)
            free = use.node.state is NodeState.READY and use.usable(device) and use.empty(device)
            rows[key] = replace(
                row,
                total=row.total + 1,
                free=row.free + free,
                max_per_node=max(row.max_per_node, per_model[device.model]),
            )
    return tuple(rows[key] for key in sorted(rows))


def _offer(region: str, model: str, memory_bytes: int, emulated: bool, rates: Rates) -> Offer:
    return Offer(
        region=region,
        gpu=model,
        memory_bytes=memory_bytes,
        emulated=emulated,
        mode=str(SharingMode.EXCLUSIVE),
        purchase=str(PurchaseOption.ON_DEMAND),
        price_nano_h=0 if emulated else rates.price_nano_h(model, 1),
        rental_nano_h=None if emulated else rental_nano_h(model, 1) or None,
        total=0,
        free=0,
        max_per_node=0,
    )
