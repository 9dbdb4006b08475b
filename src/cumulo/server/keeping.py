"""What lies on the disk, in the store and on the node, how long it is kept, and the sweep of what no longer is.

A server sweeps once a day by itself; `cumulo sweep` asks for it now.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from cumulo.domain.errors import CumuloError
from cumulo.domain.storage import Stored
from cumulo.server.services import Services
from cumulo.store import events, picture, retention
from cumulo.store.events import NewEvent
from cumulo.store.people import Caller
from cumulo.store.retention import Held, Swept

logger = logging.getLogger(__name__)

_DAY_S: Final = 86400.0
_FIRST_S: Final = 600.0  # a server that has just started has better things to do


class NodeKeeping(Protocol):
    """An engine that keeps things of its own: outputs, environments, folders of what ended. See `LocalEngine`.

    Seconds are infinite for what is kept for good.
    """

    def storage(self) -> Sequence[Stored]: ...

    def sweep(
        self, *, keep_s: float, environments_s: float, active_runs: frozenset[str], dry_run: bool = False
    ) -> Sequence[Stored]: ...


def held(services: Services) -> list[Held]:
    """What there is of each kind. Looks at every file, so it is not for every second."""
    with services.db.read() as tx:
        settings = retention.load_retention(tx)
    rows = list(retention.held(services.db, blobs=services.blobs, logs=services.logs, retention=settings))
    for stored in services.keeping.storage():
        days = {"environments": settings.environments, "homes": None}.get(stored.what, settings.outputs)
        rows.append(Held(stored.what, stored.count, stored.bytes, stored.path, days))
    return rows


def keep(services: Services, caller: Caller, days: Mapping[str, float | None]) -> None:
    """Keeps what `days` names (a field of `Retention`) for so many days from now on, None for good.

    Nothing is removed before the next sweep.
    """
    with services.db.write() as tx:
        settings = replace(retention.load_retention(tx), **days)
        before = retention.save_retention(tx, settings)
        if before:
            parts = [f"{name} {_told(getattr(settings, name))} (before: {_told(was)})" for name, was in before.items()]
            message = f"{caller.account} set how long things are kept: {', '.join(parts)}"
            fact = NewEvent(
                at=time.time(),
                kind="storage.kept",
                message=message,
                project=caller.project,
                account=caller.account,
            )
            events.append(tx, fact)


def _told(days: float | None) -> str:
    return "forever" if days is None else f"{days:g} {'day' if days == 1 else 'days'}"


def sweep(services: Services, *, dry_run: bool) -> list[Swept]:
    """Removes what is older than its setting says; with `dry_run` only counts it."""
    with services.db.read() as tx:
        settings = retention.load_retention(tx)
        active = frozenset(row["id"] for row in picture.open_runs(tx))
    swept = retention.sweep(
        services.db,
        blobs=services.blobs,
        logs=services.logs,
        retention=settings,
        now=time.time(),
        dry_run=dry_run,
    )
    of_node = services.keeping.sweep(
        keep_s=retention.seconds(settings.outputs),
        environments_s=retention.seconds(settings.environments),
        active_runs=active,
        dry_run=dry_run,
    )
    return [*swept, *(Swept(stored.what, stored.count, stored.bytes) for stored in of_node)]


class DailySweep:
    """Sweeps once a day on a thread of its own, until closed."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="cumulo-sweep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()

    def _work(self) -> None:
        pause = _FIRST_S
        while not self._closing.wait(pause):
            pause = _DAY_S
            try:
                swept = sweep(self._services, dry_run=False)
                told = ", ".join(f"{one.count} {one.what}" for one in swept if one.count)
                logger.info("swept %s", told or "nothing")
            except CumuloError as error:
                logger.warning("the daily sweep failed: %s", error)
            except Exception:
                logger.exception("the daily sweep failed")
