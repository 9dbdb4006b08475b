"""A cloud on SQLite for most tests, and one on each kind of database for what a database could get wrong."""

import pytest
from sqlalchemy import event

from cumulo.store import schema
from cumulo.store.database import Database
from tests.control.fakes import Cloud
from tests.databases import CLOUD_ID, NOW, db, new_postgresql, postgresql_server

__all__ = ["db", "new_postgresql", "postgresql_server"]


def _without_fsync(connection, _record):
    connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture
def quick_db(tmp_path):
    """A SQLite database that does not wait for the disk: nothing here survives the test anyway."""
    database = Database.open(None, home=tmp_path)
    event.listen(database.engine, "connect", _without_fsync)
    database.engine.dispose()
    schema.prepare(database, cloud_id=CLOUD_ID, now=NOW)
    yield database
    database.close()


@pytest.fixture
def cloud(quick_db, tmp_path):
    return Cloud(quick_db, tmp_path).ready()


@pytest.fixture
def any_cloud(db, tmp_path):
    """A cloud on SQLite, and one on PostgreSQL."""
    return Cloud(db, tmp_path).ready()
