"""Transactions: snapshots, contention, failures in words, and what survives a kill.

That a commit survives a power cut rests on SQLite's `synchronous = FULL` and on PostgreSQL's own settings; no test here
can cut the power.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from cumulo.domain.errors import CumuloError
from cumulo.store import schema
from cumulo.store.database import Conflict, Database, _of_postgresql
from cumulo.store.tables import hold, meta, node
from tests.databases import NOW

THREADS = 8
WRITES = 25
KILLS = 5
WRITER = """
import sys
from pathlib import Path
from cumulo.store import schema
from cumulo.store.database import Database
db = Database.open(sys.argv[1], home=Path("/nonexistent"))
while True:
    with db.write() as tx:
        number = int(schema.get_meta(tx, "number", "0")) + 1
        schema.set_meta(tx, "number", str(number))
        schema.set_meta(tx, f"row {number}", "")
    print(number, flush=True)  # accepted
"""


def value(db, key):
    with db.read() as tx:
        return schema.get_meta(tx, key)


def test_what_was_written_is_read(db):
    with db.write() as tx:
        schema.set_meta(tx, "colour", "green")
    assert value(db, "colour") == "green"


def test_an_exception_undoes_the_transaction(db):
    with pytest.raises(ZeroDivisionError), db.write() as tx:
        _set_and_fail(tx)
    with pytest.raises(KeyError):
        value(db, "colour")


def test_only_commits_are_counted(db):
    before = db.commits
    with db.write() as tx:
        schema.set_meta(tx, "colour", "green")
    with pytest.raises(ZeroDivisionError), db.write() as tx:
        _set_and_fail(tx)
    value(db, "colour")
    assert db.commits == before + 1


def test_a_read_sees_one_moment_whatever_is_written_meanwhile(db):
    with db.write() as tx:
        schema.set_meta(tx, "colour", "green")
    with ThreadPoolExecutor(1) as other, db.read() as tx:
        assert schema.get_meta(tx, "colour") == "green"
        other.submit(_set, db, "colour", "red").result(10)
        assert schema.get_meta(tx, "colour") == "green"
    assert value(db, "colour") == "red"


def _set_and_fail(tx):
    schema.set_meta(tx, "colour", "green")
    raise ZeroDivisionError


def _set(db, key, text_of_it):
    with db.write() as tx:
        schema.set_meta(tx, key, text_of_it)


def test_a_transaction_inside_a_transaction_is_refused(db):
    with db.read(), pytest.raises(RuntimeError, match="pass the outer one on"), db.write():
        pass


def test_a_thread_knows_whether_it_is_in_a_transaction(db):
    assert not db.in_transaction
    with db.read():
        assert db.in_transaction
        with ThreadPoolExecutor(1) as other:
            assert not other.submit(lambda: db.in_transaction).result(10)
    assert not db.in_transaction


def test_many_threads_write_and_nothing_is_lost(db):
    """Each adds to the same number; a lost update or a "database is locked" would show in the sum."""

    def add(_):
        for _ in range(WRITES):
            with db.write() as tx:
                schema.set_meta(tx, "sum", str(int(schema.get_meta(tx, "sum", "0")) + 1))
            with db.read() as tx:
                assert int(schema.get_meta(tx, "sum")) >= 1

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(add, range(THREADS)))
    assert value(db, "sum") == str(THREADS * WRITES)


def test_of_two_placements_planned_alike_one_changes_no_row(db):
    """The guard that placement rests on, from two connections that do not share our write lock."""
    url = db.engine.url.render_as_string(hide_password=False)
    other = Database.open(url, home=Path("/nonexistent"))
    with db.write() as tx:
        tx.execute(insert(node).values(**_node()))
    barrier = threading.Barrier(2)

    def place(database):
        with database.read() as tx:
            generation = tx.execute(select(node.c.generation)).scalar_one()
        barrier.wait(10)
        with database.write() as tx:
            guarded = update(node).where(node.c.generation == generation).values(generation=generation + 1)
            return tx.execute(guarded).rowcount

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(place, (db, other))) == [0, 1]
    other.close()


def _node():
    words = ("id", "region", "name", "address", "labels", "state", "state_reason")
    numbers = ("cpus_milli", "memory_bytes", "seen_at", "lease_until")
    return {**dict.fromkeys(words, "x"), **dict.fromkeys(numbers, 1), "emulated": False}


def test_a_killed_writer_loses_nothing_it_accepted(db):
    url = db.engine.url.render_as_string(hide_password=False)
    for kill in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            accepted = [int(writer.stdout.readline()) for _ in range(3 + 7 * kill)]
            writer.send_signal(signal.SIGKILL)
            accepted += map(int, writer.stdout.read().split())
        with db.read() as tx:
            kept = int(schema.get_meta(tx, "number"))
            rows = tx.execute(select(meta.c.key).where(meta.c.key.like("row %"))).scalars().all()
        assert kept in (accepted[-1], accepted[-1] + 1)  # the last one may have been committed and not yet told
        assert len(rows) == kept


def test_broken_keys_reach_the_caller_as_they_are(db):
    with pytest.raises(IntegrityError), db.write() as tx:
        tx.execute(insert(meta).values(key="cloud_id", value="again"))


def test_foreign_keys_hold(db):
    orphan = {"instance_id": "x", "device_uuid": "x", "slice": "whole", "project": "x", "account": "x", "mode": "x"}
    with pytest.raises(IntegrityError), db.write() as tx:
        tx.execute(insert(hold).values(**orphan, milli=1000, memory_bytes=1))


def test_sqlite_commits_to_the_disk(tmp_path):
    db = Database.open(None, home=tmp_path)
    with db.read() as tx:
        settings = [tx.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
    db.close()
    assert settings == ["wal", 2]


def _fill(tx):
    pages = tx.exec_driver_sql("PRAGMA page_count").scalar()
    tx.exec_driver_sql(f"PRAGMA max_page_count = {pages}")  # fails with SQLITE_FULL, as a full disk does
    schema.set_meta(tx, "large", "x" * 1_000_000)


def test_a_full_disk_is_told_and_leaves_what_was_there(tmp_path):
    db = Database.open(None, home=tmp_path)
    schema.prepare(db, cloud_id="c", now=NOW)
    with pytest.raises(CumuloError) as told, db.write() as tx:
        _fill(tx)
    assert told.value.code == "storage_full"
    assert str(tmp_path) in told.value.message
    with pytest.raises(KeyError):
        value(db, "large")
    db.close()


def test_a_database_that_may_not_be_written_is_told(tmp_path):
    Database.open(None, home=tmp_path).close()
    db = Database.open(f"sqlite:///file:{tmp_path}/cumulo.db?mode=ro&uri=true", home=tmp_path)
    with pytest.raises(CumuloError) as told, db.write() as tx:
        tx.exec_driver_sql("CREATE TABLE x (y)")
    assert told.value.code == "storage_read_only"
    db.close()


def test_a_folder_that_can_not_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CumuloError) as told:
        Database.open(None, home=tmp_path / "file" / "home")
    assert told.value.code == "storage_read_only"


def test_what_is_no_database_is_told(tmp_path):
    (tmp_path / "cumulo.db").write_bytes(b"something else" * 1000)
    with pytest.raises(CumuloError, match="not a database"):
        Database.open(None, home=tmp_path)


def test_a_lock_of_another_process_is_a_conflict(tmp_path, monkeypatch):
    monkeypatch.setattr("cumulo.store.database.PATIENCE_S", 0.05)
    first, second = (Database.open(None, home=tmp_path) for _ in range(2))
    with first.write(), ThreadPoolExecutor(1) as other, pytest.raises(Conflict, match="locked by another process"):
        other.submit(_set, second, "x", "y").result(10)
    first.close()
    second.close()


def test_waiting_for_ones_turn_ends(db, monkeypatch):
    monkeypatch.setattr("cumulo.store.database.PATIENCE_S", 0.05)
    with db.write(), ThreadPoolExecutor(1) as other, pytest.raises(Conflict, match="was busy"):
        other.submit(_set, db, "x", "y").result(10)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://root@box/x", "mysql is not a database that Cumulo can use"),
        ("sqlite://", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
        ("secret@@::", "can't be read"),
    ],
)
def test_a_url_that_can_not_be_used_is_refused(url, words, tmp_path):
    with pytest.raises(CumuloError, match=re.escape(words)) as refused:
        Database.open(url, home=tmp_path)
    assert refused.value.code == "invalid_request"
    assert "secret" not in str(refused.value)


def test_a_postgresql_that_does_not_answer_is_told(tmp_path):
    with pytest.raises(CumuloError) as told:
        Database.open(f"postgresql://user:geheim@/x?host={tmp_path}", home=tmp_path)
    assert told.value.code == "unreachable"
    assert "geheim" not in str(told.value)


def test_a_missing_driver_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(CumuloError, match=re.escape("pip install 'cumulo[postgres]'")):
        Database.open("postgresql://user@/x", home=tmp_path)


class _Refusal(Exception):
    def __init__(self, sqlstate):
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "code"),
    [("40001", "conflict"), ("40P01", "conflict"), ("53100", "storage_full"), ("25006", "storage_read_only")],
)
def test_postgresql_failures_in_words(sqlstate, code):
    told = _of_postgresql(DBAPIError("UPDATE", {}, _Refusal(sqlstate)))
    assert told is not None
    assert told.code == code
    assert isinstance(told, Conflict) == (code == "conflict")


@pytest.mark.postgres
def test_a_deadlock_of_two_servers_is_a_conflict(new_postgresql, tmp_path):
    url = new_postgresql(prepared=True)
    servers = [Database.open(url, home=tmp_path) for _ in range(2)]
    for key in "ab":
        _set(servers[0], key, "")
    barrier = threading.Barrier(2)

    def cross(number):
        first, second = "ab" if number else "ba"
        with servers[number].write() as tx:
            schema.set_meta(tx, first, str(number))
            barrier.wait(10)
            schema.set_meta(tx, second, str(number))

    with ThreadPoolExecutor(2) as threads:
        outcomes = [future.exception(30) for future in [threads.submit(cross, number) for number in range(2)]]
    assert [type(outcome) for outcome in outcomes if outcome] == [Conflict]
    for server in servers:
        server.close()


@pytest.mark.postgres
def test_a_read_of_postgresql_can_not_write(new_postgresql, tmp_path):
    db = Database.open(new_postgresql(prepared=True), home=tmp_path)
    with pytest.raises(CumuloError) as told, db.read() as tx:
        schema.set_meta(tx, "x", "y")
    assert told.value.code == "storage_read_only"
    db.close()


def test_the_state_folder_is_private(tmp_path):
    Database.open(None, home=tmp_path / "home").close()
    assert os.stat(tmp_path / "home").st_mode & 0o777 == 0o700
