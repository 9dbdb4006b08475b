"""What is old goes, what a run still needs stays, and both are counted."""

import hashlib
import json
import os

import pytest
from sqlalchemy import insert, select

from cumulo.domain.manifest import ManifestEntry, make_manifest, render_manifest
from cumulo.store import events, retention
from cumulo.store.blobs import Blobs
from cumulo.store.events import NewEvent
from cumulo.store.logs import LogRef, Logs
from cumulo.store.retention import Retention
from cumulo.store.tables import idempotency, meta, run
from tests.databases import NOW
from tests.store.test_market import put_prices

DAY = 86400.0
KEEP = Retention(events=10, logs=10, blobs=10, idempotency=10)
COUNTS = ("units", "units_started", "units_active", "units_succeeded", "units_failed", "attempts")
WORDS = ("name", "kind", "wanted", "purchase", "ask", "waits_for", "message", "placed_on")


@pytest.fixture
def blobs(tmp_path):
    return Blobs(tmp_path)


@pytest.fixture
def logs(tmp_path):
    return Logs(tmp_path, clock=lambda: NOW - 30 * DAY)


def add_run(db, run_id, *, ended_days_ago=None, status="succeeded", spec="{}"):
    row = {**dict.fromkeys(COUNTS, 1), **dict.fromkeys(WORDS, "x"), "priority": 0, "cost_nano": 0, "rental_nano": 0}
    row |= {"id": run_id, "project": "default", "account": "ada", "status": status, "spec": spec, "accepted_at": 0.0}
    if ended_days_ago is not None:
        row["ended_at"] = NOW - ended_days_ago * DAY
    with db.write() as tx:
        tx.execute(insert(run).values(**row))


def add_log(logs, run_id):
    logs.append(LogRef(run_id, 0, 0, 0), 0, b"hello")
    os.utime(logs.root / run_id, (NOW - 30 * DAY, NOW - 30 * DAY))


def add_blob(blobs, data):
    digest = hashlib.sha256(data).hexdigest()
    blobs.put(digest, data)
    os.utime(blobs.path(digest), (NOW - 30 * DAY, NOW - 30 * DAY))
    return digest


def sweep(db, blobs, logs, *, keep=KEEP, dry_run=False):
    swept = retention.sweep(db, blobs=blobs, logs=logs, retention=keep, now=NOW, dry_run=dry_run)
    return {one.what: (one.count, one.bytes) for one in swept}


def write_events(db, *days_ago):
    with db.write() as tx:
        facts = [NewEvent(at=NOW - d * DAY, kind="run.x", message="", project="p", account="a") for d in days_ago]
        events.append(tx, *facts)


def events_left(db):
    with db.read() as tx:
        return [round((NOW - event.at) / DAY) for event in events.page(tx, limit=500)]


def test_old_events_go(db, blobs, logs):
    write_events(db, 30, 11, 9, 1)
    assert sweep(db, blobs, logs, dry_run=True)["events"] == (2, None)
    assert events_left(db) == [30, 11, 9, 1]
    assert sweep(db, blobs, logs)["events"] == (2, None)
    assert events_left(db) == [9, 1]


def test_the_newest_event_stays_so_that_numbers_never_begin_again(db, blobs, logs):
    write_events(db, 30, 20)
    sweep(db, blobs, logs)
    write_events(db, 1)
    with db.read() as tx:
        assert [event.seq for event in events.page(tx)] == [2, 3]


def test_many_events_go_in_several_transactions(db, blobs, logs, monkeypatch):
    monkeypatch.setattr(retention, "_ROWS", 10)
    write_events(db, *[30] * 35, 1)
    before = db.commits
    assert sweep(db, blobs, logs)["events"] == (35, None)
    assert db.commits - before >= 4
    assert events_left(db) == [1]


def test_old_idempotency_keys_go(db, blobs, logs):
    with db.write() as tx:
        for key, days in (("old", 11), ("new", 9)):
            row = {"account": "a", "key": key, "project": "p", "fingerprint": "f", "run_id": "r"}
            tx.execute(insert(idempotency).values(**row, created_at=NOW - days * DAY))
    assert sweep(db, blobs, logs, dry_run=True)["idempotency keys"] == (1, None)
    assert sweep(db, blobs, logs)["idempotency keys"] == (1, None)
    with db.read() as tx:
        assert tx.execute(select(idempotency.c.key)).scalars().all() == ["new"]


def test_logs_go_days_after_the_end(db, blobs, logs):
    add_run(db, "old", ended_days_ago=11)
    add_run(db, "new", ended_days_ago=9)
    add_run(db, "live", status="running")
    for run_id in ("old", "new", "live"):
        add_log(logs, run_id)
    assert sweep(db, blobs, logs, dry_run=True)["logs"] == (1, 5)
    assert sweep(db, blobs, logs)["logs"] == (1, 5)
    assert set(logs.runs()) == {"new", "live"}


def test_a_stopped_dev_run_keeps_everything(db, blobs, logs):
    add_run(db, "dev", status="stopped", ended_days_ago=30)
    add_log(logs, "dev")
    assert sweep(db, blobs, logs)["logs"] == (0, 0)


def test_logs_that_a_restored_database_does_not_know_go_only_when_old(db, blobs, logs):
    add_log(logs, "unknown")
    assert sweep(db, blobs, logs, keep=Retention(logs=40))["logs"] == (0, 0)
    assert sweep(db, blobs, logs)["logs"] == (1, 5)


def workdir(blobs, content):
    file = add_blob(blobs, content)
    manifest = render_manifest(make_manifest([ManifestEntry("train.py", 0o644, len(content), file)]))
    return file, add_blob(blobs, manifest)


def test_blobs_of_runs_stay_until_days_after_the_end(db, blobs, logs):
    held, mounted = workdir(blobs, b"live"), workdir(blobs, b"mounted")
    new, old = workdir(blobs, b"new"), workdir(blobs, b"old")
    loose = add_blob(blobs, b"of no run")
    spec = {"workdir": held[1], "file_mounts": [{"target": "data", "manifest": mounted[1]}]}
    add_run(db, "live", status="queued", spec=json.dumps(spec))
    add_run(db, "new", ended_days_ago=9, spec=json.dumps({"workdir": new[1]}))
    add_run(db, "old", ended_days_ago=11, spec=json.dumps({"workdir": old[1]}))
    there = {*held, *mounted, *new, *old, loose}
    assert sweep(db, blobs, logs, dry_run=True)["blobs"][0] == 3
    assert sweep(db, blobs, logs)["blobs"][0] == 3
    assert blobs.has_many(there) == {*held, *mounted, *new}


def test_a_digest_in_a_spec_that_is_no_manifest_is_kept_as_it_is(db, blobs, logs):
    alone = add_blob(blobs, b"not a manifest")
    spec = {"env": {"WEIGHTS": alone}, "workdir": "f" * 64}
    add_run(db, "live", status="queued", spec=json.dumps(spec))
    assert sweep(db, blobs, logs)["blobs"] == (0, 0)


def test_a_fresh_upload_is_spared_whatever_the_setting(db, blobs, logs):
    data = b"just uploaded"
    blobs.put(hashlib.sha256(data).hexdigest(), data)
    assert sweep(db, blobs, logs, keep=Retention(blobs=1e-6))["blobs"] == (0, 0)


def test_what_is_kept_for_good_stays_however_old(db, blobs, logs):
    for_good = Retention(events=None, logs=None, blobs=None, idempotency=None)
    write_events(db, 30000, 1)
    add_run(db, "old", ended_days_ago=20000)
    add_log(logs, "old")
    add_blob(blobs, b"of no run")
    put_prices(db, ("T4", 0.0, 1), ("T4", 1.0, 2))
    with db.write() as tx:
        row = {"account": "a", "key": "k", "project": "p", "fingerprint": "f", "run_id": "r", "created_at": 0.0}
        tx.execute(insert(idempotency).values(**row))
    nothing = {"events": (0, None), "spot prices": (0, None), "idempotency keys": (0, None), "logs": (0, 0)}
    nothing |= {"blobs": (0, 0)}
    assert sweep(db, blobs, logs, keep=for_good, dry_run=True) == nothing
    assert sweep(db, blobs, logs, keep=for_good) == nothing
    assert all(count == 1 for count, _ in sweep(db, blobs, logs).values())  # and else it had gone


def test_settings_are_kept(db):
    with db.write() as tx:
        assert retention.load_retention(tx) == Retention()
        retention.save_retention(tx, KEEP)
    with db.read() as tx:
        assert retention.load_retention(tx) == KEEP


def test_only_what_changes_is_written_and_what_it_was_is_told(db):
    with db.write() as tx:
        assert retention.save_retention(tx, Retention()) == {}
        assert retention.save_retention(tx, Retention(logs=14, outputs=None)) == {"logs": 30, "outputs": 30}
        assert retention.load_retention(tx) == Retention(logs=14, outputs=None)
        assert retention.save_retention(tx, Retention(logs=14, outputs=60)) == {"outputs": None}
        written = tx.execute(select(meta.c.key).where(meta.c.key.startswith("keep_"))).scalars().all()
    assert sorted(written) == ["keep_logs_days", "keep_outputs_days"]


@pytest.mark.parametrize("days", [0, -1, 40000, float("nan")])
def test_a_setting_that_can_not_be(days):
    with pytest.raises(ValueError, match="logs can't be kept for"):
        Retention(logs=days)


def test_what_there_is(db, blobs, logs):
    write_events(db, 1, 2)
    add_log(logs, "one")
    add_blob(blobs, b"weights")
    held = {one.what: one for one in retention.held(db, blobs=blobs, logs=logs, retention=KEEP)}
    assert (held["database"].bytes or 0) > 10_000
    assert (held["events"].count, held["events"].kept_days) == (2, 10)
    assert (held["logs"].count, held["logs"].bytes, held["logs"].path) == (1, 5, str(logs.root))
    assert (held["blobs"].count, held["blobs"].bytes) == (1, 7)
