"""Requests reach the server once each as far as a person can tell, whatever the server does meanwhile."""

import socket
from pathlib import Path

import pytest

from cumulo.client import Client, CumuloError
from tests.client.stub import Reply, Stub, problem, serving

RUN = {"id": "0123456789ab", "name": "train", "status": "queued"}
ME = {"account": "ada", "project": "default", "admin": False, "unix_user": None}


def test_connections_are_kept(stub: Stub):
    stub.on("GET", "/v1/me", Reply(ME))
    with Client(stub.url) as client:
        for _ in range(5):
            assert client.me().account == "ada"
    assert stub.connections == 1


def test_a_unix_socket_serves_as_well(tmp_path: Path):
    stub = Stub()
    stub.on("GET", "/v1/me", Reply(ME))
    with serving(stub, unix=tmp_path / "server.sock"), Client(stub.url) as client:
        assert client.me().account == "ada"


def test_the_token_travels(stub: Stub):
    stub.on("GET", "/v1/me", Reply(ME))
    with Client(stub.url, token="cumulo_1_secret") as client:
        client.me()
    assert stub.requests[0].headers["authorization"] == "Bearer cumulo_1_secret"


def test_a_submit_whose_answer_was_lost_is_repeated_under_the_same_key(stub: Stub):
    stub.on("POST", "/v1/runs", Reply(cut=True), Reply(cut=True), Reply(RUN, 201))
    stub.on("GET", "/v1/me", Reply(ME))
    pauses: list[float] = []
    with Client(stub.url, sleep=pauses.append) as client:
        client.me()
        assert client.submit({"run": "true"}).id == RUN["id"]
    keys = [one.headers["idempotency-key"] for one in stub.seen("POST", "/v1/runs")]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert pauses
    assert pauses == sorted(pauses)


def test_a_server_that_is_starting_is_waited_for(stub: Stub):
    stub.on("GET", "/v1/me", problem("starting", 503, "not ready"), Reply(ME))
    with Client(stub.url, sleep=lambda _: None) as client:
        assert client.me().account == "ada"


def test_a_token_is_never_asked_for_twice(stub: Stub):
    stub.on("POST", "/v1/tokens", Reply(cut=True))
    stub.on("GET", "/v1/me", Reply(ME))
    with Client(stub.url, sleep=lambda _: None) as client:
        client.me()
        client.transport.close()
        with pytest.raises(CumuloError) as caught:
            client.create_token("laptop")
    assert caught.value.code == "unreachable"
    assert len(stub.seen("POST", "/v1/tokens")) == 1


def test_patience_ends(stub: Stub):
    stub.on("GET", "/v1/me", Reply(cut=True))
    now = [0.0]
    client = Client(stub.url, sleep=lambda pause: now.__setitem__(0, now[0] + pause))
    client.transport.clock = lambda: now[0]
    with pytest.raises(CumuloError, match="no server answers") as caught:
        client.me()
    assert caught.value.code == "unreachable"
    assert now[0] < 1, "a server that never answered is given up soon"


def test_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}", sleep=lambda _: None)
    client.transport.patience_s = 0
    with pytest.raises(CumuloError, match="Connection refused") as caught:
        client.me()
    assert caught.value.hint


def test_problems_keep_their_code_hint_and_details(stub: Stub):
    stub.on("GET", "/v1/runs/nope", problem("run_not_found", 404, "no run 'nope'", hint="cumulo status", near=["n"]))
    with Client(stub.url) as client, pytest.raises(CumuloError) as caught:
        client.run("nope")
    assert (caught.value.code, caught.value.hint, caught.value.details) == (
        "run_not_found", "cumulo status", {"near": ["n"]},
    )  # fmt: skip


@pytest.mark.parametrize(("status", "code"), [(401, "unauthenticated"), (404, "not_found"), (500, "internal")])
def test_errors_that_are_no_problems_have_a_code_too(stub: Stub, status: int, code: str):
    stub.on("GET", "/v1/me", Reply("<html>", status))
    with Client(stub.url) as client, pytest.raises(CumuloError) as caught:
        client.me()
    assert caught.value.code == code


def test_what_is_not_our_server_is_said(stub: Stub):
    stub.on("GET", "/v1/me", Reply(chunks=[b"<html>hello</html>"]))
    with Client(stub.url) as client, pytest.raises(CumuloError, match="not a Cumulo server"):
        client.me()


def test_lists_are_read_page_by_page(stub: Stub):
    rows = [{**RUN, "id": f"{number:012d}"} for number in range(5)]
    stub.on(
        "GET", "/v1/runs", Reply({"items": rows[:2], "next": "a"}), Reply({"items": rows[2:4], "next": "b"}),
        Reply({"items": rows[4:], "next": None}),
    )  # fmt: skip
    with Client(stub.url) as client:
        assert [run.id for run in client.runs(active=True)] == [row["id"] for row in rows]
    assert [one.query.get("cursor") for one in stub.requests] == [None, "a", "b"]
    assert stub.requests[0].query["active"] == "true"


def test_a_limit_is_kept_over_pages(stub: Stub):
    stub.on("GET", "/v1/runs", Reply({"items": [RUN, RUN], "next": "a"}), Reply({"items": [RUN], "next": "b"}))
    with Client(stub.url) as client:
        assert len(list(client.runs(limit=3))) == 3
    assert [one.query["limit"] for one in stub.requests] == ["3", "1"]


def test_waiting_ends_with_the_run(stub: Stub):
    path = f"/v1/runs/{RUN['id']}"
    stub.on("GET", "/v1/runs/train", Reply(RUN))
    stub.on("GET", path, Reply({**RUN, "status": "running"}), Reply({**RUN, "status": "failed", "exit_code": 3}))
    with Client(stub.url, sleep=lambda _: None) as client:
        assert client.wait("train").exit_code == 3
    assert len(stub.seen("GET", "/v1/runs/train")) == 1, "a name is resolved once"


def test_waiting_has_an_end_of_its_own(stub: Stub):
    stub.on("GET", "/v1/runs/train", Reply(RUN))
    stub.on("GET", f"/v1/runs/{RUN['id']}", Reply(RUN))
    now = [0.0]
    with Client(stub.url, sleep=lambda pause: now.__setitem__(0, now[0] + pause)) as client:
        client.transport.clock = lambda: now[0]
        with pytest.raises(TimeoutError, match="still queued"):
            client.wait("train", timeout_s=5)
