"""Blobs appear whole or not at all, and go when nothing needs them."""

import errno
import hashlib
import os
import threading
import time

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.store.blobs import Blobs

LONG_AGO = 1_000_000_000.0


@pytest.fixture
def blobs(tmp_path):
    return Blobs(tmp_path)


def digest_of(data):
    return hashlib.sha256(data).hexdigest()


def put(blobs, data):
    blobs.put(digest_of(data), data)
    return digest_of(data)


def files_in(blobs):
    return sorted(str(path.relative_to(blobs.root)) for path in blobs.root.rglob("*") if path.is_file())


def test_what_was_put_is_read(blobs):
    digest = put(blobs, b"weights")
    assert blobs.read(digest) == b"weights"
    assert b"".join(blobs.chunks(digest)) == b"weights"
    with blobs.open(digest) as file:
        assert file.read() == b"weights"
    assert blobs.size(digest) == 7
    assert files_in(blobs) == [f"{digest[:2]}/{digest}"]


def test_an_empty_blob_is_one(blobs):
    assert blobs.read(put(blobs, b"")) == b""


def test_putting_it_again_changes_nothing(blobs):
    digest = put(blobs, b"weights")
    put(blobs, b"weights")
    assert blobs.read(digest) == b"weights"
    assert blobs.total() == (1, 7)


@pytest.mark.parametrize("what", ["read", "open", "size"])
def test_what_is_not_there_is_a_key_error(blobs, what):
    with pytest.raises(KeyError):
        getattr(blobs, what)(digest_of(b"other"))


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_what_is_no_digest_never_becomes_a_path(blobs, digest):
    with pytest.raises(ValueError, match="is not a digest"):
        blobs.put(digest, b"")
    with pytest.raises(ValueError, match="is not a digest"):
        blobs.read(digest)


def test_content_of_another_blob_is_refused(blobs):
    with pytest.raises(CumuloError) as refused:
        blobs.put(digest_of(b"weights"), b"something else")
    assert refused.value.code == "invalid_request"
    assert files_in(blobs) == []


def test_a_batch_is_kept_together(blobs):
    contents = [bytes([number]) * number for number in range(20)]
    with blobs.batch() as batch:
        for data in contents:
            with batch.incoming(digest_of(data)) as blob:
                for byte in data:
                    blob.write(bytes([byte]))
        assert blobs.missing(map(digest_of, contents)) == [*map(digest_of, contents)]
    assert batch.stored == 20
    assert [blobs.read(digest_of(data)) for data in contents] == contents


def test_a_batch_that_breaks_off_leaves_nothing(blobs):
    def upload():
        with blobs.batch() as batch:
            with batch.incoming(digest_of(b"one")) as blob:
                blob.write(b"one")
            with batch.incoming(digest_of(b"two")) as blob:
                blob.write(b"tw")
                raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        upload()
    assert files_in(blobs) == []


def test_a_refused_blob_need_not_end_its_batch(blobs):
    with blobs.batch() as batch:
        with pytest.raises(CumuloError), batch.incoming(digest_of(b"one")) as blob:
            blob.write(b"other")
        with batch.incoming(digest_of(b"two")) as blob:
            blob.write(b"two")
    assert files_in(blobs) == [f"{digest_of(b'two')[:2]}/{digest_of(b'two')}"]


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_full_disk_leaves_nothing(blobs, monkeypatch, call):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, call, full)
        with pytest.raises(CumuloError) as told:
            put(blobs, b"weights")
    assert told.value.code == "storage_full"
    assert files_in(blobs) == []


def test_a_write_may_take_only_a_part(blobs, monkeypatch):
    whole = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: whole(fd, bytes(data[:3])))
    assert blobs.read(put(blobs, b"0123456789")) == b"0123456789"


@pytest.mark.parametrize("pieces", [False, True])
def test_a_spoilt_blob_is_not_there_any_more(blobs, pieces):
    digest = put(blobs, b"weights")
    blobs.path(digest).write_bytes(b"weighty")
    with pytest.raises(KeyError):
        list(blobs.chunks(digest)) if pieces else blobs.read(digest)
    assert blobs.missing([digest]) == [digest]


def test_missing_keeps_the_order_and_names_each_once(blobs):
    there = put(blobs, b"there")
    gone = [digest_of(b"1"), digest_of(b"2")]
    assert blobs.missing([gone[1], there, gone[0], gone[1]]) == [gone[1], gone[0]]
    assert blobs.has_many([there, *gone]) == {there}


def aged(blobs, data):
    digest = put(blobs, data)
    os.utime(blobs.path(digest), (LONG_AGO, LONG_AGO))
    return digest


def test_a_sweep_takes_what_is_old_and_unreferenced(blobs):
    kept, old = aged(blobs, b"kept"), aged(blobs, b"old")
    new = put(blobs, b"new")
    assert blobs.sweep({kept}, older_than=LONG_AGO + 1) == (1, 3)
    assert blobs.has_many([kept, old, new]) == {kept, new}


def test_a_dry_run_takes_nothing(blobs):
    old = aged(blobs, b"old")
    assert blobs.sweep((), older_than=LONG_AGO + 1, dry_run=True) == (1, 3)
    assert blobs.read(old) == b"old"


def test_a_sweep_takes_what_a_killed_upload_left(blobs):
    put(blobs, b"x")
    left = blobs.root / "incoming" / "left"
    left.write_bytes(b"half")
    assert blobs.sweep((), older_than=LONG_AGO).files == 0
    os.utime(left, (LONG_AGO - 1, LONG_AGO - 1))
    assert blobs.sweep((), older_than=LONG_AGO) == (1, 4)


def test_what_somebody_was_told_is_there_is_not_swept(blobs):
    """A client that asked what is missing relies on the answer until its run names the blobs."""
    old = aged(blobs, b"old")
    blobs.missing([old])
    assert blobs.sweep((), older_than=time.time() - 60).files == 0


def test_two_may_put_the_same_at_once(blobs):
    data = os.urandom(200_000)
    threads = [threading.Thread(target=put, args=(blobs, data)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blobs.read(digest_of(data)) == data
    assert len(files_in(blobs)) == 1


def test_only_the_owner_may_look(blobs):
    digest = put(blobs, b"weights")
    assert blobs.path(digest).stat().st_mode & 0o077 == 0
    assert blobs.path(digest).parent.stat().st_mode & 0o077 == 0
