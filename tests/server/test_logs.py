"""Logs over HTTP: nothing lost, nothing twice, the end exact, and many followers at once."""

import threading

import pytest

from cumulo.server.log_cursor import LogPosition, log_text, whole_characters
from cumulo.store.logs import LogRef
from tests.server.test_runs import problem


def texts(events):
    return "".join(data["text"] for kind, data in events if kind == "log")


def test_a_finished_run_gives_its_log_and_its_end(box):
    run, instance = box.running()
    box.engine.say(instance, "one\ntwo\n")
    box.engine.finish(instance, 3, message="it exited with code 3")
    box.await_status(run, "failed")
    events = box.follow(f"/v1/runs/{run}/logs").until("end")
    assert texts(events) == "one\ntwo\n"
    assert events[-1] == (
        "end",
        {"status": "failed", "exit_code": 3, "reason": "failed", "message": "it exited with code 3"},
    )


def test_a_follower_sees_what_comes_and_the_tail_after_the_end(box):
    run, instance = box.running()
    reader = box.follow(f"/v1/runs/{run}/logs?follow=true")
    box.engine.say(instance, "begin\n")
    assert reader.text_until("begin") == "begin\n"
    box.engine.say(instance, "more\n")
    assert reader.text_until("more") == "more\n"
    box.engine.say(instance, "last words")  # no newline, said as it ends
    box.engine.finish(instance)
    events = reader.until("end")
    assert texts(events) == "last words"
    assert [kind for kind, _ in events].count("end") == 1


def test_a_follower_of_a_queued_run_waits_for_it(box):
    run = box.submit({"gpu": "A100:3", "name": "later"}, queue=True)["id"]
    reader = box.follow(f"/v1/runs/{run}/logs?follow=true")
    assert next(iter(reader)) == ("status", {"status": "queued", "message": ""})
    box.ask("PATCH", f"/v1/runs/{run}", {"wanted": "cancelled"})
    assert reader.until("end")[-1][1]["status"] == "cancelled"


def test_the_cursor_goes_on_where_it_was(box):
    run, instance = box.running()
    first = box.follow(f"/v1/runs/{run}/logs?follow=true")
    box.engine.say(instance, "a" * 10 + "\n")
    first.text_until("a" * 10)
    cursor = first.cursor
    first.close()
    box.engine.say(instance, "b" * 10 + "\n")
    box.engine.finish(instance)
    box.await_status(run, "succeeded")
    path = f"/v1/runs/{run}/logs?follow=true&tail=0&cursor={cursor}"  # where to begin no longer matters
    assert texts(box.follow(path).until("end")) == "b" * 10 + "\n"
    again = box.follow(f"/v1/runs/{run}/logs?follow=true", headers={"Last-Event-ID": cursor})
    assert texts(again.until("end")) == "b" * 10 + "\n"


def test_a_cursor_of_another_run_is_refused(box):
    run, instance = box.running()
    other, _ = box.running()
    box.engine.say(instance, "x\n")
    reader = box.follow(f"/v1/runs/{run}/logs?follow=true")
    reader.text_until("x")
    problem(box.ask("GET", f"/v1/runs/{other}/logs?cursor={reader.cursor}"), "invalid_request")
    problem(box.ask("GET", f"/v1/runs/{run}/logs?cursor=rubbish"), "invalid_request")


def test_tail_and_since(box):
    run, instance = box.running()
    box.engine.say(instance, "".join(f"line {n}\n" for n in range(100)))
    box.engine.finish(instance)
    box.await_status(run, "succeeded")
    assert texts(box.follow(f"/v1/runs/{run}/logs?tail=2").until("end")) == "line 98\nline 99\n"
    assert texts(box.follow(f"/v1/runs/{run}/logs?tail=0").until("end")) == ""
    assert texts(box.follow(f"/v1/runs/{run}/logs?since=3600").until("end")).startswith("line 0\n")
    assert texts(box.follow(f"/v1/runs/{run}/logs?since=2020-01-01T00:00:00Z").until("end")).startswith("line 0\n")
    for wrong in ("since=yesterday", "since=2020-01-01T00:00:00", "since=-5", "tail=-1", "unit=1", "attempt=0"):
        problem(box.ask("GET", f"/v1/runs/{run}/logs?{wrong}"), "invalid_request")


def test_any_bytes_arrive_as_text_and_raw(box):
    run, instance = box.running()
    raw = b"\xff\xfe ok \xe2\x82" + b"\xac" + "é".encode() + b"\xe2\x82"  # the last character never comes whole
    reader = box.follow(f"/v1/runs/{run}/logs?follow=true")
    for byte in raw:  # worst case: every byte by itself
        box.engine.say(instance, bytes([byte]))
    box.engine.finish(instance)
    assert texts(reader.until("end")) == raw.decode("utf-8", "replace")
    answer = box.ask("GET", f"/v1/runs/{run}/logs", headers={"Accept": "application/octet-stream"})
    assert answer.body == raw
    part = box.ask("GET", f"/v1/runs/{run}/logs?offset=3", headers={"Accept": "application/octet-stream"})
    assert part.body == raw[3:]


def test_a_line_of_five_megabytes_arrives(box):
    run, instance = box.running()
    box.engine.say(instance, b"x" * (5 << 20) + b"\n")
    box.engine.finish(instance)
    assert len(texts(box.follow(f"/v1/runs/{run}/logs?follow=true").until("end"))) == (5 << 20) + 1


def test_all_units_of_an_array_are_followed_together(box):
    run = box.submit({"array": "5-7", "name": "many"})["id"]
    box.await_status(run, "running")
    problem(box.ask("GET", f"/v1/runs/{run}/logs"), "invalid_request")  # which unit?
    reader = box.follow(f"/v1/runs/{run}/logs?follow=true")
    for place in range(3):
        box.engine.say(f"{run}-{place}-1-0", f"hello from {place}\n")
        box.engine.finish(f"{run}-{place}-1-0")
    logs = [data for kind, data in reader.until("end") if kind == "log"]
    assert sorted((line["source"], line["unit"], line["text"]) for line in logs) == [
        (str(5 + place), 5 + place, f"hello from {place}\n") for place in range(3)
    ]


def test_one_unit_ends_by_itself(box):
    run = box.submit({"array": "5-6", "name": "apart"})["id"]
    box.await_status(run, "running")
    box.engine.say(f"{run}-0-1-0", "done\n")
    box.engine.finish(f"{run}-0-1-0", 4)
    events = box.follow(f"/v1/runs/{run}/logs?follow=true&unit=5").until("end")
    assert texts(events) == "done\n"
    assert (events[-1][1]["status"], events[-1][1]["exit_code"]) == ("failed", 4)


def test_ranks_of_a_gang_are_told_apart(box):
    run = box.submit({"num_nodes": 2, "gpu": 2, "name": "gang"})["id"]
    box.await_status(run, "running")
    for rank in range(2):
        box.engine.say(f"{run}-0-1-{rank}", f"rank {rank} here\n")
    for rank in range(2):
        box.engine.finish(f"{run}-0-1-{rank}")
    events = box.follow(f"/v1/runs/{run}/logs?follow=true").until("end")
    assert {data["source"]: data["text"] for kind, data in events if kind == "log"} == {
        "rank 0": "rank 0 here\n",
        "rank 1": "rank 1 here\n",
    }
    only = box.follow(f"/v1/runs/{run}/logs?follow=true&rank=1").until("end")
    assert texts(only) == "rank 1 here\n"


def test_a_new_attempt_is_followed(box):
    run, instance = box.running({"retry": {"on_events": ["error"], "backoff": 0, "max_attempts": 2}})
    reader = box.follow(f"/v1/runs/{run}/logs?follow=true")
    box.engine.say(instance, "first try\n")
    box.engine.finish(instance, 1)
    assert reader.text_until("first try")
    second = f"{run}-0-2-0"
    deadline = threading.Event()
    while second not in box.engine.specs:
        deadline.wait(0.01)
    box.engine.say(second, "second try\n")
    box.engine.finish(second, 0)
    events = reader.until("end")
    assert [data["attempt"] for kind, data in events if kind == "log"] == [2]
    assert texts(events) == "second try\n"


def test_attempts_come_one_after_the_other(box):
    """Also to a reader who comes later, to one who lost the connection in between, and in short cursors."""
    run, _ = box.running({"retry": {"on_events": ["error"], "backoff": 0, "max_attempts": 3}})
    for attempt in (1, 2, 3):
        name = f"{run}-0-{attempt}-0"
        while name not in box.engine.specs:
            threading.Event().wait(0.01)
        box.engine.say(name, f"one of {attempt}\n")
        box.engine.say(name, f"two of {attempt}\n")
        box.engine.finish(name, 0 if attempt == 3 else attempt)
    box.await_status(run, "succeeded")
    every = "".join(f"one of {attempt}\ntwo of {attempt}\n" for attempt in (1, 2, 3))
    reader = box.follow(f"/v1/runs/{run}/logs")
    read = [(data, reader.cursor) for kind, data in reader if kind == "log"]
    assert "".join(data["text"] for data, _ in read) == every
    assert [data["attempt"] for data, _ in read] == [1, 2, 3]
    assert list(LogPosition.read(read[-1][1], run).offsets) == [LogRef(run, 0, 3, 0)]
    again = box.follow(f"/v1/runs/{run}/logs?cursor={read[0][1]}").until("end")
    assert texts(again) == every.removeprefix(read[0][0]["text"])
    assert texts(box.follow(f"/v1/runs/{run}/logs?attempt=2").until("end")) == "one of 2\ntwo of 2\n"
    assert texts(box.follow(f"/v1/runs/{run}/logs?tail=1").until("end")) == "two of 3\n"


def test_progress_is_told(box):
    run, instance = box.running()
    reader = box.follow(f"/v1/runs/{run}/logs?follow=true")
    box.engine.progress(instance, '{"done": 1, "total": 4, "unit": "step"}')
    told = reader.until("progress")[-1][1]
    assert (told["done"], told["total"], told["unit"], told["fraction"]) == (1, 4, "step", 0.25)


def test_a_hundred_followers_disturb_nobody(box):
    run, instance = box.running()
    readers = [box.follow(f"/v1/runs/{run}/logs?follow=true") for _ in range(100)]
    threads = threading.active_count()
    box.engine.say(instance, "to all\n")
    slow, *quick = readers  # never reads until the very end
    for reader in quick:
        assert reader.text_until("to all") == "to all\n"
    assert threading.active_count() - threads < 45  # the shared pool, not a thread each
    assert box.get("/v1/health", token="")["status"] == "ok"
    box.engine.say(instance, "x" * 1_000_000)
    box.engine.finish(instance)
    for reader in quick:
        assert len(texts(reader.until("end"))) == 1_000_000
    assert len(texts(slow.until("end"))) == 1_000_007
    for reader in readers:
        reader.close()


def test_events_are_paged_and_followed(box):
    _run, instance = box.running({"name": "eventful"})
    kinds = [event["kind"] for event in box.get("/v1/events?run=eventful")["items"]]
    assert kinds[0] == "run.accepted"
    assert "run.running" in kinds
    assert {event["kind"] for event in box.get("/v1/events?kind=run&run=eventful")["items"]} <= set(kinds)
    first = box.get("/v1/events?limit=1")
    second = box.get(f"/v1/events?limit=1&cursor={first['next']}")
    assert second["items"][0]["seq"] > first["items"][0]["seq"]
    after = box.get("/v1/events?run=eventful&limit=500")["items"][-1]["seq"]
    reader = box.follow(f"/v1/events?follow=true&run=eventful&after={after}")
    box.engine.finish(instance)
    seen = []
    for _, event in reader:
        seen.append(event["kind"])
        if event["kind"] == "run.succeeded":
            break
    assert event["seq"] > after
    box.running({"name": "eventful-too"})
    resumed = box.follow("/v1/events?follow=true", headers={"Last-Event-ID": reader.cursor})
    _, told = next(iter(resumed))
    assert told["seq"] == event["seq"] + 1


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"", 0),
        (b"abc", 3),
        ("é".encode(), 2),
        (b"a\xc3", 1),
        (b"a\xe2\x82", 1),
        (b"a\xe2\x82\xac", 4),
        (b"a\xf0\x9f\x98", 1),
        (b"a\xff", 2),
        (b"\x80\x80\x80\x80", 4),
        (b"a\xc0", 2),
    ],
)
def test_a_cut_character_waits_for_its_rest(data, whole):
    assert whole_characters(data) == whole


def test_whatever_the_pieces_the_text_is_the_same():
    raw = ("é€😀 plain " * 5).encode() + b"\xff\xe2\x82 end"
    for size in (1, 2, 3, 5, 7):
        text, rest = "", b""
        for start in range(0, len(raw), size):
            rest += raw[start : start + size]
            cut = whole_characters(rest)
            text, rest = text + log_text(rest[:cut]), rest[cut:]
        assert text + log_text(rest) == raw.decode("utf-8", "replace")


def test_a_cursor_survives_the_way_there_and_back():
    position = LogPosition("run1", {LogRef("run1", 7, 2, 0): 123456}, {0, 1, 2, 3, 5}, "running")
    read = LogPosition.read(position.cursor(), "run1")
    assert (read.offsets, read.done, read.status) == (position.offsets, position.done, position.status)
    assert len(LogPosition("run1", {}, set(range(10_000)), "running").cursor()) < 100
