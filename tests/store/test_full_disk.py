"""A disk that is really full, a small one of its own: nothing half-written, and all is well once there is room."""

import hashlib
import os
import subprocess

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.store import schema
from cumulo.store.blobs import Blobs
from cumulo.store.database import Database
from cumulo.store.logs import LogRef, Logs
from tests.databases import NOW

SIZE = 4 << 20
REF = LogRef("run1", 0, 0, 0)


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip("no file system may be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def ballast(small_disk):
    """Fills the disk when called; returns the file that does."""

    def fill(leave=0):
        room = os.statvfs(small_disk)
        path = small_disk / "ballast"
        path.write_bytes(b"x" * (room.f_bavail * room.f_frsize - leave))
        return path

    return fill


def test_the_database(small_disk, ballast):
    db = Database.open(None, home=small_disk)
    schema.prepare(db, cloud_id="c", now=NOW)
    keep(db, "first")
    filled = ballast(leave=50_000)
    with pytest.raises(CumuloError) as told:
        keep_many(db)
    assert told.value.code == "storage_full"
    with db.read() as tx:
        assert schema.get_meta(tx, schema.get_meta(tx, "last"))
    filled.unlink()
    keep(db, "later")
    with db.read() as tx:
        assert schema.get_meta(tx, "last") == "later"
        assert tx.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    db.close()


def keep_many(db):
    for number in range(1000):
        keep(db, f"row {number}")


def keep(db, key):
    with db.write() as tx:
        schema.set_meta(tx, "last", key)
        schema.set_meta(tx, key, "x" * 4000)


def test_blobs(small_disk, ballast):
    blobs = Blobs(small_disk)
    data = os.urandom(500_000)
    digest = hashlib.sha256(data).hexdigest()
    filled = ballast(leave=200_000)
    with pytest.raises(CumuloError) as told:
        blobs.put(digest, data)
    assert told.value.code == "storage_full"
    assert [path for path in blobs.root.rglob("*") if path.is_file()] == []
    filled.unlink()
    blobs.put(digest, data)
    assert blobs.read(digest) == data


def test_logs(small_disk, ballast):
    logs = Logs(small_disk)
    data = os.urandom(500_000)
    logs.append(REF, 0, data[:1000])
    filled = ballast(leave=200_000)
    with pytest.raises(CumuloError) as told:
        logs.append(REF, 1000, data[1000:])
    assert told.value.code == "storage_full"
    kept = logs.size(REF)
    assert logs.read(REF, 0) == data[:kept]
    filled.unlink()
    logs.append(REF, kept, data[kept:])
    assert logs.read(REF, 0) == data
