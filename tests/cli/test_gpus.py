"""`gpus`: facts about GPUs, without any server."""

import json
import re
from pathlib import Path

import pytest

from cumulo.catalog.kinds import all_kinds
from tests.cli.cumulo import Cumulo


@pytest.fixture
def alone(tmp_path: Path) -> Cumulo:
    """A command line whose server does not exist."""
    return Cumulo(tmp_path, {"CUMULO_SERVER": "http://127.0.0.1:9"})


def rows(text: str) -> dict[str, str]:
    return {line.split()[0]: line for line in text.splitlines() if line.strip()}


def test_one_row_for_each_gpu_with_a_specification(alone):
    text = alone.ok("gpus")
    found = rows(text)
    specified = [kind for kind in all_kinds() if kind.typical]
    assert [kind.name for kind in specified if kind.name not in found] == []
    assert re.search(
        r"80GB +2,039 +312 +unknown +19.5 +9.75, tensor 19.5 +yes +600 +4.0 x16 +7 +\$1.29 to", found["A100-80GB"]
    )
    assert re.search(r"Known by name, .*\bM60\b", text)


def test_sparse_rates_never_appear(alone):
    (board,) = (row["board"] for row in json.loads(alone.ok("gpus", "H100-SXM5-80GB", "--json")))
    assert board["fp16_tensor_tflops"] == pytest.approx(989, rel=0.01)  # printed as 1979, with sparsity
    assert board["fp8_tensor_tflops"] == pytest.approx(1979, rel=0.01)  # printed as 3958


def test_what_is_blank_is_unknown_and_null(alone):
    (row,) = json.loads(alone.ok("gpus", "M60", "--json"))
    assert row["board"] is None
    assert "unknown" in rows(alone.ok("gpus", "M60"))["M60"]
    t4 = json.loads(alone.ok("gpus", "T4", "--json"))[0]
    assert t4["board"]["fp8_tensor_tflops"] is None
    assert t4["board"]["bf16"] is False
    assert t4["price_usd_h"]["on_demand"]["least"] <= t4["price_usd_h"]["on_demand"]["median"]
    assert t4["price_usd_h"]["oldest"] == "2026-01-21"


def test_a_family_is_all_its_boards_and_a_board_itself(alone):
    named = [row["board"]["name"] for row in json.loads(alone.ok("gpus", "A100", "--json"))]
    assert {"A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIe-80GB"} <= set(named)
    assert [row["board"]["name"] for row in json.loads(alone.ok("gpus", "A100-PCIe-80GB", "--json"))] == [
        "A100-PCIe-80GB"
    ]


def test_traps_of_a_board_are_told_where_it_is_named(alone):
    assert "WITH sparsity" in alone.ok("gpus", "H100")


def test_an_unknown_gpu(alone):
    done = alone("gpus", "A1000")
    assert done.returncode == 2
    assert b"no GPU 'A1000' is known" in done.stderr
    assert b"did you mean A100" in done.stderr
    assert alone("gpus", "compare", "H100", "zebra").returncode == 2


def test_comparing_for_training(alone):
    text = alone.ok("gpus", "compare", "H100-80GB", "A100-80GB", "L40S", "--for", "train")
    head, *lines = text.splitlines()
    assert head.split() == ["FOR", "TRAIN", "H100-80GB", "A100-80GB", "L40S"]
    found = {line.split("  ")[0].strip(): line.split()[-3:] for line in lines}
    assert found["FP16/BF16 tensor, TFLOPS"] == ["989.4", "312", "362"]
    assert found["BF16"] == ["yes", "yes", "yes"]
    assert "L40S: no link between GPUs is known: tensor parallelism over PCIe costs far more time" in text
    assert "most FP16/BF16 TFLOPS for the money: L40S" in text


@pytest.mark.parametrize(
    ("work", "names", "told"),
    [
        ("train", ("T4", "A10"), "T4: no BF16"),
        ("hpc", ("A100-80GB", "B300-270GB"), "B300-270GB: FP64 at 1.2"),
        ("hpc", ("A100-80GB", "L40S"), "L40S: FP64 at 1.43 TFLOPS: not for double precision"),
        ("render", ("A100-80GB", "L40S"), "A100-80GB: no ray-tracing cores"),
        ("serve", ("L4", "H100-80GB"), "bandwidth for $1/h"),
    ],
)
def test_each_kind_of_work_has_its_facts_and_cautions(alone, work, names, told):
    assert told in alone.ok("gpus", "compare", *names, "--for", work)


def test_comparing_takes_two(alone):
    done = alone("gpus", "compare", "L40S")
    assert done.returncode == 2
    assert b"comparing takes two GPUs or more" in done.stderr
    data = json.loads(alone.ok("gpus", "compare", "L40S", "T4", "--json"))
    assert [each["gpu"] for each in data] == ["L40S", "T4"]
