"""Who a request comes from.

Over TCP, loopback included, a token says it. Over the unix socket the kernel does: the listener notes the uid at the
other end (`cumulo.server.listen`), and nobody can pretend to be another. A server started by root knows every Unix user
of the machine, with an account made on first sight; one started by an ordinary user serves that user, and root.

What callers may do: rows of runs and of the queue (names, asks, who) are for everybody, since the machine is shared
and "who holds which GPU" is the question asked most. Specs, logs, files, exec, ports and changes are for the run's
owner and for admins.
"""

import pwd
import time
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from cumulo.domain.errors import CumuloError
from cumulo.server.services import Services, services_of
from cumulo.store import people
from cumulo.store.people import Caller
from cumulo.store.schema import DEFAULT_PROJECT

# The address of a peer on the unix socket, in the place where a TCP peer has its IP. No IP looks like it.
PEER_PREFIX = "uid:"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixUsers:
    """Whom a server knows by uid: everybody if root started it, else the one who did (and root)."""

    owner_uid: int

    def check(self, uid: int) -> None:
        """Raises CumuloError (forbidden)."""
        if self.owner_uid != 0 and uid not in (0, self.owner_uid):
            raise CumuloError(
                "forbidden",
                f"this server serves {unix_name(self.owner_uid)} alone",
                hint="start your own with `cumulo up -d`",
            )

    def admin(self, uid: int) -> bool:
        return uid in (0, self.owner_uid)


def unix_name(uid: int) -> str:
    """The login name of a uid; `uid-1234` where the machine knows none that could be an account's."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid-{uid}"
    return name if name.isprintable() and " " not in name and "/" not in name and len(name) <= 40 else f"uid-{uid}"


async def authenticate(connection: HTTPConnection) -> Caller:
    """The caller of a request or websocket. Raises CumuloError (unauthenticated, forbidden)."""
    services = services_of(connection)
    header = connection.headers.get("authorization")
    if header is not None:
        return await _by_token(services, header)
    uid = peer_uid(connection.scope)
    if uid is None:
        raise CumuloError("unauthenticated", "a token is needed here", hint="`cumulo login` stores one")
    services.unix_users.check(uid)
    if uid not in services.peers:
        services.peers[uid] = await run_in_threadpool(_by_uid, services, uid)
    return services.peers[uid]


async def _by_token(services: Services, header: str) -> Caller:
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise CumuloError("unauthenticated", "the Authorization header must read `Bearer TOKEN`")
    token = text.strip()
    if known := services.verifier.trusted(token):  # verified a moment ago: no need for another thread
        return known
    return await run_in_threadpool(services.verifier.verify, token)


def peer_uid(scope: Any) -> int | None:
    """The uid at the other end of the unix socket; None for TCP."""
    client = scope.get("client")
    if not client or not client[0].startswith(PEER_PREFIX):
        return None
    return int(client[0].removeprefix(PEER_PREFIX))


def _by_uid(services: Services, uid: int) -> Caller:
    with services.db.read() as tx:
        account = people.account_for_uid(tx, uid)
    admin = services.unix_users.admin(uid)
    if account is None or account.admin != admin:
        with services.db.write() as tx:
            account = people.ensure_account(tx, name=unix_name(uid), unix_uid=uid, admin=admin, now=time.time())
    return Caller(account=account.name, project=DEFAULT_PROJECT, admin=account.admin)


def require_admin(caller: Caller, what: str) -> None:
    """Raises CumuloError (forbidden) unless the caller is an admin."""
    if not caller.admin:
        raise CumuloError("forbidden", f"only an admin may {what}")


Auth = Annotated[Caller, Depends(authenticate)]
