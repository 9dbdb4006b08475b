"""What the control plane answers, and what nodes measure, as the API's JSON; shaped as `cumulo.wire.api` says."""

from typing import Any

from sqlalchemy import Row

from cumulo.control.answers import Deadline, Offer, Plan, QueueRow, Why
from cumulo.domain.node import DeviceReading, InstanceReading
from cumulo.domain.quantities import NANO
from cumulo.server.render import gib, holders, time_of, usd


def usd_h(nano: int | None) -> float | None:
    return None if nano is None else nano / NANO


def plan(one: Plan) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind,
        "ask": one.ask,
        "units": one.units,
        "nodes": one.nodes,
        "satisfiable": one.satisfiable,
        "starts_now": one.starts_now,
        "queue_position": one.queue_position,
        "choices": [
            {
                "region": choice.region,
                "node": choice.node,
                "devices": choice.devices,
                "price_usd_h": usd_h(choice.price_nano_h),
                "rental_usd_h": usd_h(choice.rental_nano_h),
                "free": choice.free,
            }
            for choice in one.choices
        ],
        "problems": list(one.problems),
        "suggestions": list(one.suggestions),
        "warnings": list(one.warnings),
        "purchase": one.purchase,
        "max_price_usd_h": usd_h(one.max_price_nano_h),
        "runtime": one.runtime,
        "max_duration_s": one.max_duration_s,
        "expected_start": time_of(one.expected_start),
        "expected_earliest": time_of(one.expected_from),
        "expected_latest": time_of(one.expected_to),
        "expected_text": one.expected_text,
        "deadline": deadline(one.deadline),
    }


def deadline(one: Deadline | None) -> dict[str, Any] | None:
    if one is None:
        return None
    costs = (one.expected_cost_nano, one.on_demand_cost_nano)
    expected, alone = (None if nano is None else usd(nano) for nano in costs)
    return {
        "at": time_of(one.at),
        "choice": one.choice,
        "text": one.text,
        "feasible": one.feasible,
        "work_s": one.work_s,
        "work_left_s": one.work_left_s,
        "on_demand_at": time_of(one.on_demand_at),
        "done_at": time_of(one.done_at),
        "expected_cost_usd": expected,
        "on_demand_cost_usd": alone,
    }


def why(one: Why) -> dict[str, Any]:
    waits = one.expected_start is not None or one.expected_text
    change = one.suggestion
    return {
        "run": one.run_id,
        "status": one.status,
        "summary": one.summary,
        "binding": one.binding,
        "counts": [{"constraint": count.constraint, "nodes": count.nodes, "text": count.text} for count in one.counts],
        "nodes": [{"node": verdict.node, "fits": verdict.fits, "text": verdict.text} for verdict in one.nodes],
        "ahead": [{"run": ahead.run_id, "name": ahead.name, "text": ahead.text} for ahead in one.ahead],
        "expected_start": {
            "at": time_of(one.expected_start),
            "earliest": time_of(one.expected_from),
            "latest": time_of(one.expected_to),
            "text": one.expected_text,
        }
        if waits
        else None,
        "deadline": deadline(one.deadline),
        "suggestion": {"text": change.text, "change": dict(change.change)} if change else None,
        "last_attempt": one.last_attempt,
        "ended": {"text": one.ended, "last_log_lines": list(one.last_log_lines)} if one.ended is not None else None,
    }


def queue_row(one: QueueRow) -> dict[str, Any]:
    return {
        "place": one.place,
        "run": one.run_id,
        "name": one.name,
        "account": one.account,
        "kind": one.kind,
        "ask": one.ask,
        "priority": one.priority,
        "accepted_at": time_of(one.accepted_at),
        "waiting_for": one.waiting_for,
        "expected_start": time_of(one.expected_start),
    }


def offer(one: Offer) -> dict[str, Any]:
    return {
        "region": one.region,
        "gpu": one.gpu,
        "memory_gb": gib(one.memory_bytes),
        "emulated": one.emulated,
        "mode": one.mode,
        "profile": one.profile or None,
        "isolation": one.isolation,
        "milli": one.milli,
        "purchase": one.purchase,
        "price_usd_h": usd_h(one.price_nano_h),
        "rental_usd_h": usd_h(one.rental_nano_h),
        "total": one.total,
        "free": one.free,
        "free_milli": one.free_milli,
        "max_per_node": one.max_per_node,
        "shown_usd_h": usd_h(one.shown_nano_h),
        "term_s": one.term_s,
    }


def device_reading(reading: DeviceReading, rows: list[Row[Any]]) -> dict[str, Any]:
    row = rows[0]
    return {
        "node": row.node_id,
        "index": row.place,
        "uuid": row.uuid,
        "model": row.model,
        "emulated": row.emulated,
        "memory_used_bytes": reading.memory_used_bytes,
        "memory_bytes": row.memory_bytes,
        "utilisation": reading.utilisation,
        "temperature_c": reading.temperature_c,
        "power_w": reading.power_w,
        "holders": holders(rows),
        "foreign": row.foreign_use,
    }


def instance_reading(reading: InstanceReading, run_id: str, run_name: str, gpus: str) -> dict[str, Any]:
    return {
        "id": reading.instance_id,
        "run": run_id,
        "name": run_name,
        "cpu": round(reading.cpus_busy, 3),
        "memory_bytes": reading.memory_bytes,
        "processes": reading.processes,
        "gpus": gpus,
    }
