"""Events are kept in order and read in pages."""

import threading
from concurrent.futures import ThreadPoolExecutor

from cumulo.store import events
from cumulo.store.database import Database
from cumulo.store.events import NewEvent

THREADS = 4
EACH = 30


def told(kind="run.accepted", *, run_id=None, account="ada", message="x"):
    return NewEvent(at=1.0, kind=kind, message=message, project="default", account=account, run_id=run_id)


def write(db, *some):
    with db.write() as tx:
        events.append(tx, *some)


def kinds(db, **query):
    with db.read() as tx:
        return [event.kind for event in events.page(tx, **query)]


def test_an_event_is_read_as_it_was_written(db):
    event = NewEvent(
        at=1.5,
        kind="instance.ended",
        message="exit code 1",
        project="p",
        account="a",
        run_id="r",
        instance_id="r-0-0-0",
        node_id="local/box",
    )
    write(db, event)
    with db.read() as tx:
        (kept,) = events.page(tx)
    assert all(getattr(kept, name) == getattr(event, name) for name in NewEvent.__slots__)
    assert kept.seq == 1


def test_events_come_in_the_order_written(db):
    write(db, told("run.a"), told("run.b"))
    write(db, told("run.c"))
    assert kinds(db) == ["run.a", "run.b", "run.c"]


def test_nothing_to_write_writes_nothing(db):
    write(db)
    with db.read() as tx:
        assert events.last_seq(tx) == 0


def test_pages_follow_one_another(db):
    write(db, *(told(f"run.{number}") for number in range(7)))
    seen, after = [], 0
    while True:
        with db.read() as tx:
            page = events.page(tx, after=after, limit=3)
        if not page:
            break
        seen += [event.kind for event in page]
        after = page[-1].seq
    assert seen == [f"run.{number}" for number in range(7)]


def test_a_page_has_a_bound(db):
    write(db, *[told()] * (events.MAX_PAGE + 1))
    assert len(kinds(db, limit=1_000_000)) == events.MAX_PAGE


def test_events_of_a_run_an_account_or_a_kind(db):
    write(db, told("run.accepted", run_id="one"), told("run.ended", run_id="two", account="bob"), told("runner.x"))
    assert kinds(db, run_id="two") == ["run.ended"]
    assert kinds(db, account="bob") == ["run.ended"]
    assert kinds(db, kind="run") == ["run.accepted", "run.ended"]
    assert kinds(db, kind="run.ended") == ["run.ended"]
    assert kinds(db, kind="r%") == []


def test_a_follower_misses_nothing_that_two_servers_write(db, tmp_path):
    """On PostgreSQL a number drawn earlier can be committed later: a follower must not have passed it by then."""
    url = db.engine.url.render_as_string(hide_password=False)
    servers = [db, Database.open(url, home=tmp_path)]
    done = threading.Event()

    def writer(number):
        for _ in range(EACH):
            write(servers[number % 2], told(), told())

    def follower():
        seen, after = 0, 0
        while True:
            last_look = done.is_set()
            with servers[0].read() as tx:
                page = events.page(tx, after=after, limit=500)
            seen += len(page)
            after = page[-1].seq if page else after
            if last_look:
                return seen

    with ThreadPoolExecutor(THREADS + 1) as threads:
        following = threads.submit(follower)
        list(threads.map(writer, range(THREADS)))
        done.set()
        assert following.result(30) == THREADS * EACH * 2
    servers[1].close()
