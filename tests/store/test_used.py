"""What projects have used of late: every piece counts once, short ones added up, long ones and open ones one by one."""

import random

import pytest
from sqlalchemy import insert

from cumulo.store import tables as t
from cumulo.store.used import used
from tests.databases import NOW
from tests.store.test_views import instance_row, run_row


def put(tx, number, started, ended, *, project="default", milli=1000, memory=None):
    name = f"run1-{number}-1-0"
    if memory is not None:
        tx.execute(insert(t.instance), [instance_row("run1", number, memory_bytes=memory)])
    tx.execute(
        insert(t.usage),
        [
            {
                "instance_id": name, "started_at": started, "ended_at": ended, "run_id": "run1", "project": project,
                "account": "ada", "device_model": "T4", "device_count": 1, "cpus_milli": 500, "price_nano_h": 0,
                "rental_nano_h": 0, "gpu_milli": milli, "gpus": "1x T4",
            }
        ],
    )  # fmt: skip


@pytest.fixture
def tx(db):
    with db.write() as tx:
        tx.execute(insert(t.run), [run_row("run1")])
        yield tx


def test_each_piece_counts_once_and_for_as_much_as_was_used(tx):
    rng = random.Random(3)
    expected: dict[str, float] = {"default": 0.0, "vision": 0.0}
    for number in range(200):
        started = NOW - rng.uniform(0, 5000)
        seconds = rng.choice((1.0, 30.0, 400.0, 3000.0))
        ended = None if started + seconds > NOW else started + seconds
        project = rng.choice(("default", "vision"))
        milli = rng.choice((250, 1000, 4000))
        put(tx, number, started, ended, project=project, milli=milli)
        expected[project] += milli * ((NOW if ended is None else ended) - started)
    found = list(used(tx, since=0.0, bucket_s=100.0, now=NOW))
    total: dict[str, float] = {"default": 0.0, "vision": 0.0}
    for piece in found:
        total[piece.project] += piece.gpus_milli * piece.seconds
    assert total == pytest.approx(expected)
    assert len(found) < 200
    assert all(piece.until <= NOW for piece in found)


def test_what_ended_long_ago_does_not_count(tx):
    put(tx, 0, NOW - 900.0, NOW - 800.0)
    put(tx, 1, NOW - 900.0, NOW - 10.0)
    put(tx, 2, NOW - 900.0, NOW - 899.0)
    assert [(piece.seconds, piece.until) for piece in used(tx, since=NOW - 100, bucket_s=50.0, now=NOW)] == [
        (890.0, NOW - 10.0)
    ]


def test_memory_is_what_the_instance_had(tx):
    put(tx, 0, NOW - 100.0, None, memory=8 << 30)
    put(tx, 1, NOW - 100.0, None)
    found = list(used(tx, since=0.0, bucket_s=10.0, now=NOW))
    assert sorted(piece.memory_bytes for piece in found) == [0, 8 << 30]
    assert {(piece.gpus_milli, piece.cpus_milli, piece.seconds) for piece in found} == {(1000, 500, 100.0)}
