"""Who may use this cloud: accounts, their tokens, and the projects that pay.

A token reads `cumulo_ID_SECRET`. The id finds its row, the secret (256 bits) is known to nobody but its holder: the
row keeps its SHA-256. A plain hash is enough, since there is nothing to guess in 256 random bits.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, bindparam, insert, select, update

from cumulo.domain.errors import CumuloError
from cumulo.domain.names import check_name
from cumulo.store.database import Database
from cumulo.store.tables import account, project, token

TOKEN_PREFIX: Final = "cumulo"  # noqa: S105
_USED_EVERY_S: Final = 60.0  # how exact `used_at` is
_TRUSTED_S: Final = 5.0  # how long a verified token is taken at its word
_REMEMBERED: Final = 1024
_PROJECT: Final = select(project.c.name).where(project.c.name == bindparam("of"))  # built once, asked at every submit


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Somebody who may launch. `unix_uid` None: not a user of this machine."""

    name: str
    unix_uid: int | None
    admin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as it may be shown: everything but the secret. Times are epoch seconds."""

    id: str
    project: str
    account: str
    label: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who a request comes from, and the project it acts in."""

    account: str
    project: str
    admin: bool
    token_id: str | None = None


def account_for_uid(tx: Connection, uid: int) -> Account | None:
    return _one_account(tx, account.c.unix_uid == uid)


def find_account(tx: Connection, name: str) -> Account | None:
    return _one_account(tx, account.c.name == name)


def ensure_account(tx: Connection, *, name: str, unix_uid: int | None, admin: bool, now: float) -> Account:
    """The account of a Unix user (by uid), or else by name; made if it is not there. `admin` is brought up to date.

    A name that another uid holds already (a user was removed and made anew) becomes `name-uid`: whoever has a new uid
    is somebody else and must not get at the old one's runs. Raises ValueError for a name that can't be one.
    """
    known = account_for_uid(tx, unix_uid) if unix_uid is not None else find_account(tx, name)
    if known is None:
        if not (0 < len(name) <= 48 and name.isprintable() and " " not in name and "/" not in name):
            raise ValueError(f"{name!r} can't be the name of an account")
        if unix_uid is not None and find_account(tx, name) is not None:
            name = f"{name}-{unix_uid}"
        known = Account(name=name, unix_uid=unix_uid, admin=admin)
        tx.execute(insert(account).values(name=name, unix_uid=unix_uid, admin=admin, created_at=now))
    elif known.admin != admin:
        tx.execute(update(account).where(account.c.name == known.name).values(admin=admin))
        known = Account(name=known.name, unix_uid=known.unix_uid, admin=admin)
    return known


def accounts(tx: Connection, *, after: str = "", limit: int = 50) -> tuple[Account, ...]:
    """A page of accounts by name."""
    rows = tx.execute(_ACCOUNTS.where(account.c.name > after).order_by(account.c.name).limit(limit))
    return tuple(Account(**row) for row in rows.mappings())


def ensure_project(tx: Connection, name: str, *, created_by: str, now: float) -> None:
    """Makes the project unless it is there. Raises ValueError for a name that can't be one."""
    if not project_exists(tx, name):
        tx.execute(insert(project).values(name=check_name(name), created_at=now, created_by=created_by))


def project_exists(tx: Connection, name: str) -> bool:
    return tx.execute(_PROJECT, {"of": name}).first() is not None


def projects(tx: Connection, *, after: str = "", limit: int = 50) -> tuple[str, ...]:
    """A page of project names."""
    rows = tx.execute(select(project.c.name).where(project.c.name > after).order_by(project.c.name).limit(limit))
    return tuple(rows.scalars())


def create_token(
    tx: Connection,
    *,
    account_name: str,
    project_name: str,
    label: str,
    now: float,
    expires_at: float | None = None,
) -> tuple[Token, str]:
    """Makes a token; the text is told this once. Raises CumuloError `not_found` for an unknown account or project."""
    if find_account(tx, account_name) is None:
        raise CumuloError("not_found", f"there is no account {account_name!r}")
    if not project_exists(tx, project_name):
        raise CumuloError("not_found", f"there is no project {project_name!r}")
    secret = secrets.token_hex(32)
    made = {
        "id": secrets.token_hex(6),
        "project": project_name,
        "account": account_name,
        "label": label[:64],
        "created_at": now,
        "expires_at": expires_at,
    }
    tx.execute(insert(token).values(hash=_digest(secret), **made))
    row = tx.execute(_TOKENS.where(token.c.id == made["id"])).mappings().one()
    return Token(**row), f"{TOKEN_PREFIX}_{made['id']}_{secret}"


def tokens(tx: Connection, *, account_name: str | None = None, after: str = "", limit: int = 50) -> tuple[Token, ...]:
    """A page of tokens by id, of one account or of all; the revoked ones too."""
    query = _TOKENS.where(token.c.id > after).order_by(token.c.id).limit(limit)
    if account_name is not None:
        query = query.where(token.c.account == account_name)
    return tuple(Token(**row) for row in tx.execute(query).mappings())


def revoke_token(tx: Connection, token_id: str, *, account_name: str | None = None, now: float) -> None:
    """Revokes a token for good; again is no error. With `account_name`, only one of that account.

    Raises CumuloError `not_found`. Tell the `TokenVerifier` to `forget` it once this is committed.
    """
    mine = [token.c.id == token_id]
    if account_name is not None:
        mine.append(token.c.account == account_name)
    if tx.execute(select(token.c.id).where(*mine)).first() is None:
        raise CumuloError("not_found", f"there is no token {token_id!r}", hint="`cumulo token list` shows yours")
    tx.execute(update(token).where(*mine, token.c.revoked_at.is_(None)).values(revoked_at=now))


class TokenVerifier:
    """Tells who holds a token. What it verified it trusts for a few seconds, so that most requests cost no query."""

    def __init__(self, db: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._db = db
        self._clock = clock
        self._lock = threading.Lock()
        self._forgotten = 0
        self._trusted: dict[str, tuple[Caller, float]] = {}  # by the digest of the whole text: (caller, until)

    def verify(self, text: str) -> Caller:
        """Raises CumuloError `unauthenticated` for a token that is unknown, wrong, expired or revoked."""
        if known := self.trusted(text):
            return known
        now, forgotten = self._clock(), self._forgotten
        caller, until = self._look_up(text, now)
        with self._lock:
            if forgotten == self._forgotten:  # else it may be this one that was revoked meanwhile
                if len(self._trusted) >= _REMEMBERED:
                    self._trusted.clear()
                self._trusted[_digest(text)] = (caller, min(until, now + _TRUSTED_S))
        return caller

    def trusted(self, text: str) -> Caller | None:
        """The caller if the token was verified a moment ago; never waits for the database."""
        now = self._clock()
        caller, until = self._trusted.get(_digest(text), (None, 0.0))
        return caller if now < until <= now + _TRUSTED_S else None

    def forget(self, token_id: str) -> None:
        """A token was revoked here: it is refused from now on."""
        with self._lock:
            self._forgotten += 1
            self._trusted = {key: one for key, one in self._trusted.items() if one[0].token_id != token_id}

    def _look_up(self, text: str, now: float) -> tuple[Caller, float]:
        prefix, token_id, secret = (*text.split("_", 2), "", "")[:3]
        if prefix != TOKEN_PREFIX or not (token_id.isascii() and token_id.isalnum()):
            raise _refused("the token is not valid")
        with self._db.read() as tx:
            row = tx.execute(_HELD.where(token.c.id == token_id)).first()
        # An unknown id takes the same comparison as a wrong secret.
        right = hmac.compare_digest(_digest(secret), row.hash if row else _digest(""))
        if row is None or not right:
            raise _refused("the token is not valid")
        if row.revoked_at is not None:
            raise _refused("the token was revoked")
        if row.expires_at is not None and now >= row.expires_at:
            raise _refused("the token has expired")
        if row.used_at is None or abs(now - row.used_at) >= _USED_EVERY_S:
            self._note_use(token_id, now)
        caller = Caller(account=row.account, project=row.project, admin=row.admin, token_id=token_id)
        return caller, row.expires_at or float("inf")

    def _note_use(self, token_id: str, now: float) -> None:
        try:
            with self._db.write() as tx:
                tx.execute(update(token).where(token.c.id == token_id).values(used_at=now))
        except CumuloError:
            pass  # a full disk or a busy database must not lock people out


_ACCOUNTS = select(account.c.name, account.c.unix_uid, account.c.admin)
_TOKENS = select(*(column for column in token.c if column.name != "hash"))
_HELD = select(token, account.c.admin).join(account, account.c.name == token.c.account)


def _one_account(tx: Connection, which: ColumnElement[bool]) -> Account | None:
    row = tx.execute(_ACCOUNTS.where(which)).mappings().first()
    return None if row is None else Account(**row)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _refused(message: str) -> CumuloError:
    return CumuloError("unauthenticated", message, hint="`cumulo login` stores a new one")
