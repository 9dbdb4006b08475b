"""Nodes, their devices, who holds them, and what they are doing now."""

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection, Row
from starlette.responses import Response

from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable
from cumulo.server import render, render_control
from cumulo.server.auth import Auth
from cumulo.server.paging import Cursor, Limit, cursor_of, key_of
from cumulo.server.services import Serving
from cumulo.store import views
from cumulo.wire import api

router = APIRouter(tags=["nodes"])


@router.get("/v1/nodes", response_model=api.NodePage)
def list_nodes(services: Serving, _caller: Auth, limit: Limit = 50, cursor: Cursor = None) -> Response:
    after = key_of(cursor, str)[0] if cursor else ""
    with services.db.read() as tx:
        rows = views.nodes(tx, after=after, limit=limit)
        items = _with_devices(tx, rows)
    return render.page(items, cursor_of(rows[-1].id) if len(rows) == limit else None)


@router.get("/v1/nodes/{node:path}", response_model=api.Node)
def get_node(node: str, services: Serving, _caller: Auth) -> Response:
    """One node, by id (region/name) or by name."""
    with services.db.read() as tx:
        row = views.find_node(tx, node)
        if row is None:
            raise CumuloError(
                "not_found", f"there is no node {printable(node, 64)!r}", hint="`cumulo nodes` shows them all"
            )
        item = _with_devices(tx, [row])[0]
    return render.answer(item)


def _with_devices(tx: Connection, rows: Sequence[Row[Any]]) -> list[dict[str, Any]]:
    devices = defaultdict(list)
    for device in views.devices(tx, [row.id for row in rows]):
        devices[device.node_id].append(device)
    return [render.node(row, devices[row.id]) for row in rows]


@router.get("/v1/telemetry", response_model=api.Telemetry)
def telemetry(services: Serving, _caller: Auth) -> Response:
    """What devices and instances are doing now, as their nodes measure it."""
    readings = services.control.telemetry()
    with services.db.read() as tx:
        devices = {rows[0].uuid: rows for rows in render.by_device(views.devices(tx))}
        names = views.instance_names(tx, [reading.instance_id for reading in readings.instances])
    return render.answer(
        {
            "at": render.time_of(time.time()),
            "devices": [
                render_control.device_reading(reading, devices[reading.uuid])
                for reading in readings.devices
                if reading.uuid in devices
            ],
            "instances": [
                render_control.instance_reading(reading, *names[reading.instance_id])
                for reading in readings.instances
                if reading.instance_id in names
            ],
        }
    )
