"""The examples that train with PyTorch: preempted in the middle and started again, they end as undisturbed.

They run in a Python that has PyTorch and the library, which need not be ours, with `cumulo.job` as a run finds it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from cumulo.engines.local import library
from cumulo.wire.run_file import read_run_file, to_spec

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TORCH = os.environ.get("CUMULO_TEST_TORCH") or (sys.executable if find_spec("torch") else "")
STEPS = 120


@cache
def has(name: str) -> bool:
    return (
        bool(TORCH)
        and subprocess.run([TORCH, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0
    )


@pytest.fixture
def train(tmp_path):
    """Starts an example's training in a state folder of that name."""
    (tmp_path / "lib").mkdir()
    library.install(tmp_path / "lib")

    def train(example, state, *, pause=0.0):
        folder = tmp_path / state
        folder.mkdir(exist_ok=True)
        (folder / "notice").unlink(missing_ok=True)
        env = {name: os.environ[name] for name in os.environ if not name.startswith("CUMULO_")}
        env |= {
            "CUMULO_INSTANCE_ID": "r-0-1-0",
            "CUMULO_NOTICE": str(folder / "notice"),
            "CUMULO_PROGRESS": str(folder / "progress"),
            "CUMULO_CHECKPOINT_DIR": str(folder),
            "CUMULO_OUTPUT_DIR": str(folder),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(tmp_path / "lib"),
        }
        script = EXAMPLES / example / "train.py"
        argv = [TORCH, str(script), "--steps", str(STEPS), "--pause", str(pause)]
        with (folder / "log").open("a") as log:
            return subprocess.Popen(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    return train


def done(folder):
    """The last progress that a training has told."""
    path = folder / "progress"
    lines = path.read_text().splitlines() if path.exists() else []
    return json.loads(lines[-1]) if lines else {}


@pytest.mark.skipif(not TORCH, reason="PyTorch is absent: CUMULO_TEST_TORCH names a Python that has it")
@pytest.mark.parametrize(
    ("example", "needs"), [("pytorch", "torch"), ("trainer", "transformers"), ("lightning", "lightning")]
)
@pytest.mark.timeout(300)
def test_preempted_in_the_middle_it_ends_as_undisturbed(train, tmp_path, example, needs):
    if not has(needs):
        pytest.skip(f"PyTorch is absent: {needs} is not in that Python")
    undisturbed = train(example, "undisturbed")
    preempted = train(example, "preempted", pause=0.02)
    folder = tmp_path / "preempted"
    while done(folder).get("done", 0) < STEPS / 4:
        assert preempted.poll() is None, (folder / "log").read_text()
        time.sleep(0.01)
    (folder / "notice").write_text(f"CUMULO_PREEMPT_AT={time.time() + 30:.3f}\n")
    preempted.send_signal(signal.SIGTERM)
    assert preempted.wait(60) in (0, 143), (folder / "log").read_text()
    assert not (folder / "report.json").exists(), "it had not finished"
    left_at = done(folder)
    assert left_at["done"] < STEPS
    assert left_at["checkpoint"] > 0
    again = train(example, "preempted")
    assert again.wait(120) == 0, (folder / "log").read_text()
    assert undisturbed.wait(120) == 0
    report = json.loads((folder / "report.json").read_text())
    assert report == json.loads((tmp_path / "undisturbed" / "report.json").read_text())
    assert report["steps"] == STEPS
    redone = [json.loads(line)["done"] for line in (folder / "progress").read_text().splitlines()]
    assert min(each for each in redone[redone.index(left_at["done"]) + 1 :]) > left_at["done"], "it began anew"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/task.yaml")), ids=lambda path: path.parent.name)
def test_run_files_of_examples_are_accepted(path):
    spec = to_spec(read_run_file(yaml.safe_load(path.read_text())), planning=True)
    assert spec.name
    script = next(word for word in spec.command.split() if word.endswith(".py"))
    assert (path.parent / script).exists()
