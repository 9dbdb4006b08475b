"""How long what piles up is kept, the sweep that removes the rest, and how much there is.

Runs and what they cost are kept for good: they are small. What a run that has not ended needs is never swept.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import islice
from typing import Final

from sqlalchemy import ColumnElement, Connection, Delete, and_, delete, exists, func, or_, select

from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import TERMINAL
from cumulo.domain.manifest import parse_manifest
from cumulo.store.blobs import MIN_AGE_S, Blobs
from cumulo.store.database import Database
from cumulo.store.events import last_seq
from cumulo.store.logs import Logs
from cumulo.store.schema import get_meta, set_meta
from cumulo.store.tables import event, idempotency, run, spot_price

_DAY_S: Final = 86400.0
_ROWS: Final = 5000  # removed in one transaction, so that a sweep holds nobody up
_DIGEST: Final = re.compile(r'"([0-9a-f]{64})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Days that things are kept: events from when they happened, what belongs to a run from its end. None: for good."""

    events: float | None = 90.0
    logs: float | None = 30.0
    blobs: float | None = 14.0
    idempotency: float | None = 7.0
    environments: float | None = 30.0  # swept by the node that has them
    outputs: float | None = 30.0  # likewise

    def __post_init__(self) -> None:
        for field in fields(self):
            days = getattr(self, field.name)
            if days is not None and not 0 < days <= 36500:
                raise ValueError(f"{field.name} can't be kept for {days} days: say more than 0 and at most 36500")


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed of one kind. `bytes` None: rows, whose room the database uses again."""

    what: str
    count: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """What there is of one kind. `bytes` None: it lies in the database. `kept_days` None: for good."""

    what: str
    count: int
    bytes: int | None
    path: str
    kept_days: float | None


def load_retention(tx: Connection) -> Retention:
    """The settings, where not set the defaults."""
    texts = {name: get_meta(tx, f"keep_{name}_days", str(days)) for name, days in asdict(Retention()).items()}
    return Retention(**{name: None if text == "None" else float(text) for name, text in texts.items()})


def save_retention(tx: Connection, retention: Retention) -> dict[str, float | None]:
    """Writes the settings that change, and returns those as they were before.

    The others are left unwritten, so that they follow the defaults of later versions until somebody sets them.
    """
    before = asdict(load_retention(tx))
    changed = {name: days for name, days in asdict(retention).items() if days != before[name]}
    for name, days in changed.items():
        set_meta(tx, f"keep_{name}_days", str(days))
    return {name: before[name] for name in changed}


def seconds(days: float | None) -> float:
    """How long that is; infinite for what is kept for good."""
    return math.inf if days is None else days * _DAY_S


def sweep(
    db: Database, *, blobs: Blobs, logs: Logs, retention: Retention, now: float, dry_run: bool = False
) -> tuple[Swept, ...]:
    """Removes what is older than `retention` says, or with `dry_run` only counts it."""
    return (
        _sweep_events(db, now - seconds(retention.events), dry_run),
        _sweep_prices(db, now - seconds(retention.events), dry_run),
        _sweep_idempotency(db, now - seconds(retention.idempotency), dry_run),
        _sweep_logs(db, logs, now - seconds(retention.logs), dry_run),
        _sweep_blobs(db, blobs, retention=retention, now=now, dry_run=dry_run),
    )


def held(db: Database, *, blobs: Blobs, logs: Logs, retention: Retention) -> tuple[Held, ...]:
    """What there is, for `cumulo df`. Looks at every file, so it is not for every second."""
    with db.read() as tx:
        events = tx.execute(select(func.count()).select_from(event)).scalar_one()
        keys = tx.execute(select(func.count()).select_from(idempotency)).scalar_one()
        prices = tx.execute(select(func.count()).select_from(spot_price)).scalar_one()
        database = None if db.path else tx.execute(select(func.pg_database_size(func.current_database()))).scalar_one()
    if db.path:
        parts = [db.path.with_name(db.path.name + end) for end in ("", "-wal", "-shm")]
        database = sum(part.stat().st_size for part in parts if part.exists())
    where = str(db.path or db.engine.url.render_as_string(hide_password=True))
    log_files, log_bytes = logs.total()
    blob_files, blob_bytes = blobs.total()
    return (
        Held("database", 1, database, where, None),
        Held("events", events, None, where, retention.events),
        Held("spot prices", prices, None, where, retention.events),
        Held("idempotency keys", keys, None, where, retention.idempotency),
        Held("logs", log_files, log_bytes, str(logs.root), retention.logs),
        Held("blobs", blob_files, blob_bytes, str(blobs.root), retention.blobs),
    )


def referenced_blobs(db: Database, blobs: Blobs, *, ended_after: float) -> frozenset[str]:
    """The blobs of every run that has not ended, or did so after `ended_after`.

    Whatever in a run's spec looks like a digest is taken for one: to keep a blob too many does no harm.
    """
    kept: set[str] = set()
    with db.read() as tx:
        for spec in tx.execute(select(run.c.spec).where(_still_kept(ended_after))).scalars():
            kept.update(_DIGEST.findall(spec))
    for digest in tuple(kept):
        try:
            kept |= parse_manifest(blobs.read(digest)).digests
        except (KeyError, CumuloError):
            continue  # not there, or not a manifest
    return frozenset(kept)


def _still_kept(ended_after: float) -> ColumnElement[bool]:
    return or_(run.c.status.not_in(TERMINAL), run.c.ended_at >= ended_after)


def _sweep_events(db: Database, cutoff: float, dry_run: bool) -> Swept:
    with db.read() as tx:
        # The newest stays in any case: SQLite would otherwise number from 1 again and confuse who follows.
        old = and_(event.c.at < cutoff, event.c.seq < last_seq(tx))
        count = tx.execute(select(func.count()).select_from(event).where(old)).scalar_one()
    if count and not dry_run:
        step = select(event.c.seq).where(old).order_by(event.c.seq).limit(_ROWS).scalar_subquery()
        count = _delete(db, delete(event).where(event.c.seq.in_(step)))
    return Swept("events", count, None)


def _sweep_prices(db: Database, cutoff: float, dry_run: bool) -> Swept:
    """Spot prices go as events do. What held at the cutoff stays: what is drawn from there on begins with it."""
    later = spot_price.alias()
    same = and_(later.c.region == spot_price.c.region, later.c.kind == spot_price.c.kind)
    after = exists().where(same, later.c.at > spot_price.c.at, later.c.at <= cutoff)
    old = and_(spot_price.c.at < cutoff, after)
    if dry_run:
        with db.read() as tx:
            count = tx.execute(select(func.count()).select_from(spot_price).where(old)).scalar_one()
        return Swept("spot prices", count, None)
    with db.write() as tx:
        return Swept("spot prices", tx.execute(delete(spot_price).where(old)).rowcount, None)


def _sweep_idempotency(db: Database, cutoff: float, dry_run: bool) -> Swept:
    old = idempotency.c.created_at < cutoff
    if dry_run:
        with db.read() as tx:
            count = tx.execute(select(func.count()).select_from(idempotency).where(old)).scalar_one()
        return Swept("idempotency keys", count, None)
    with db.write() as tx:
        return Swept("idempotency keys", tx.execute(delete(idempotency).where(old)).rowcount, None)


def _delete(db: Database, step: Delete) -> int:
    """Repeats a statement that removes a bounded number of rows, each time in a transaction of its own."""
    removed = 0
    while True:
        with db.write() as tx:
            rows = tx.execute(step).rowcount
        removed += rows
        if rows < _ROWS:
            return removed


def _sweep_logs(db: Database, logs: Logs, cutoff: float, dry_run: bool) -> Swept:
    files = size = 0
    for some in _in_parts(logs.runs(), 500):
        with db.read() as tx:
            kept = set(tx.execute(select(run.c.id).where(run.c.id.in_(some), _still_kept(cutoff))).scalars())
        for run_id in set(some) - kept:
            if logs.changed_at(run_id) >= cutoff:
                continue  # of a run that a restored database does not know
            gone = logs.total(run_id)
            files, size = files + gone.files, size + gone.bytes
            if not dry_run:
                logs.delete(run_id)
    return Swept("logs", files, size)


def _sweep_blobs(db: Database, blobs: Blobs, *, retention: Retention, now: float, dry_run: bool) -> Swept:
    if retention.blobs is None:
        return Swept("blobs", 0, 0)  # what is needed by whom, which takes long to find out, doesn't matter
    # The time to look back to is taken before the runs are read: what a later run uploads or asks for is newer.
    older_than = now - max(MIN_AGE_S, seconds(retention.blobs))
    referenced = referenced_blobs(db, blobs, ended_after=now - seconds(retention.blobs))
    gone = blobs.sweep(referenced, older_than=older_than, dry_run=dry_run)
    return Swept("blobs", gone.files, gone.bytes)


def _in_parts(names: Iterator[str], size: int) -> Iterator[tuple[str, ...]]:
    while part := tuple(islice(names, size)):
        yield part
