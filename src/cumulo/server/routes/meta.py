"""Who answers here, whom it takes the caller for, and what a run file may say."""

import pwd
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from cumulo import __version__
from cumulo.server import render
from cumulo.server.auth import Auth
from cumulo.server.services import Serving
from cumulo.store import people
from cumulo.wire import api, run_file

router = APIRouter(tags=["meta"])


@router.get("/v1/health", response_model=api.Health)
async def health(services: Serving) -> Response:
    """Needs no token."""
    return render.answer({"status": "ok", "version": __version__, "cloud_id": services.cloud_id, "api": "v1"})


@router.get("/v1/me", response_model=api.Me)
def me(services: Serving, caller: Auth) -> Response:
    with services.db.read() as tx:
        account = people.find_account(tx, caller.account)
    return render.answer(
        {
            "account": caller.account,
            "project": caller.project,
            "admin": caller.admin,
            "unix_user": _unix_user(account.unix_uid if account else None),
        }
    )


def _unix_user(uid: int | None) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name if uid is not None else None
    except KeyError:
        return None


@router.get("/v1/schema/run-file", response_model=dict[str, Any])
async def run_file_schema(_caller: Auth) -> Response:
    return render.answer(run_file.schema())
