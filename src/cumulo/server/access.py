"""Which run a URL means, and whether its caller may do more than see its row."""

import difflib
import json
from typing import Any

from sqlalchemy import Connection, Row

from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable
from cumulo.domain.run import RunSpec, from_wire
from cumulo.server.services import Services
from cumulo.store import views
from cumulo.store.people import Caller


def find_run(tx: Connection, text: str, caller: Caller) -> Row[Any]:
    """The run of that id or name. Raises CumuloError (run_not_found), naming runs that are spelled alike."""
    found = views.find_run(tx, text, account=caller.account, project=caller.project) if len(text) <= 64 else None
    if found is None:
        near = difflib.get_close_matches(text[:64], views.run_names(tx, account=None, limit=200), n=1)
        hint = f"did you mean {near[0]}?" if near else "`cumulo status --all` shows every run"
        raise CumuloError("run_not_found", f"there is no run {printable(text, 64)!r}", hint=hint)
    return found


def own_run(tx: Connection, text: str, caller: Caller, what: str) -> Row[Any]:
    """Likewise, for what only its owner and admins may do. Raises CumuloError (run_not_found, forbidden)."""
    found = find_run(tx, text, caller)
    if not is_own(found, caller):
        raise CumuloError("forbidden", f"only {found.account} and admins may {what} of {found.name} ({found.id})")
    return found


def is_own(run: Row[Any], caller: Caller) -> bool:
    return caller.admin or bool(run.account == caller.account)


def spec_of(run: Row[Any]) -> RunSpec:
    return from_wire(json.loads(run.spec))


def place_of(run: Row[Any], spec: RunSpec, index: int | None) -> int:
    """The place of an array index; the only place there is, for a run that is no array.

    Raises CumuloError (invalid_request) for an index that the run lacks, or that is missing.
    """
    if spec.array is None:
        if index not in (None, 0):
            raise CumuloError("invalid_request", f"unit: {run.name} is not an array, so it has no unit {index}")
        return 0
    if index is None:
        raise CumuloError("invalid_request", f"unit: {run.name} is an array; say which index of {spec.array.canonical}")
    place, rest = divmod(index - spec.array.first, spec.array.step)
    if rest or not 0 <= place < len(spec.array):
        raise CumuloError("invalid_request", f"unit: {run.name} has no index {index}; it has {spec.array.canonical}")
    return place


def last_instance(services: Services, run: Row[Any], *, unit: int | None, rank: int) -> Row[Any]:
    """The instance of that rank in the last attempt. Raises CumuloError (conflict) where none was placed yet."""
    place = place_of(run, spec_of(run), unit)
    with services.db.read() as tx:
        found = views.last_instance(tx, run.id, place=place, rank=rank)
    if found is None:
        if rank:
            raise CumuloError("not_found", f"{run.name} has no rank {rank}")
        raise CumuloError(
            "conflict", f"{run.name} has not been placed yet: it is {run.status}", hint="see `cumulo why`"
        )
    return found
