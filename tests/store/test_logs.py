"""Logs take bytes where they belong, find lines and times again, and wake who follows."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import instance_id
from cumulo.store.logs import LogGap, LogRef, Logs

REF = LogRef("run1", 0, 1, 2)
START = 1_760_000_000.0


class Clock:
    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def logs(tmp_path, clock):
    return Logs(tmp_path, clock=clock)


def grow(logs, data, ref=REF):
    return logs.append(ref, logs.size(ref), data)


def test_an_instances_id_says_which_log(logs):
    assert LogRef.of(instance_id("run1", 0, 1, 2)) == REF
    with pytest.raises(ValueError, match="unpack"):
        LogRef.of("run1")


def test_bytes_are_kept_as_they_came(logs):
    data = bytes(range(256)) * 3
    assert grow(logs, data) == len(data)
    assert logs.read(REF, 0) == data
    assert logs.read(REF, 700, 60) == data[700:760]
    assert logs.read(REF, len(data)) == b""


def test_a_repeat_changes_nothing(logs):
    logs.append(REF, 0, b"hello")
    assert logs.append(REF, 0, b"hello") == 5
    assert logs.append(REF, 2, b"ll") == 5
    assert logs.append(REF, 3, b"lo world") == 11
    assert logs.read(REF, 0) == b"hello world"


def test_a_gap_is_an_error_and_says_what_is_there(logs):
    logs.append(REF, 0, b"hello")
    with pytest.raises(LogGap) as gap:
        logs.append(REF, 6, b"world")
    assert gap.value.size == 5
    assert logs.read(REF, 0) == b"hello"


def test_an_empty_log_has_no_file(logs):
    assert logs.append(REF, 0, b"") == 0
    assert logs.size(REF) == 0
    assert logs.read(REF, 0) == b""
    assert logs.tail(REF, 5) == 0
    assert logs.since(REF, 0.0) == 0
    assert not logs.root.exists()


def test_a_log_written_at_once_is_one_file(logs):
    grow(logs, b"x\n")
    grow(logs, b"y\n")
    assert [path.name for path in logs.root.rglob("*.*")] == ["0-1-2.log"]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pieces_in_any_overlap_make_the_same_text(tmp_path_factory, pieces):
    logs = Logs(tmp_path_factory.mktemp("logs"))
    text = bytes(range(60))
    size = 0
    for offset, length in pieces:
        try:
            size = logs.append(REF, offset, text[offset : offset + length])
        except LogGap:
            assert offset > size
    assert logs.read(REF, 0) == text[:size]


@pytest.mark.parametrize(
    ("text", "lines", "found"),
    [
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 1, b"c"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\n", 9, b"a\nb\n"),
        (b"a\nb\n", 0, b""),
        (b"\n\n\n", 2, b"\n\n"),
        (b"a", 1, b"a"),
    ],
)
def test_the_last_lines(logs, text, lines, found):
    grow(logs, text)
    assert logs.read(REF, logs.tail(REF, lines)) == found


def test_the_last_line_may_be_huge(logs):
    huge = b"x" * 5_000_000
    grow(logs, b"first\n" + huge + b"\n")
    assert logs.tail(REF, 1) == 6
    assert logs.tail(REF, 2) == 0


def play(logs, clock, moments):
    """One byte at each moment (seconds from START)."""
    for moment in moments:
        clock.now = START + moment
        grow(logs, b"x")


def test_since_a_time(logs, clock):
    play(logs, clock, [0, 10, 20, 30])
    assert [logs.since(REF, START + moment) for moment in (-5, 0, 5, 10, 15, 25, 30, 31)] == [0, 0, 1, 1, 2, 3, 3, 4]


@given(st.lists(st.floats(0, 5), min_size=1, max_size=25), st.floats(-1, 130), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_since_leaves_nothing_out_and_adds_at_most_a_second(tmp_path_factory, gaps, moment, restarted):
    clock = Clock()
    home = tmp_path_factory.mktemp("logs")
    logs = Logs(home, clock=clock)
    arrived = []
    for gap in gaps:
        clock.now += gap
        arrived.append(clock.now)
        if restarted:
            logs = Logs(home, clock=clock)
        grow(logs, b"x")
    begin = logs.since(REF, START + moment)
    assert all(at < START + moment for at in arrived[:begin])
    if not restarted:
        assert all(at > START + moment - 1.001 for at in arrived[begin:])


def test_a_clock_set_back_loses_nothing(logs, clock):
    play(logs, clock, [0, 10, -100])
    assert logs.since(REF, START + 5) == 1
    play(logs, clock, [-50, 12])
    assert logs.since(REF, START + 5) == 1
    assert logs.since(REF, START - 200) == 0


def test_a_torn_index_is_read_as_far_as_it_goes(logs, clock):
    play(logs, clock, [0, 10, 20])
    (index,) = logs.root.rglob("*.index")
    index.write_bytes(index.read_bytes()[:-5])
    assert logs.since(REF, START + 20) == 1


def test_a_full_disk_keeps_what_fitted(logs, monkeypatch):
    whole = os.write
    written: list[bool] = []

    def almost_full(fd, data):
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(True)
        return whole(fd, bytes(data[:4]))

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", almost_full)
        with pytest.raises(CumuloError) as told:
            logs.append(REF, 0, b"hello world")
    assert told.value.code == "storage_full"
    assert logs.append(REF, logs.size(REF), b"o world") == 11
    assert logs.read(REF, 0) == b"hello world"


@pytest.mark.parametrize("run_id", ["", "..", "a/b", "../../etc"])
def test_what_is_no_id_never_becomes_a_path(logs, run_id):
    with pytest.raises(ValueError, match="is not the id of a run"):
        logs.append(LogRef(run_id, 0, 0, 0), 0, b"x")
    with pytest.raises(ValueError, match="is not the id of a run"):
        logs.delete(run_id)


def test_two_that_append_the_same_double_nothing(logs):
    text = os.urandom(50_000)

    def ship(_):
        while (offset := logs.size(REF)) < len(text):
            logs.append(REF, offset, text[offset : offset + 777])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ship, range(4)))
    assert logs.read(REF, 0) == text


def test_a_follower_misses_nothing(logs):
    lines = [f"{number}\n".encode() for number in range(300)]

    def follow():
        seen = b""
        with logs.follow("run1") as follower:
            ready.set()
            while len(seen) < sum(map(len, lines)):
                follower.wait(10)
                seen += logs.read(REF, len(seen))
        return seen

    ready = threading.Event()
    with ThreadPoolExecutor(1) as other:
        following = other.submit(follow)
        ready.wait(10)
        for line in lines:
            grow(logs, line)
        assert following.result(20) == b"".join(lines)


def test_news_before_the_wait_end_it_at_once(logs):
    with logs.follow("run1") as follower:
        grow(logs, b"x")
        assert follower.wait(60)
        assert not follower.wait(0)


def test_followers_hear_of_their_run_alone_and_of_no_repeat(logs):
    heard = []
    end = logs.subscribe("run1", lambda: heard.append(1))
    grow(logs, b"x", LogRef("run2", 0, 0, 0))
    assert heard == []
    grow(logs, b"x", LogRef("run1", 7, 0, 0))
    logs.wake("run1")
    assert heard == [1, 1]
    assert logs.followed_runs() == {"run1"}
    end()
    end()
    grow(logs, b"y")
    assert heard == [1, 1]
    assert logs.followed_runs() == frozenset()


def test_a_run_is_deleted_whole(logs, clock):
    play(logs, clock, [0, 10])
    grow(logs, b"other", LogRef("run2", 0, 0, 0))
    assert sorted(logs.runs()) == ["run1", "run2"]
    assert logs.total().files == 2
    assert logs.total("run2") == (1, 5)
    logs.delete("run1")
    logs.delete("run1")
    assert list(logs.runs()) == ["run2"]


def test_thousands_of_logs_hold_no_files_open(logs):
    before = len(os.listdir("/proc/self/fd"))
    for unit in range(2000):
        grow(logs, b"done\n", LogRef("array", unit, 1, 0))
    assert len(os.listdir("/proc/self/fd")) <= before
    assert logs.total("array") == (2000, 10_000)
