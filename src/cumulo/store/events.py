"""Events: immutable facts, each written in the transaction of the change it tells of, and read back in pages.

`seq` orders them as they were committed, so a follower that asks for what came after the last `seq` it saw misses
nothing.
"""

from dataclasses import dataclass, fields
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select, text

from cumulo.store.tables import event

# On PostgreSQL a serial number is drawn before the commit, so a lower one could appear after a higher one had been
# read. Whoever writes events of this database therefore does so one after the other. SQLite has one writer anyway.
_IN_ORDER: Final = text("SELECT pg_advisory_xact_lock(727486802)")
MAX_PAGE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """A fact at epoch seconds `at`. `kind` is a noun and what happened to it: `run.accepted`, `node.unreachable`."""

    at: float
    kind: str
    message: str
    project: str
    account: str
    run_id: str | None = None
    instance_id: str | None = None
    node_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(NewEvent):
    """A fact as it was kept."""

    seq: int


_WRITTEN: Final = tuple(field.name for field in fields(NewEvent))
_INSERT: Final = insert(event)
_SELECT: Final = select(event.c.seq, *(event.c[name] for name in _WRITTEN))


def append(tx: Connection, *events: NewEvent) -> None:
    """Writes the events, in this order. Call it last: from here to the commit it holds up other servers' events."""
    if not events:
        return
    if tx.dialect.name == "postgresql":
        tx.execute(_IN_ORDER)
    tx.execute(_INSERT, [{name: getattr(one, name) for name in _WRITTEN} for one in events])


def page(
    tx: Connection,
    *,
    after: int = 0,
    limit: int = 50,
    run_id: str | None = None,
    kind: str | None = None,
    account: str | None = None,
) -> tuple[Event, ...]:
    """At most `limit` events with a `seq` above `after`, oldest first.

    `kind` is one kind (`run.accepted`) or the noun before the dot (`run`). Pass on the last `seq` to get the next
    page.
    """
    # SELECT ... FROM event WHERE seq > :after AND run_id = :run AND kind = :kind ORDER BY seq LIMIT :limit
    wanted = [event.c.seq > after, *_about(run_id, kind)]
    if account is not None:
        wanted.append(event.c.account == account)
    rows = tx.execute(_SELECT.where(and_(*wanted)).order_by(event.c.seq).limit(min(limit, MAX_PAGE)))
    return tuple(Event(seq=seq, **dict(zip(_WRITTEN, written, strict=True))) for seq, *written in rows)


def before_newest(tx: Connection, number: int, *, run_id: str | None = None, kind: str | None = None) -> int:
    """The `seq` after which the newest `number` events of that run and kind come."""
    # SELECT seq FROM event WHERE run_id = :run AND kind = :kind ORDER BY seq DESC LIMIT 1 OFFSET :number
    found = select(event.c.seq).where(*_about(run_id, kind)).order_by(event.c.seq.desc()).offset(number).limit(1)
    return tx.execute(found).scalar_one_or_none() or 0


def _about(run_id: str | None, kind: str | None) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = []
    if run_id is not None:
        wanted.append(event.c.run_id == run_id)
    if kind is not None:
        wanted.append(event.c.kind == kind if "." in kind else event.c.kind.startswith(f"{kind}.", autoescape=True))
    return wanted


def last_seq(tx: Connection) -> int:
    """The newest event's `seq`, 0 if there is none."""
    newest: int = tx.execute(select(func.coalesce(func.max(event.c.seq), 0))).scalar_one()
    return newest
