"""The API's read queries, on both databases: order, paging, who holds what, and what was used."""

import json

import pytest
from sqlalchemy import insert

from cumulo.store import tables as t
from cumulo.store import views
from cumulo.store.views import RunFilter

NOW = 1_760_000_000.0


def run_row(run_id, **values):
    row = {
        "id": run_id, "project": "default", "account": "ada", "name": "train", "kind": "task", "status": "running",
        "wanted": "running", "priority": 0, "purchase": "on-demand", "ask": "A100:1", "spec": "{}", "waits_for": "",
        "units": 1, "units_started": 1, "units_active": 1, "units_succeeded": 0, "units_failed": 0, "attempts": 1,
        "message": "", "placed_on": "", "accepted_at": NOW, "cost_nano": 0, "rental_nano": 0,
    }  # fmt: skip
    return {column.name: None for column in t.run.c} | row | values


def instance_row(run_id, unit=0, attempt=1, rank=0, **values):
    row = {
        "id": f"{run_id}-{unit}-{attempt}-{rank}", "run_id": run_id, "unit": unit, "attempt": attempt, "rank": rank,
        "project": "default", "account": "ada", "node_id": "local/one", "region": "local", "state": "running",
        "message": "", "cpus_milli": 4000, "memory_bytes": 8 << 30, "devices": "GPU-0", "device_model": "A100-80GB",
        "emulated": False, "address": "127.0.0.1", "master_port": 29500, "price_nano_h": 0, "rental_nano_h": 0,
        "gpu_milli": 1000, "purchase": "on-demand", "gpus": "1x A100-80GB",
        "accepted_at": NOW, "placed_at": NOW,
    }  # fmt: skip
    return {column.name: None for column in t.instance.c} | row | values


def unit_row(run_id, place=0, **values):
    row = {
        "run_id": run_id, "place": place, "project": "default", "account": "ada", "status": "running",
        "attempts": 1, "preemptions": 0, "message": "",
    }  # fmt: skip
    return {column.name: None for column in t.unit.c} | row | values


def put(db, table, *rows):
    with db.write() as tx:
        tx.execute(insert(table), list(rows))


def ids(rows):
    return [row.id for row in rows]


def test_runs_come_newest_first_and_page_by_key(db):
    # Three of the same moment: the id decides between them.
    put(db, t.run, *(run_row(f"run{n}", accepted_at=NOW + n // 3) for n in range(8)))
    with db.read() as tx:
        seen, before = [], None
        while rows := views.runs(tx, RunFilter(), before=before, limit=3):
            seen += ids(rows)
            before = (rows[-1].accepted_at, rows[-1].id)
    assert seen == [f"run{n}" for n in reversed(range(8))]
    assert not hasattr(rows, "spec")


def test_a_list_never_reads_the_spec(db):
    put(db, t.run, run_row("run1", spec=json.dumps({"x": "y" * 100_000})))
    with db.read() as tx:
        assert "spec" not in views.runs(tx, RunFilter())[0]._fields


def test_runs_are_filtered(db):
    put(
        db,
        t.run,
        run_row("run1", status="succeeded", ended_at=NOW - 100, kind="dev"),
        run_row("run2", status="failed", ended_at=NOW, account="bob", name="eval"),
        run_row("run3", status="stopped"),
    )
    with db.read() as tx:
        assert ids(views.runs(tx, RunFilter(statuses=("failed", "succeeded")))) == ["run2", "run1"]
        assert ids(views.runs(tx, RunFilter(kind="dev"))) == ["run1"]
        assert ids(views.runs(tx, RunFilter(account="bob"))) == ["run2"]
        assert ids(views.runs(tx, RunFilter(name="train"))) == ["run3", "run1"]
        assert ids(views.runs(tx, RunFilter(open_or_ended_since=1e12))) == ["run3"]
        assert ids(views.runs(tx, RunFilter(open_or_ended_since=NOW - 50))) == ["run3", "run2"]


def test_a_name_means_ones_own_then_ones_projects_then_anybodys(db):
    put(
        db,
        t.run,
        run_row("mine1", accepted_at=NOW),
        run_row("mine2", accepted_at=NOW + 1),
        run_row("ours", account="bob", accepted_at=NOW + 2),
        run_row("theirs", account="eve", project="other", accepted_at=NOW + 3),
    )
    with db.read() as tx:

        def found(text, account, project):
            row = views.find_run(tx, text, account=account, project=project)
            return row.id if row else None

        assert found("train", "ada", "default") == "mine2"
        assert found("train", "nobody", "default") == "ours"
        assert found("train", "nobody", "none") == "theirs"
        assert found("mine1", "nobody", "none") == "mine1"
        assert found("absent", "ada", "default") is None


def test_names_for_completion_are_each_told_once_the_last_used_first(db):
    put(
        db,
        t.run,
        run_row("run1", name="train", accepted_at=NOW),
        run_row("run2", name="eval", accepted_at=NOW + 1),
        run_row("run3", name="train", accepted_at=NOW + 2),
        run_row("run4", name="100%", account="bob"),
    )
    with db.read() as tx:
        assert views.run_names(tx, account="ada") == ["train", "eval"]
        assert views.run_names(tx, account=None, beginning="1") == ["100%"]
        assert views.run_names(tx, account=None, beginning="%") == []  # no wildcard


def test_units_and_instances_page_in_their_order(db):
    put(db, t.run, run_row("run1"))
    put(db, t.unit, *(unit_row("run1", place) for place in range(3)))
    put(
        db,
        t.instance,
        *(instance_row("run1", unit, attempt, rank) for unit in range(2) for attempt in (1, 2) for rank in range(2)),
    )
    with db.read() as tx:
        assert [row.place for row in views.units(tx, "run1", after=0)] == [1, 2]
        first = views.instances(tx, "run1", limit=5)
        last = first[-1]
        rest = views.instances(tx, "run1", after=(last.unit, last.attempt, last.rank))
        assert len({*ids(first), *ids(rest)}) == 8
        last_try = views.last_instance(tx, "run1", place=1, rank=1)
        assert last_try
        assert last_try.attempt == 2
        assert views.last_instance(tx, "run1", place=7) is None
        sources = views.log_sources(tx, "run1", place=1)
        assert [(row.attempt, row.rank, row.unit_status) for row in sources] == [
            (1, 0, "running"), (1, 1, "running"), (2, 0, "running"), (2, 1, "running"),
        ]  # fmt: skip


def test_many_runs_are_looked_at_together(db):
    put(db, t.run, *(run_row(f"run{n}") for n in range(1200)))
    with db.read() as tx:
        assert len(views.standings(tx, [f"run{n}" for n in range(1200)])) == 1200
        assert views.standings(tx, []) == []
        assert views.counts_by_status(tx) == {"running": 1200}


@pytest.fixture
def node(db):
    put(
        db,
        t.node,
        *(
            {
                "id": f"local/{name}", "region": "local", "name": name, "address": "127.0.0.1", "cpus_milli": 16_000,
                "memory_bytes": 64 << 30, "emulated": False, "labels": "{}", "state": "ready", "state_reason": "",
                "seen_at": NOW, "lease_until": NOW, "generation": 0,
            }
            for name in ("one", "two")
        ),
    )  # fmt: skip
    put(
        db,
        t.device,
        *(
            {
                "uuid": f"GPU-{place}", "node_id": "local/one", "place": place, "model": "A100-80GB",
                "memory_bytes": 80 << 30, "emulated": False, "numa_node": None, "health": "ok", "health_reason": "",
                "foreign_use": "",
            }
            for place in range(2)
        ),
    )  # fmt: skip


def test_nodes_tell_what_is_held(db, node):
    put(db, t.run, run_row("run1", name="holder"))
    put(db, t.instance, instance_row("run1"), instance_row("run1", attempt=2, state="ended"))
    hold = {
        "device_uuid": "GPU-1", "slice": "whole", "instance_id": "run1-0-1-0", "project": "default",
        "account": "ada", "mode": "exclusive", "milli": 1000, "memory_bytes": 80 << 30,
    }  # fmt: skip
    put(db, t.hold, hold)
    with db.read() as tx:
        one, two = views.nodes(tx)
        assert (one.cpus_held_milli, one.memory_held_bytes) == (4000, 8 << 30)
        assert (two.cpus_held_milli, two.memory_held_bytes) == (0, 0)
        assert ids(views.nodes(tx, after="local/one")) == ["local/two"]
        free, held = views.devices(tx, ["local/one"])
        assert (free.uuid, free.instance_id, free.run_name) == ("GPU-0", None, None)
        assert (held.uuid, held.holder, held.run_name, held.mode) == ("GPU-1", "ada", "holder", "exclusive")
        assert [row and row.id for row in (views.find_node(tx, "local/two"), views.find_node(tx, "two"))] == [
            "local/two"
        ] * 2
        assert views.find_node(tx, "three") is None
        assert views.instance_names(tx, ["run1-0-1-0", "gone"]) == {"run1-0-1-0": ("run1", "holder", "1x A100-80GB")}


def test_units_that_wait_are_counted(db):
    put(
        db,
        t.run,
        run_row("run1", units=500, units_started=20),
        run_row("run2", units=1, units_started=0, status="queued"),
        run_row("run3", units=9, units_started=0, status="cancelled"),
        run_row("run4", units=9, units_started=0, status="queued", wanted="cancelled"),
    )
    with db.read() as tx:
        assert views.waiting_units(tx) == 481


def test_use_counts_for_the_part_inside_the_window(db):
    base = {
        "project": "default", "account": "ada", "device_model": "A100-80GB", "device_count": 2, "cpus_milli": 8000,
        "price_nano_h": 3_600_000_000, "rental_nano_h": 7_200_000_000,
        "gpu_milli": 2000, "gpus": "2x A100-80GB",
    }  # fmt: skip
    put(
        db,
        t.usage,
        {**base, "instance_id": "a-0-1-0", "run_id": "a", "started_at": NOW, "ended_at": NOW + 100},
        {**base, "instance_id": "b-0-1-0", "run_id": "b", "started_at": NOW + 50, "ended_at": None, "account": "bob"},
        {**base, "instance_id": "c-0-1-0", "run_id": "c", "started_at": NOW - 100, "ended_at": NOW - 10},
    )
    with db.read() as tx:
        rows = views.usage_totals(tx, since=NOW + 40, until=NOW + 60, group="run")
        assert [(row.key, row.gpu_seconds, row.cpu_seconds) for row in rows] == [("a", 40.0, 160.0), ("b", 20.0, 80.0)]
        assert [round(row.cost_nano) for row in rows] == [20_000_000, 10_000_000]
        assert [round(row.rental_nano) for row in rows] == [40_000_000, 20_000_000]
        own = views.usage_totals(tx, since=0, until=NOW + 200, group="account", account="ada")
        assert [(row.key, row.gpu_seconds) for row in own] == [("ada", 380.0)]
