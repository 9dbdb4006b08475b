"""`advise SCRIPT.py --torch` as typed, with no server anywhere."""

import json
from pathlib import Path

import pytest

from tests.cli.cumulo import Cumulo
from tests.cli.measuring.test_measuring import SCRIPTS, TORCH, needs_torch


@pytest.fixture
def alone(tmp_path: Path) -> Cumulo:
    return Cumulo(tmp_path, {"CUMULO_SERVER": "http://127.0.0.1:9"})


def test_a_script_runs_only_where_that_is_said(alone):
    done = alone("advise", "train.py")
    assert done.returncode == 2
    assert b"measuring runs the script on this machine" in done.stderr
    assert b"cumulo advise train.py --torch" in done.stderr
    assert b"no GPU 'A1000' is known" in alone("advise", "train.py", "--torch", "--gpu", "A1000").stderr
    assert b"there is no such file" in alone("advise", "train.py", "--torch", "--python", "python3").stderr


@needs_torch
def test_what_is_measured_and_who_takes_it(alone):
    words = ("advise", str(SCRIPTS / "transformer.py"), "--torch", "--python", TORCH, "--gpu", "L40S", "--gpu", "V100")
    text = alone.ok(*words, "--", "--batch", "8", timeout=200)
    assert "One training step of transformer.py, measured on fake tensors" in text
    assert "8x256 int64" in text
    assert "L40S" in text
    assert "made up: transformer.py:" in text
    data = json.loads(alone.ok(*words, "--json", "--", "--batch", "8", timeout=200))
    assert {row["gpu"] for row in data["gpus"]} == {"L40S", "V100-16GB", "V100-32GB"}
    for row in data["gpus"]:
        assert row["step_seconds"]["low"] < row["step_seconds"]["expected"] < row["step_seconds"]["high"]
        assert row["needs_bytes"]["expected"] > data["measured"]["peak_bytes"]
