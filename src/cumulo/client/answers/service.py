"""The server itself: who answers, whom it takes us for, its tokens, its disk, its health."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Who answers at an address, before any token is shown to it."""

    status: str
    version: str = ""
    cloud_id: str = ""
    api: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """Whom the server takes us for."""

    account: str
    project: str = ""
    admin: bool = False
    unix_user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its secret, except in the one answer that creates it (`token`)."""

    id: str
    label: str = ""
    account: str = ""
    project: str = ""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    used_at: datetime | None = None
    revoked_at: datetime | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRow:
    """What one kind of stored thing takes on the server's disk."""

    what: str = ""
    bytes: int = 0
    count: int | None = None
    path: str = ""
    kept_days: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing `doctor` looked at: ok, warn, fail or info."""

    name: str = ""
    status: str = "info"
    text: str = ""
    hint: str = ""
