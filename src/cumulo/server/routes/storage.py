"""What lies on the disk, how long it is kept, and the sweep of what retention no longer keeps."""

from fastapi import APIRouter
from starlette.responses import Response

from cumulo.server import keeping, render
from cumulo.server.auth import Auth, require_admin
from cumulo.server.services import Services, Serving
from cumulo.wire import api

router = APIRouter(tags=["storage"])


@router.get("/v1/storage", response_model=api.StorageRows)
def storage(services: Serving, _caller: Auth) -> Response:
    """Looks at every file, so it is not for every second. `kept_days` null: for good."""
    return _rows(services)


@router.patch("/v1/storage", response_model=api.StorageRows)
def keep(body: api.StorageChange, services: Serving, caller: Auth) -> Response:
    """Sets how long things are kept. Admins only. Nothing goes before the next sweep."""
    require_admin(caller, "set how long things are kept")
    keeping.keep(services, caller, body.kept_days.model_dump(exclude_unset=True))
    return _rows(services)


def _rows(services: Services) -> Response:
    items = [
        {"what": row.what, "bytes": row.bytes, "count": row.count, "path": row.path, "kept_days": row.kept_days}
        for row in keeping.held(services)
    ]
    return render.answer({"items": items})


@router.post("/v1/storage/sweep", response_model=api.StorageRows)
def sweep(services: Serving, caller: Auth, body: api.Sweep | None = None) -> Response:
    """Removes what is older than its setting says; with `dry_run` only tells what would go."""
    require_admin(caller, "sweep")
    swept = keeping.sweep(services, dry_run=body.dry_run if body else False)
    items = [{"what": one.what, "bytes": one.bytes, "count": one.count, "path": "", "kept_days": None} for one in swept]
    return render.answer({"items": items})
