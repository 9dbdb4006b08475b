"""Server-sent events: whatever pieces they come in, and whatever breaks, nothing is lost and nothing comes twice."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.client import Client
from cumulo.client.answers.logs import Ended, LogText, StatusChange
from cumulo.client.answers.runs import Progress
from cumulo.client.sse import Parser
from cumulo.domain.errors import CumuloError
from tests.client.stub import Reply, Stub, event, log

END = event("end", {"status": "succeeded", "exit_code": 0, "reason": "succeeded"}, "end")
LOGS = ("GET", "/v1/runs/train/logs")

texts = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"])), max_size=8)


@given(texts, st.lists(st.integers(1, 40), min_size=1))
def test_events_are_the_same_however_the_bytes_are_cut(given_texts, cuts):
    stream = b": hello\n\n" + b"".join(log(text, f"c{place}") for place, text in enumerate(given_texts))
    parser, found, at, turn = Parser(), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        found += list(parser.feed(stream[at : at + size]))
        at, turn = at + size, turn + 1
    assert [json.loads(one.data)["text"] for one in found] == given_texts
    assert [one.cursor for one in found] == [f"c{place}" for place in range(len(given_texts))]


def test_an_event_that_was_cut_off_does_not_move_the_cursor():
    parser = Parser()
    whole, half = log("one", "a"), log("two", "b")[:-1]
    assert [one.cursor for one in parser.feed(whole + half)] == ["a"]
    assert parser.cursor == "a"


def test_several_data_lines_are_one_text_and_carriage_returns_go():
    parser = Parser()
    [found] = parser.feed(b"event: x\r\ndata: a\r\ndata:b\r\n\r\n")
    assert (found.kind, found.data) == ("x", "a\nb")


def test_a_log_survives_a_server_that_goes_away(stub: Stub):
    stub.on(
        *LOGS,
        Reply(chunks=[log("one\n", "1"), log("two\n", "2"), log("lost", "3")[:-8]], cut=True),
        Reply(status=200, chunks=[], cut=True),
        Reply({"code": "starting", "detail": "not ready"}, 503),
        Reply(chunks=[log("three\n", "3"), END]),
    )
    troubles: list[str] = []
    with Client(stub.url, sleep=lambda _: None) as client:
        found = list(client.logs("train", follow=True, tail=5, on_trouble=troubles.append))
    assert [one.text for one in found if isinstance(one, LogText)] == ["one\n", "two\n", "three\n"]
    assert found[-1] == Ended(status="succeeded", exit_code=0, reason="succeeded")
    first, *later = stub.seen(*LOGS)
    assert first.query == {"follow": "true", "tail": "5"}
    assert all(one.query == {"follow": "true", "cursor": "2"} for one in later)
    assert all(one.headers["last-event-id"] == "2" for one in later)
    assert len(troubles) == 2


def test_a_follower_comes_back_after_a_stream_that_ended_without_the_end(stub: Stub):
    stub.on(*LOGS, Reply(chunks=[log("one\n", "1")]), Reply(chunks=[END]))
    with Client(stub.url, sleep=lambda _: None) as client:
        assert isinstance(list(client.logs("train", follow=True))[-1], Ended)


def test_without_follow_the_end_of_the_stream_is_the_end(stub: Stub):
    stub.on(*LOGS, Reply(chunks=[log("one\n", "1")]))
    with Client(stub.url) as client:
        assert [type(one) for one in client.logs("train")] == [LogText]
    assert len(stub.requests) == 1


def test_progress_and_changes_of_status_come_between(stub: Stub):
    stub.on(
        *LOGS,
        Reply(
            chunks=[
                event("status", {"status": "running", "message": ""}),
                event("progress", {"done": 1, "total": 4, "unit": "epoch", "fraction": 0.25, "metrics": {"loss": 2}}),
                event("progress", None),
                END,
            ]
        ),
    )
    with Client(stub.url) as client:
        status, progress, _ = client.logs("train", follow=True)
    assert status == StatusChange(status="running")
    assert progress == Progress(done=1, total=4, unit="epoch", fraction=0.25, metrics={"loss": 2})


def test_a_problem_in_the_stream_is_an_error(stub: Stub):
    stub.on(*LOGS, Reply(chunks=[event("error", {"code": "storage_full", "detail": "the disk is full"})]))
    with Client(stub.url) as client, pytest.raises(CumuloError, match="disk is full") as caught:
        list(client.logs("train", follow=True))
    assert caught.value.code == "storage_full"


def test_a_line_of_five_megabytes_comes_whole(stub: Stub):
    line = "x" * 5_000_000 + "\n"
    stub.on(*LOGS, Reply(chunks=[log(line, "1"), END]))
    with Client(stub.url) as client:
        found = next(iter(client.logs("train", follow=True)))
    assert isinstance(found, LogText)
    assert found.text == line
