"""Real scripts, measured as a person would have them measured: by the program, in a Python that has PyTorch."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cumulo.advisor.measured import MeasuredStep
from cumulo.cli.measuring.start import PROGRAM, measure
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import GIB
from tests.test_house import imports_beyond_the_standard_library

SCRIPTS = Path(__file__).with_name("scripts")
TORCH = os.environ.get("CUMULO_TEST_TORCH") or (sys.executable if find_spec("torch") else "")
"""A Python that has PyTorch and scikit-learn; CI makes one for a stage of its own."""

needs_torch = pytest.mark.skipif(not TORCH, reason="PyTorch is absent: CUMULO_TEST_TORCH names a Python that has it")


def measured(name: str, *arguments: str) -> MeasuredStep:
    return measure(SCRIPTS / f"{name}.py", arguments, python=TORCH)


def refusal(tmp_path: Path, source: str, *arguments: str, python: str = TORCH, limit_s: float = 60) -> CumuloError:
    script = tmp_path / "train.py"
    script.write_text(source)
    with pytest.raises(CumuloError) as caught:
        measure(script, arguments, python=python, limit_s=limit_s)
    assert caught.value.code == "invalid_request"
    assert caught.value.hint
    return caught.value


@needs_torch
def test_a_classifier_of_digits_with_a_loader_of_real_data():
    step = measured("digits_mlp")
    assert (step.models, step.inputs) == (("Sequential",), ("128x64 float32",))
    assert step.parameters == step.trainable == 64 * 512 + 512 + 512 * 10 + 10
    held = 4 * step.parameters
    assert step.parts["weights"] == pytest.approx(held, rel=0.05)  # and blocks of 512 bytes
    assert step.parts["optimizer"] >= 2 * held
    assert step.peak_bytes == sum(step.parts.values())
    assert step.dtypes == ("float32",)
    assert step.flops == 6 * 128 * (64 * 512 + 512 * 10) - 2 * 128 * 64 * 512  # no gradient for the images
    assert len(step.stand_ins) == 2
    assert all(name.startswith("digits_mlp.py:") for name in step.stand_ins)


@needs_torch
def test_a_transformer_in_mixed_precision_with_accumulation_and_tied_weights():
    step = measured("transformer")
    assert step.dtypes == ("float16",)
    assert step.models == ("Model",)
    layer = 12 * 512 * 512 + 13 * 512
    assert step.parameters == 8192 * 512 + 256 * 512 + 6 * layer + 2 * 512
    products = 6 * 12 * 512 * 512 + 8192 * 512
    assert step.flops == pytest.approx(6 * products * 2 * 16 * 256, rel=0.15)  # attention comes on top
    assert step.parts["optimizer"] == pytest.approx(2 * step.parts["weights"], rel=0.02)
    assert any("torch.compile" in note for note in step.notes)
    once = measured("transformer", "--accumulate", "1")
    assert once.flops == pytest.approx(step.flops / 2, rel=0.01)


@needs_torch
def test_twice_the_batch_has_twice_the_activations_and_no_more_of_the_rest():
    one, two = (measured("transformer", "--batch", batch, "--accumulate", "1") for batch in ("16", "32"))
    assert two.parts["activations"] == pytest.approx(2 * one.parts["activations"], rel=0.1)
    assert two.parts["optimizer"] == one.parts["optimizer"]
    assert two.flops == pytest.approx(2 * one.flops, rel=0.01)


@needs_torch
def test_a_residual_network():
    step = measured("resnet")
    assert step.parameters == 11_689_512  # what torchvision's resnet18 has
    assert step.inputs == ("64x3x224x224 float32",)
    forward = 2 * 1.814e9 * 64  # the multiplications that are published for it
    assert step.flops == pytest.approx(3 * forward, rel=0.05)
    assert {each.kind for each in step.operations} >= {"convolution", "product", "other"}
    assert not step.stand_ins


@needs_torch
def test_a_three_billion_parameter_model_needs_what_was_published_for_it():
    step = measured("llama_3b")
    assert step.parameters == 3_212_749_824
    assert step.peak_bytes == pytest.approx(60.0 * GIB, rel=0.05)
    assert step.flops > 6 * step.parameters * 2 * 4096


TRAINS = """
import os, sys, time, torch
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.ones(8, 4, device="cuda")).sum()
    {inside}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@needs_torch
@pytest.mark.parametrize(
    ("inside", "problem", "told"),
    [
        ("if loss > 3: break", "data_dependent", "train.py:7 decides by values on the GPU, .*: if loss > 3: break"),
        ("loss = loss + loss[loss > 0].sum()", "data_dependent", "train.py:7"),
        ("torch.cuda.Stream()", "needs_gpu", r"train.py:7 needs a GPU: torch.cuda.Stream\(\)"),
        ("raise ValueError('no data')", "raised", "train.py failed at train.py:7: ValueError: no data"),
        ("sys.exit(3)", "exit", "train.py ended before it trained: 3"),
        ("import nowhere_to_be_found", "no_module", "imports nowhere_to_be_found, which"),
        ("os.kill(os.getpid(), 9)", "killed", r"ended early \(signal 9\)"),
    ],
)
def test_what_cannot_be_measured_is_told_with_the_line(tmp_path, inside, problem, told):
    error = refusal(tmp_path, TRAINS.format(inside=inside))
    assert error.details["problem"] == problem
    assert re.search(told, error.message), error.message


@needs_torch
def test_a_script_without_a_model_and_one_that_never_steps(tmp_path):
    assert "without calling a torch.nn.Module" in refusal(tmp_path, "import torch\ntorch.ones(3).sum()").message
    never = "import torch\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))"
    assert "it called Linear, but no optimizer stepped" in refusal(tmp_path, never).message


@needs_torch
def test_a_script_that_takes_too_long_is_ended(tmp_path):
    error = refusal(tmp_path, "import time\ntime.sleep(60)", limit_s=1)
    assert "within 1 s" in error.message


@needs_torch
def test_a_single_step_is_measured_and_said_to_be_the_first(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINS.format(inside="pass").replace("range(3)", "range(1)"))
    step = measure(script, python=TORCH)
    assert step.parameters == 10
    assert step.notes == ("the script took one step: its first was measured",)


@needs_torch
def test_recurrent_layers_are_counted(tmp_path):
    script = tmp_path / "train.py"
    made = "torch.nn.LSTM(64, 128, batch_first=True).cuda()"
    script.write_text(
        TRAINS.format(inside="pass")
        .replace("torch.nn.Linear(4, 2).cuda()", made)
        .replace('model(torch.ones(8, 4, device="cuda"))', 'model(torch.ones(8, 50, 64, device="cuda"))[0]')
    )
    step = measure(script, python=TORCH)
    assert step.parameters == 4 * 128 * (64 + 128 + 2)
    assert step.flops == 3 * 2 * 8 * 50 * 4 * 128 * (64 + 128)


@needs_torch
@pytest.mark.parametrize("extra", ["", ", use_reentrant=False"])
def test_what_is_computed_again_is_not_kept(tmp_path, extra):
    script = tmp_path / "train.py"
    loop = """
import sys, torch
from torch.utils.checkpoint import checkpoint
layers = torch.nn.ModuleList(
    torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)) for _ in range(8)
).cuda()
optimizer = torch.optim.AdamW(layers.parameters())
for _ in range(2):
    hidden = torch.randn(512, 64, device="cuda", requires_grad=True)
    for layer in layers:
        hidden = CALL
    hidden.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    script.write_text(loop.replace("CALL", "layer(hidden)"))
    kept = measure(script, python=TORCH)
    script.write_text(loop.replace("CALL", f"checkpoint(layer, hidden{extra or ', use_reentrant=True'})"))
    again = measure(script, python=TORCH)
    assert again.parts["activations"] < kept.parts["activations"] / 2
    assert again.flops > 1.1 * kept.flops


@needs_torch
def test_frozen_weights_are_counted_but_not_trained(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINS.format(inside="pass").replace(".cuda()", ".cuda(); model.weight.requires_grad_(False)"))
    step = measure(script, python=TORCH)
    assert (step.parameters, step.trainable) == (10, 2)


def test_a_python_without_pytorch_says_how_to_get_it(tmp_path):
    alone = tmp_path / "python"  # isolated, without any site-packages
    alone.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    alone.chmod(0o755)
    error = refusal(tmp_path, "import torch", python=str(alone))
    assert error.message == f"{alone} has no PyTorch"
    assert "cumulo[torch]" in error.hint


def test_a_script_and_a_python_that_are_not_there(tmp_path):
    with pytest.raises(CumuloError, match="there is no such file"):
        measure(tmp_path / "nowhere.py", python=sys.executable)
    error = refusal(tmp_path, "", python=str(tmp_path / "nothing"))
    assert "can't be started" in error.message


def test_the_program_imports_the_standard_library_and_pytorch_alone():
    sources = [path.read_text() for path in PROGRAM.glob("*.py")]
    found = [line.rpartition(" ")[2] for source in sources for line in imports_beyond_the_standard_library(source)]
    assert {name for name in found if not name.startswith(".")} - {"torch"} == {
        name for name in found if name.startswith("torch.")
    }
    assert all((PROGRAM / f"{name[1:]}.py").exists() for name in found if name.startswith("."))
