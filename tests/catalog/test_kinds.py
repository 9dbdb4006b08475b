import csv
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.catalog.kinds import DATA, GpuKind, all_kinds, find, from_nvml_name, known, resolve, suggest
from cumulo.domain.ask import parse_gpu_ask
from cumulo.domain.quantities import GIB, MIB

KINDS = st.sampled_from(all_kinds())


def names(name: str) -> list[str]:
    return [kind.name for kind in find(name)]


@pytest.mark.parametrize(
    ("typed", "kinds"),
    [
        ("A100", ["A100-40GB", "A100-80GB"]),
        ("a100_80gb", ["A100-80GB"]),
        ("A100 80GB", ["A100-80GB"]),
        ("A100-80G", ["A100-80GB"]),
        ("NVIDIA A100-SXM4-80GB", ["A100-80GB"]),
        ("A100 80GB PCIe", ["A100-80GB"]),
        ("H100", ["H100-80GB", "H100-94GB"]),
        ("H100 PCIe", ["H100-80GB"]),
        ("h100nvl", ["H100-94GB"]),
        ("H200", ["H200-141GB"]),
        ("Tesla T4", ["T4"]),
        ("T4-16GB", ["T4"]),
        ("rtx 4090", ["RTX4090"]),
        ("4090", ["RTX4090"]),
        ("GeForce RTX 3080", ["RTX3080-10GB", "RTX3080-12GB"]),
        ("A6000", ["RTXA6000"]),
        ("rtx-6000-ada", ["RTX6000-Ada"]),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", ["RTXPRO6000"]),
        ("V100", ["V100-16GB", "V100-32GB"]),
        ("AMD Instinct MI300X", ["MI300X"]),
        ("A100-81GB", []),
        ("T4-24GB", []),
        ("zebra", []),
        ("", []),
        ("NVIDIA", []),
    ],
)
def test_a_name_is_found_in_any_spelling(typed: str, kinds: list[str]) -> None:
    assert names(typed) == kinds
    assert known(typed) == bool(kinds)
    assert resolve(typed) == frozenset(kinds)


# As drivers report them; memory in MiB.
REPORTED = [
    ("NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"),
    ("A100-SXM4-40GB", 40536, "A100-40GB"),
    ("NVIDIA A100 80GB PCIe", 81920, "A100-80GB"),
    ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB"),
    ("NVIDIA H100 PCIe", 81559, "H100-80GB"),
    ("NVIDIA H100 NVL", 95830, "H100-94GB"),
    ("NVIDIA H200", 143771, "H200-141GB"),
    ("NVIDIA H200 NVL", 143771, "H200-141GB"),
    ("NVIDIA GH200 480GB", 97871, "GH200-96GB"),
    ("NVIDIA GH200 144G HBM3e", 147456, "GH200-144GB"),
    ("NVIDIA B200", 183359, "B200-180GB"),
    ("NVIDIA B300 SXM6 AC", 275040, "B300-270GB"),
    ("Tesla T4", 15360, "T4"),
    ("Tesla V100-SXM2-16GB", 16160, "V100-16GB"),
    ("Tesla V100-PCIE-32GB", 32510, "V100-32GB"),
    ("Tesla P100-PCIE-16GB", 16280, "P100-16GB"),
    ("NVIDIA A10G", 23028, "A10G"),
    ("NVIDIA L4", 23034, "L4"),
    ("NVIDIA L40S", 46068, "L40S"),
    ("NVIDIA GeForce RTX 3080", 10240, "RTX3080-10GB"),
    ("NVIDIA GeForce RTX 3080", 12288, "RTX3080-12GB"),
    ("NVIDIA GeForce RTX 4090", 24564, "RTX4090"),
    ("NVIDIA RTX A6000", 49140, "RTXA6000"),
    ("Quadro RTX 6000", 24220, "RTX6000"),
    ("NVIDIA RTX 6000 Ada Generation", 49140, "RTX6000-Ada"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97887, "RTXPRO6000"),
]


@pytest.mark.parametrize(("reported", "mib", "kind"), REPORTED)
def test_a_device_has_the_kind_its_driver_reports(reported: str, mib: int, kind: str) -> None:
    assert from_nvml_name(reported, mib * MIB).name == kind


@pytest.mark.parametrize(
    ("reported", "mib", "name"),
    [
        ("NVIDIA GeForce GTX 970", 4096, "GTX-970-4GB"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, "RTX-4090-Laptop-16GB"),
        ("GRID A100-40C", 40960, "GRID-A100-40C-40GB"),
        ("NVIDIA X900-256GB", 261120, "X900-256GB"),
        ("NVIDIA 900X", 8192, "GPU-900X-8GB"),
        ("", 0, "GPU"),
    ],
)
def test_a_gpu_that_nobody_listed_gets_a_kind_that_can_be_asked_for(reported: str, mib: int, name: str) -> None:
    kind = from_nvml_name(reported, mib * MIB)
    assert (kind.name, kind.memory_bytes, kind.listed) == (name, mib * MIB, False)
    assert parse_gpu_ask(f"{kind.name}:2").names == (kind.name,)
    assert resolve(kind.name) == frozenset()
    assert resolve(kind.name.lower(), present=[kind.name, "T4"]) == {kind.name}
    assert resolve(kind.family, present=[kind.name]) == {kind.name}


def test_a_device_that_hides_its_memory_is_known_if_its_name_is_exact() -> None:
    assert from_nvml_name("Tesla T4", 0).name == "T4"
    assert from_nvml_name("NVIDIA A100", 0).name == "A100"
    assert not from_nvml_name("NVIDIA A100", 0).listed


def test_a_name_with_memory_that_cannot_be_is_not_taken_for_the_listed_kind() -> None:
    assert from_nvml_name("Tesla T4", 48 * GIB).name == "T4-48GB"
    assert from_nvml_name("NVIDIA A100-SXM4-80GB", 41 * GIB).name == "A100-40GB"
    assert not from_nvml_name("NVIDIA A100-SXM4-80GB", 60 * GIB).listed


def test_a_listed_name_does_not_catch_unlisted_devices() -> None:
    assert resolve("RTX4090", present=["RTX-4090-Laptop-16GB"]) == {"RTX4090"}


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("A100-81GB", "A100-80GB"), ("A1000", "A100"), ("H10", "H100"), ("rtx4091", "RTX4090"), ("MI300", "MI300X")],
)
def test_a_misspelt_name_is_met_with_a_suggestion(misspelt: str, meant: str) -> None:
    assert meant in suggest(misspelt)


def test_nothing_is_suggested_for_what_resembles_nothing() -> None:
    assert suggest("zebra-crossing") == []


@given(
    KINDS, st.sampled_from(["", "NVIDIA ", "nvidia_", "Tesla-"]), st.sampled_from(["-", " ", "_", ""]), st.booleans()
)
def test_every_kind_is_found_however_it_is_spelt(kind: GpuKind, prefix: str, separator: str, lower: bool) -> None:
    spelt = prefix + kind.name.replace("-", separator)
    assert names(spelt.lower() if lower else spelt.upper()) == [kind.name]


@given(KINDS)
def test_every_kind_can_be_asked_for_and_is_of_its_family(kind: GpuKind) -> None:
    assert parse_gpu_ask(f"{kind.name}:8").names == (kind.name,)
    assert kind in find(kind.family)
    assert len({other.name for other in find(kind.family)}) == len(find(kind.family))


@given(KINDS, st.floats(0.94, 1.01))
def test_every_kind_is_recognised_from_its_own_name_and_about_its_memory(kind: GpuKind, share: float) -> None:
    assert from_nvml_name(f"NVIDIA {kind.name}", int(kind.memory_bytes * share)).name == kind.name


@given(st.text(max_size=60), st.integers(0, 1 << 42))
def test_any_reported_name_makes_a_kind_that_an_ask_can_name(name: str, memory: int) -> None:
    kind = from_nvml_name(name, memory)
    assert parse_gpu_ask(f"{kind.name}:1").names == (kind.name,)
    assert resolve(kind.name, present=[kind.name]) == {kind.name}


def test_every_board_belongs_to_exactly_one_kind() -> None:
    with (DATA / "gpu_specs.csv").open(encoding="utf-8", newline="") as file:
        boards = [row["gpu"] for row in csv.DictReader(file)]
    assert sorted(variant.name for kind in all_kinds() for variant in kind.variants) == sorted(boards)


def test_boards_agree_with_their_kind() -> None:
    with (DATA / "gpu_specs.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["gpu"]: row for row in csv.DictReader(file)}
    for kind in all_kinds():
        for variant in kind.variants:
            row = rows[variant.name]
            assert float(row["memory_gb"]) * GIB == kind.memory_bytes
            assert (row["vendor"], row["architecture"]) == (kind.vendor, kind.architecture)
            assert variant.compute_target == kind.compute_target


def test_unknown_figures_are_none_and_known_ones_in_their_units() -> None:
    (h100,) = find("H100-80GB")
    assert [variant.name for variant in h100.variants] == ["H100-SXM5-80GB", "H100-PCIe-80GB"]
    sxm = h100.typical
    assert sxm is not None
    assert (sxm.memory_bandwidth, sxm.fp16_tensor_tflops, sxm.tdp_watts) == (3_350_000_000_000, 989.4, 700.0)
    assert (sxm.fp4_tensor_tflops, sxm.vgpu, sxm.bf16) == (None, None, True)
    assert find("RTX4060")[0].typical is None


def test_looking_up_a_gpu_imports_nothing_heavy() -> None:
    script = "import sys; from cumulo.catalog.kinds import find; find('A100'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "numpy", "pynvml", "importlib.resources", "difflib"} & set(loaded)
