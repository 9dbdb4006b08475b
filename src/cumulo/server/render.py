"""Rows of the store as the API's JSON, written as plain dicts: 50 runs take about a millisecond.

Times leave as ISO 8601 in UTC with microseconds, money as a decimal string beside the exact nano-USD. The shapes are
those of `cumulo.wire.api`, against which tests hold every answer.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json
from sqlalchemy import Row
from starlette.responses import Response

from cumulo.catalog.mig import mig_layout
from cumulo.domain.progress import Progress, remaining_s
from cumulo.domain.quantities import GIB, NANO
from cumulo.domain.run import RunSpec
from cumulo.domain.sharing import WHOLE_MILLI, SharingMode
from cumulo.store.events import Event
from cumulo.store.people import Token

JSON = "application/json"


def answer(body: Any, status: int = 200) -> Response:
    return Response(to_json(body), status, media_type=JSON)


def page(items: list[dict[str, Any]], next_cursor: str | None) -> Response:
    return answer({"items": items, "next": next_cursor})


def time_of(epoch: float | None) -> str | None:
    if epoch is None:
        return None
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def usd(nano: float) -> str:
    """`1.27`, `0.000042`: cents, and as many further places as say something."""
    whole, rest = divmod(round(nano), NANO)
    places = f"{rest:09d}".rstrip("0")
    return f"{whole}.{places:0<2}"


def gib(size: int) -> float:
    return round(size / GIB, 3)


def run_row(row: Row[Any]) -> dict[str, Any]:
    # Looked up by name in a dict: an attribute of a Row costs ten times as much, and a list asks for a thousand.
    told = dict(zip(row._fields, row, strict=True))
    return {
        "id": told["id"],
        "name": told["name"],
        "kind": told["kind"],
        "status": told["status"],
        "ask": told["ask"],
        "priority": told["priority"],
        "purchase": told["purchase"],
        "project": told["project"],
        "account": told["account"],
        "units": told["units"],
        "units_active": told["units_active"],
        "units_succeeded": told["units_succeeded"],
        "units_failed": told["units_failed"],
        "attempts": told["attempts"],
        "exit_code": told["exit_code"],
        "reason": told["reason"],
        "message": told["message"],
        "placed_on": told["placed_on"],
        "cost_usd": usd(told["cost_nano"]),
        "rental_usd": usd(told["rental_nano"]),
        "cost_nano": told["cost_nano"],
        "rental_nano": told["rental_nano"],
        "progress": progress(told["progress"]),
        "accepted_at": time_of(told["accepted_at"]),
        "placed_at": time_of(told["placed_at"]),
        "started_at": time_of(told["started_at"]),
        "ended_at": time_of(told["ended_at"]),
    }


def progress(kept: str | None) -> dict[str, Any] | None:
    """Progress as the store keeps it (a hundred bytes of JSON), with fraction, rate and time left."""
    if not kept:
        return None
    data = json.loads(kept)
    now = Progress(done=data["done"], total=data.get("total") or 0.0, at=data["at"])
    first = Progress(done=data.get("since_done", now.done), total=now.total, at=data.get("since_at", now.at))
    elapsed, gained = now.at - first.at, now.done - first.done
    return {
        "done": now.done,
        "total": now.total,
        "unit": data.get("unit") or "",
        "fraction": now.fraction,
        "furthest": max(now.done, data.get("most_done", now.done)),
        "per_s": gained / elapsed if elapsed > 0 and gained > 0 else None,
        "remaining_s": remaining_s(first, now),
        "metrics": data.get("metrics") or {},
    }


def spec_summary(spec: RunSpec) -> dict[str, Any]:
    """What was asked for. Values of environment variables stay inside."""
    return {
        "command": spec.command,
        "setup": spec.setup,
        "requirements": list(spec.requirements),
        "env": sorted(spec.env),
        "workdir": spec.workdir,
        "file_mounts": {mount.target: mount.manifest for mount in spec.file_mounts},
        "mounts": list(spec.mounts),
        "runtime": spec.runtime,
        "array": spec.array.canonical if spec.array else None,
        "after": list(spec.after),
        "max_duration_s": spec.max_duration_s,
        "grace_s": spec.grace_s,
        "max_attempts": spec.retry.max_attempts if spec.retry else 1,
        "max_price_usd_h": None if spec.max_price_nano_h is None else spec.max_price_nano_h / NANO,
        "reservation": spec.reservation,
    }


def unit(row: Row[Any], spec: RunSpec) -> dict[str, Any]:
    return {
        "index": index_of(spec, row.place),
        "status": row.status,
        "attempts": row.attempts,
        "exit_code": row.exit_code,
        "reason": row.reason,
        "message": row.message,
        "placed_at": time_of(row.placed_at),
        "started_at": time_of(row.started_at),
        "ended_at": time_of(row.ended_at),
    }


def index_of(spec: RunSpec, place: int) -> int:
    """The array index at a place; 0 for a run that is no array."""
    return spec.array.index(place) if spec.array else place


def instance(row: Row[Any], spec: RunSpec) -> dict[str, Any]:
    return {
        "id": row.id,
        "unit": index_of(spec, row.unit),
        "attempt": row.attempt,
        "rank": row.rank,
        "node": row.node_id,
        "state": row.state,
        "reason": row.reason,
        "message": row.message,
        "exit_code": row.exit_code,
        "signal": row.signal,
        "devices": [uuid for uuid in row.devices.split(",") if uuid],
        "device_model": row.device_model,
        "gpus": row.gpus,
        "emulated": row.emulated,
        "accepted_at": time_of(row.accepted_at),
        "placed_at": time_of(row.placed_at),
        "started_at": time_of(row.started_at),
        "ended_at": time_of(row.ended_at),
        "cpus": row.cpus_milli / 1000,
        "memory_gb": gib(row.memory_bytes),
        "cpu_seconds": row.cpu_seconds,
        "max_memory_bytes": row.max_memory_bytes,
    }


def node(row: Row[Any], devices: Iterable[Row[Any]]) -> dict[str, Any]:
    return {
        "id": row.id,
        "region": row.region,
        "name": row.name,
        "state": row.state,
        "state_reason": row.state_reason,
        "emulated": row.emulated,
        "address": row.address,
        "cpus": row.cpus_milli / 1000,
        "cpus_free": max(0.0, (row.cpus_milli - int(row.cpus_held_milli)) / 1000),
        "memory_gb": gib(row.memory_bytes),
        "memory_free_gb": max(0.0, gib(row.memory_bytes - int(row.memory_held_bytes))),
        "devices": [device(rows) for rows in by_device(devices)],
        "labels": json.loads(row.labels),
    }


def by_device(rows: Iterable[Row[Any]]) -> list[list[Row[Any]]]:
    """Rows of `views.devices` by the device they are of, in their order."""
    found: dict[str, list[Row[Any]]] = {}
    for row in rows:
        found.setdefault(row.uuid, []).append(row)
    return list(found.values())


def device(rows: list[Row[Any]]) -> dict[str, Any]:
    """One device, of which there is a row for each slice held."""
    row, held = rows[0], holders(rows)
    layout = mig_layout(row.model) if row.mode == SharingMode.MIG else None
    return {
        "index": row.place,
        "uuid": row.uuid,
        "model": row.model,
        "memory_gb": gib(row.memory_bytes),
        "emulated": row.emulated,
        "health": row.health,
        "health_reason": row.health_reason,
        "modes": row.modes.split(","),
        "mode": row.mode,
        "milli_free": WHOLE_MILLI - sum(one["milli"] for one in held),
        "mig_grid": layout.grid_size if layout else None,
        "holders": held,
        "foreign": row.foreign_use,
    }


def holders(rows: Iterable[Row[Any]]) -> list[dict[str, Any]]:
    """Who holds the slices of one device; none where nobody holds anything."""
    return [_holder(row) for row in rows if row.instance_id is not None]


def _holder(row: Row[Any]) -> dict[str, Any]:
    layout = mig_layout(row.model) if row.profile else None
    profile = layout.profile(row.profile) if layout else None
    return {
        "run": row.run_id or "",
        "name": row.run_name or "",
        "instance": row.instance_id,
        "account": row.holder,
        "mode": row.mode,
        "milli": row.milli,
        "memory_bytes": row.held_bytes,
        "profile": row.profile or None,
        "start": row.start,
        "size": profile.memory_slices if profile else None,
    }


def event(one: Event) -> dict[str, Any]:
    return {
        "seq": one.seq,
        "at": time_of(one.at),
        "kind": one.kind,
        "run": one.run_id,
        "instance": one.instance_id,
        "node": one.node_id,
        "account": one.account,
        "project": one.project,
        "message": one.message,
    }


def usage(key: str, rows: Sequence[Any], *, name: str | None = None) -> dict[str, Any]:
    """One row of use, or the sum of several under `key`; `name` is the run's, where it is one run's."""
    cost, rental = (round(sum(getattr(row, name) or 0 for row in rows)) for name in ("cost_nano", "rental_nano"))
    return {
        "key": key,
        "name": name,
        "gpu_seconds": round(sum(row.gpu_seconds or 0.0 for row in rows), 6),
        "cpu_seconds": round(sum(row.cpu_seconds or 0.0 for row in rows), 6),
        "cost_usd": usd(cost),
        "rental_usd": usd(rental),
        "cost_nano": cost,
        "rental_nano": rental,
    }


def token(one: Token) -> dict[str, Any]:
    return {
        "id": one.id,
        "label": one.label,
        "account": one.account,
        "project": one.project,
        "created_at": time_of(one.created_at),
        "expires_at": time_of(one.expires_at),
        "used_at": time_of(one.used_at),
        "revoked_at": time_of(one.revoked_at),
    }
