"""A database is created, upgraded or refused; and however it came about, it is the same."""

import subprocess
import sys

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, select, text

from cumulo import __version__
from cumulo.domain.errors import CumuloError
from cumulo.store import schema
from cumulo.store.database import Database
from cumulo.store.tables import device, hold, instance, metadata, project, usage
from tests.databases import CLOUD_ID, NOW

SERVERS = 4
START = """
import sys
from pathlib import Path
from cumulo.store import schema
from cumulo.store.database import Database
db = Database.open(sys.argv[1], home=Path("/nonexistent"))
print(schema.prepare(db, cloud_id=sys.argv[2], now=1.0), "alembic" in sys.modules)
"""
_RUN = "'r', 'default', 'ada', 'train', 'task', 'running', 'running', 0, 'on-demand', 'T4:2', '{}', '', 1, 1, 1, 0, 0"
_INSTANCE = "0, 'default', 'ada', 'local/one', 'local', 'running', NULL, NULL, NULL, '', NULL, NULL, 1000, 1024"
# What a cloud of the first version may have in it: two runs' instances, one of them on two GPUs.
FIRST = f"""
INSERT INTO meta VALUES ('cloud_id', 'first'), ('version', '0.0.1');
INSERT INTO node VALUES
    ('local/one', 'local', 'one', '127.0.0.1', 8000, 8192, '0', '{{}}', 'ready', '', 1.0, 2.0, 0);
INSERT INTO device VALUES ('GPU-0', 'local/one', 0, 'T4', 15, '0', NULL, 'ok', '', ''),
    ('GPU-1', 'local/one', 1, 'T4', 15, '0', NULL, 'ok', '', '');
INSERT INTO run VALUES ({_RUN}, 1, NULL, NULL, '', '', 1.0, NULL, NULL, NULL, 0, 0, NULL);
INSERT INTO instance VALUES
    ('r-0-1-0', 'r', 0, 1, {_INSTANCE}, 'GPU-0,GPU-1', 'T4', '0', '', 1, 0, 0, 1.0, 1.0, 1.0, NULL, NULL, NULL),
    ('r-1-1-0', 'r', 1, 1, {_INSTANCE}, '', '', '0', '', 1, 0, 0, 1.0, 1.0, 1.0, NULL, NULL, NULL);
INSERT INTO hold VALUES ('GPU-0', 'whole', 'r-0-1-0', 'default', 'ada', 'exclusive', 1000, 15);
INSERT INTO usage VALUES ('r-0-1-0', 1.0, NULL, 'r', 'default', 'ada', 'T4', 2, 1000, 0, 0),
    ('r-1-1-0', 1.0, NULL, 'r', 'default', 'ada', '', 0, 1000, 0, 0)
"""  # noqa: S608  # written here, for a test


@pytest.fixture
def empty(database_url, tmp_path):
    database = Database.open(database_url, home=tmp_path)
    yield database
    database.close()


def migrate_from_nothing(db, to="head"):
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    with db.write() as tx:
        tx.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
        config.attributes["connection"] = tx
        command.upgrade(config, to)


def differences(db):
    with db.read() as tx:
        context = MigrationContext.configure(tx, opts={"compare_type": True, "compare_server_default": True})
        return compare_metadata(context, metadata)


def shape(db):
    """Everything the database itself says about its tables."""
    with db.read() as tx:
        look = inspect(tx)
        return {
            name: (
                [{key: str(value) for key, value in column.items()} for column in look.get_columns(name)],
                look.get_pk_constraint(name),
                look.get_foreign_keys(name),
                sorted(map(str, look.get_indexes(name))),
                look.get_unique_constraints(name),
            )
            for name in look.get_table_names()
            if name != "alembic_version"
        }


def test_the_migrations_make_exactly_the_tables(empty):
    migrate_from_nothing(empty)
    assert differences(empty) == []


def test_a_new_database_is_what_the_migrations_make(empty):
    migrate_from_nothing(empty)
    migrated = shape(empty)
    with empty.write() as tx:
        metadata.drop_all(tx)
        tx.exec_driver_sql("DROP TABLE alembic_version")
    schema.prepare(empty, cloud_id="c", now=NOW)
    assert shape(empty) == migrated


def test_every_migration_is_listed_and_the_last_is_the_head():
    scripts = ScriptDirectory(str(schema.MIGRATIONS))
    listed = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(listed)) == schema.REVISIONS
    assert scripts.get_current_head() == schema.HEAD


def test_a_new_database_knows_its_cloud_and_the_default_project(empty):
    assert schema.prepare(empty, cloud_id="first", now=NOW) == "first"
    with empty.read() as tx:
        assert float(schema.get_meta(tx, "created_at")) == NOW
        assert schema.get_meta(tx, "version") == __version__
        assert tx.execute(select(project.c.name)).scalars().all() == [schema.DEFAULT_PROJECT]


def test_a_second_start_keeps_the_cloud_id(empty):
    schema.prepare(empty, cloud_id="first", now=NOW)
    assert schema.prepare(empty, cloud_id="second", now=NOW + 1) == "first"


def test_a_database_of_the_first_version_is_upgraded_with_all_that_is_in_it(empty):
    """All that was held and used before devices could be shared was whole devices."""
    migrate_from_nothing(empty, to="0001")
    with empty.write() as tx:
        for sentence in FIRST.strip().split(";\n"):
            tx.exec_driver_sql(sentence)
    assert schema.prepare(empty, cloud_id="second", now=NOW + 1) == "first"
    with empty.read() as tx:
        assert schema.stored_revision(tx) == schema.HEAD
        assert schema.get_meta(tx, "version") == __version__
        assert tx.execute(select(device.c.modes)).scalars().all() == ["exclusive", "exclusive"]
        assert tx.execute(select(hold.c.slice, hold.c.mode, hold.c.milli, hold.c.profile, hold.c.start)).all() == [
            ("whole", "exclusive", 1000, "", None)
        ]
        instances = tx.execute(select(instance.c.gpu_milli, instance.c.gpus).order_by(instance.c.id)).all()
        assert instances == [(2000, "2x T4"), (0, "")]
        used = tx.execute(select(usage.c.gpu_milli, usage.c.gpus).order_by(usage.c.instance_id)).all()
        assert used == instances


def test_a_database_of_a_newer_version_is_refused_by_name(db):
    with db.write() as tx:
        tx.execute(text("UPDATE alembic_version SET version_num = '0999'"))
        schema.set_meta(tx, "version", "7.2.0")
    with pytest.raises(CumuloError) as refused:
        schema.prepare(db, cloud_id="c", now=NOW)
    assert refused.value.message == (
        f"the database is of Cumulo 7.2.0 (schema 0999), newer than this Cumulo {__version__} (schema {schema.HEAD})"
    )
    with db.read() as tx:
        assert schema.stored_revision(tx) == "0999"


def test_a_failed_creation_leaves_an_empty_database(empty, monkeypatch):
    monkeypatch.setattr(schema, "DEFAULT_PROJECT", None)
    with pytest.raises(Exception, match=r"(?i)null"):
        schema.prepare(empty, cloud_id="c", now=NOW)
    with empty.read() as tx:
        assert inspect(tx).get_table_names() == []


def test_several_servers_that_start_at_once_agree(database_url):
    """Separate processes, as two `cumulo up` would be."""
    starting = [
        subprocess.Popen(
            [sys.executable, "-c", START, database_url, f"cloud{number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(SERVERS)
    ]
    answers = [process.communicate(timeout=60) for process in starting]
    assert len({out for out, _ in answers}) == 1, answers
    assert answers[0][0].startswith(b"cloud")


def test_a_start_of_a_prepared_database_imports_no_alembic(db):
    url = db.engine.url.render_as_string(hide_password=False)
    done = subprocess.run([sys.executable, "-c", START, url, "other"], capture_output=True, check=True, timeout=60)
    assert done.stdout.split() == [CLOUD_ID.encode(), b"False"]


def test_the_epoch_rises_by_one(db):
    with db.write() as tx:
        first = schema.next_epoch(tx)
    with db.write() as tx:
        assert schema.next_epoch(tx) == first + 1


def test_a_prepared_database_is_that_of_the_fixture(db):
    assert schema.prepare(db, cloud_id="other", now=NOW) == CLOUD_ID
