"""What is in order and what is not: the control plane's and the node's checks, and the server's own."""

import shutil
from collections.abc import Iterator

from fastapi import APIRouter
from starlette.responses import Response

from cumulo import __version__
from cumulo.domain.check import Check
from cumulo.server import render
from cumulo.server.auth import Auth
from cumulo.server.services import Services, Serving
from cumulo.wire import api

router = APIRouter(tags=["doctor"])

_LOW_DISK = 1 << 30


@router.get("/v1/doctor", response_model=api.Checks)
def doctor(services: Serving, _caller: Auth) -> Response:
    checks = [*_own(services), *services.control.doctor()]
    items = [
        {"name": check.name, "status": str(check.status), "text": check.text, "hint": check.hint} for check in checks
    ]
    return render.answer({"checks": items})


def _own(services: Services) -> Iterator[Check]:
    yield Check(name="server", status="ok", text=f"Cumulo {__version__}, cloud {services.cloud_id}")
    where = services.db.path or "PostgreSQL"
    with services.db.read() as tx:
        tx.exec_driver_sql("SELECT 1")
    yield Check(name="database", status="ok", text=f"{where} answers")
    free = shutil.disk_usage(services.home).free
    low = free < _LOW_DISK
    yield Check(
        name="state folder",
        status="warn" if low else "ok",
        text=f"{services.home} has {free / (1 << 30):.1f} GB free",
        hint="make room, or `cumulo sweep`" if low else "",
    )
