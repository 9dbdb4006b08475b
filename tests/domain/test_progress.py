"""Progress as runs tell it: they may write anything, and must not bring anything down."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.progress import Progress, parse_checkpoint, parse_line, parse_match, remaining_s


def test_a_line():
    line = '{"done": 3, "total": 50, "unit": "epoch", "metrics": {"loss": 0.5, "phase": "warm", "ok": true, "x": null}}'
    assert parse_line(line, 7.0) == Progress(
        done=3.0, total=50.0, at=7.0, unit="epoch", metrics={"loss": 0.5, "phase": "warm"}
    )


@pytest.mark.parametrize(
    ("line", "fraction"), [('{"done": 3}', None), ('{"done": 3, "total": 2}', 1.0), ('{"done": -3, "total": 2}', 0.0)]
)
def test_the_fraction(line, fraction):
    read = parse_line(line, 0.0)
    assert read is not None
    assert read.fraction == fraction


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "3",
        "[3]",
        "null",
        "{}",
        '{"done": "many"}',
        '{"done": NaN}',
        '{"done": 1, "total": Infinity}',
        '{"done": 1e300}',
        '{"done": 1' + "0" * 400 + "}",
        "[" * 100_000,
        '{"done":' + '{"a":' * 50_000,
    ],
)
def test_what_is_no_progress(line):
    assert parse_line(line, 0.0) is None


def test_what_it_says_is_cut_and_cannot_act_on_a_terminal():
    read = parse_line(json.dumps({"done": 1, "unit": "\x1b[2J" + "x" * 99, "metrics": {"a\a": "\ud800"}}), 0.0)
    assert read is not None
    assert len(read.unit) == 24
    assert read.unit.isprintable()
    assert read.metrics == {"a?": "?"}
    many = parse_line(json.dumps({"done": 1, "metrics": {f"m{n}": n for n in range(99)}}), 0.0)
    assert many is not None
    assert len(many.metrics) == 16


@given(st.text() | st.binary().map(lambda data: data.decode(errors="replace")))
def test_any_line_is_read_or_not(line):
    parse_line(line, 0.0)


@pytest.mark.parametrize(
    ("pattern", "text", "done", "total"),
    [
        (r"epoch (\d+)/(\d+)", "epoch 3/50", 3, 50),
        (r"step (\d+)", "step 7", 7, 0),
        (r"(?P<total>\d+) in all, (?P<done>\d+) done", "9 in all, 4 done", 4, 9),
        (r"(\w+): (?P<done>\d+)", "frames: 12", 12, 0),
        (r"(\d+)(?:/(\d+))?", "5", 5, 0),
    ],
)
def test_a_match(pattern, text, done, total):
    match = re.search(pattern, text)
    assert match is not None
    read = parse_match(match, 1.0)
    assert read is not None
    assert (read.done, read.total) == (done, total)


@pytest.mark.parametrize(("pattern", "text"), [("x", "x"), (r"(\w+)", "many"), (r"(?P<done>\d*)x(\d)", "x3")])
def test_a_match_that_tells_nothing(pattern, text):
    match = re.search(pattern, text)
    assert match is not None
    assert parse_match(match, 1.0) is None


def test_the_time_left():
    def at(second, done, total=10.0):
        return Progress(done=done, total=total, at=second)

    assert remaining_s(at(0, 0), at(20, 5)) == 20
    assert remaining_s(at(0, 0), at(20, 10)) == 0
    assert remaining_s(at(0, 0), at(20, 0)) is None
    assert remaining_s(at(5, 0), at(5, 3)) is None
    assert remaining_s(at(0, 0, 0), at(5, 3, 0)) is None


@pytest.mark.parametrize(
    ("line", "saved"),
    [
        ('{"checkpoint": 90.5}', 90.5),
        ('{"done": 3, "checkpoint": 90}', 90.0),
        ('{"checkpoint": 1e9}', 100.0),  # a clock that is ahead of ours
        ('{"checkpoint": true}', None),
        ('{"checkpoint": "90"}', None),
        ('{"checkpoint": -1}', None),
        ('{"checkpoint": NaN}', None),
        ('{"done": 3}', None),
        ('["checkpoint"]', None),
        ("checkpoint", None),
    ],
)
def test_until_when_work_is_saved(line, saved):
    assert parse_checkpoint(line, 100.0) == saved


@given(st.text() | st.recursive(st.floats() | st.text() | st.none(), st.lists).map(json.dumps))
def test_no_line_brings_it_down(line):
    assert parse_checkpoint(line, 100.0) is None
