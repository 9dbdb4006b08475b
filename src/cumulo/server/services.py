"""What the routes work with, put together once by `cumulo.server.compose`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from cumulo.server.counters import Counters
from cumulo.store.blobs import Blobs
from cumulo.store.database import Database
from cumulo.store.logs import Logs
from cumulo.store.people import Caller, TokenVerifier

if TYPE_CHECKING:
    from cumulo.control import Control
    from cumulo.server.auth import UnixUsers
    from cumulo.server.feed import Feed
    from cumulo.server.keeping import NodeKeeping


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts of a running server. `peers` remembers callers on the unix socket by uid."""

    home: Path
    cloud_id: str
    db: Database
    blobs: Blobs
    logs: Logs
    control: "Control"
    verifier: TokenVerifier
    unix_users: "UnixUsers"
    feed: "Feed"
    keeping: "NodeKeeping"
    counters: Counters = field(default_factory=Counters)
    peers: dict[int, Caller] = field(default_factory=dict)


def services_of(connection: HTTPConnection) -> Services:
    """The services of the application that a request came to."""
    services: Services = connection.app.state.services
    return services


async def _serve(connection: HTTPConnection) -> Services:
    # Asynchronous, since a plain function would be sent to another thread for a look-up of two attributes.
    return services_of(connection)


Serving = Annotated[Services, Depends(_serve)]
