"""Brings a database to the schema of this version: creates it, upgrades it, or refuses one from a newer version.

The stored revision is read with plain SQL first. Alembic is imported for an upgrade alone, since that costs more than
the whole rest of a start; a new database is made from `tables.metadata` at once and stamped, and a test proves that
the migrations arrive at exactly the same.
"""

from pathlib import Path
from typing import Final

from sqlalchemy import Connection, insert, inspect, select, text, update

from cumulo import __version__
from cumulo.domain.errors import CumuloError
from cumulo.store.database import Database
from cumulo.store.tables import meta, metadata, project

# Every migration in migrations/versions, oldest first.
REVISIONS: Final = ("0001", "0002", "0003", "0004")
HEAD: Final = REVISIONS[-1]
DEFAULT_PROJECT: Final = "default"
MIGRATIONS: Final = Path(__file__).parent / "migrations"

# Two servers that start on one PostgreSQL at the same time must not both create the tables.
_STARTING: Final = text("SELECT pg_advisory_xact_lock(727486801)")


def prepare(db: Database, *, cloud_id: str, now: float) -> str:
    """Makes the database ready and returns its cloud id: `cloud_id` if it is new, else the one it was made with.

    All or nothing: a failed upgrade leaves what was there. Raises CumuloError `conflict` for a database of a newer
    version.
    """
    with db.read() as tx:
        if stored_revision(tx) == HEAD:
            return get_meta(tx, "cloud_id")
    with db.write() as tx:
        if db.dialect == "postgresql":
            tx.execute(_STARTING)
        stored = stored_revision(tx)
        if stored is None:
            _create(tx, cloud_id=cloud_id, now=now)
        elif stored not in REVISIONS:
            raise _newer(tx, stored)
        elif stored != HEAD:
            _upgrade(tx)
            set_meta(tx, "version", __version__)
        return get_meta(tx, "cloud_id")


def stored_revision(tx: Connection) -> str | None:
    """The revision of the database's schema; None for an empty database."""
    if not inspect(tx).has_table("alembic_version"):
        return None
    revision: str | None = tx.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return revision


def next_epoch(tx: Connection) -> int:
    """Raises the epoch by one and returns it. Engines refuse whoever comes with an older one."""
    row = tx.execute(select(meta.c.value).where(meta.c.key == "epoch").with_for_update()).scalar_one()
    epoch = int(row) + 1
    set_meta(tx, "epoch", str(epoch))
    return epoch


def get_meta(tx: Connection, key: str, default: str | None = None) -> str:
    """The value under `key`. Raises KeyError if there is none and no default."""
    value = tx.execute(select(meta.c.value).where(meta.c.key == key)).scalar()
    if value is None:
        value = default
    if value is None:
        raise KeyError(key)
    return value


def set_meta(tx: Connection, key: str, value: str) -> None:
    changed = tx.execute(update(meta).where(meta.c.key == key).values(value=value))
    if changed.rowcount == 0:
        tx.execute(insert(meta).values(key=key, value=value))


def _create(tx: Connection, *, cloud_id: str, now: float) -> None:
    metadata.create_all(tx)
    tx.exec_driver_sql(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    tx.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})
    values = {"cloud_id": cloud_id, "created_at": repr(now), "epoch": "0", "version": __version__}
    tx.execute(insert(meta), [{"key": key, "value": value} for key, value in values.items()])
    tx.execute(insert(project).values(name=DEFAULT_PROJECT, created_at=now, created_by=""))


def _upgrade(tx: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = tx
    command.upgrade(config, "head")


def _newer(tx: Connection, stored: str) -> CumuloError:
    written = get_meta(tx, "version", "a newer version")
    return CumuloError(
        "conflict",
        f"the database is of Cumulo {written} (schema {stored}), newer than this Cumulo {__version__} (schema {HEAD})",
        hint=f"install Cumulo {written} or newer, or start with another state folder or database",
    )
