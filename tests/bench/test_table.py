"""The table of budgets: verdicts, text, JSON; and one real measurement through the command."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.__main__ import MEASUREMENTS, main
from bench.table import HEAD, Row, as_json, as_text


def row(**changes):
    return Row(**{"name": "list", "what": "a list", "unit": "ms", "budget": 5.0, "measured": 4.0, **changes})


def test_a_budget_is_held_up_to_its_last_bit():
    assert row(measured=5.0).verdict == "held"
    assert row(measured=5.001).verdict == "MISSED"


def test_some_budgets_are_floors():
    assert row(measured=5.001, at_least=True).verdict == "held"
    assert row(measured=4.999, at_least=True).verdict == "MISSED"


def test_what_could_not_be_measured_is_neither():
    assert row(measured=None).verdict == "not measured"


def test_json_has_every_row_with_its_verdict_and_the_facts():
    told = json.loads(as_json([row(), row(name="start", measured=None)], {"cpus": 2}))
    assert told["cpus"] == 2
    assert [(one["name"], one["verdict"]) for one in told["rows"]] == [("list", "held"), ("start", "not measured")]


@given(
    st.lists(
        st.builds(
            Row,
            name=st.sampled_from(sorted(MEASUREMENTS)),
            what=st.text("abc ", min_size=1, max_size=40),
            unit=st.sampled_from(["ms", "MB", ""]),
            budget=st.floats(0.001, 1e4),
            measured=st.none() | st.floats(0, 1e6),
            at_least=st.booleans(),
            bare=st.none() | st.floats(0, 1e6),
        ),
        min_size=1,
    )
)
def test_the_table_has_a_line_a_row_with_its_columns_below_one_another(rows):
    head, rule, *lines = as_text(rows).splitlines()
    assert len(lines) == len(rows)
    starts = [head.index(title) for title in HEAD]
    assert [at for at, mark in enumerate(rule) if mark == "-" and (at == 0 or rule[at - 1] == " ")] == starts
    for one, line in zip(rows, lines, strict=True):
        assert line[starts[-1] :] == one.verdict


def test_notes_stand_below_the_table():
    assert as_text([row(note="of 3")]).splitlines()[-1] == "list: of 3"


def test_a_measurement_that_is_not_there_is_named(capsys):
    assert main(["--only", "speed"]) == 2
    assert "no measurement 'speed'" in capsys.readouterr().err


@pytest.mark.system
def test_one_measurement_runs_by_itself():
    command = [sys.executable, "-m", "bench", "--json", "--quick", "--only", "version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    (told,) = json.loads(done.stdout)["rows"]
    assert told["name"] == "version"
    assert told["measured"] > told["bare"] > 0  # no Python program is cheaper than Python
    assert done.returncode == (told["verdict"] == "MISSED")
