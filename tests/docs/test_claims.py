"""The figures of docs/claims.md that the catalogue knows are the catalogue's."""

import re
import statistics

import pytest

from cumulo.catalog.kinds import all_kinds, find
from cumulo.catalog.prices import Rental, rentals
from tests.docs.documents import ROOT

TEXT = (ROOT / "docs" / "claims.md").read_text()
FLAT = " ".join(TEXT.split())
RENTALS = [rental for kind in all_kinds() for rental in rentals(kind.name)]
ASIA = re.compile(
    r"^(asia|ap-)|japan|korea|india|southeastasia|eastasia|australia|indonesia|malaysia|taiwan|newzealand"
)
BASE = {"aws": "us-east-1", "azure": "eastus"}


def off(cloud: str, *, kind: str | None = None) -> float:
    """The median discount of spot in per cent."""
    found = [
        1 - rental.spot / rental.on_demand
        for rental in RENTALS
        if rental.cloud == cloud and rental.spot is not None and kind in (None, rental.kind)
    ]
    return 100 * statistics.median(found)


@pytest.mark.parametrize(
    ("cloud", "told"), [("azure", 81.5), ("aws", 65), ("verda", 65), ("nebius", 59), ("gcp", 58), ("runpod", 0)]
)
def test_spot_by_cloud(cloud, told):
    assert off(cloud) == pytest.approx(told, abs=0.5)


@pytest.mark.parametrize(
    ("kind", "told"),
    [("H100-80GB", 69), ("L4", 57), ("V100-16GB", 50), ("A100-80GB", 31), ("H200-141GB", 14)],
)
def test_spot_of_one_cloud_by_gpu(kind, told):
    assert off("gcp", kind=kind) == pytest.approx(told, abs=0.7)
    assert f"{find(kind)[0].family if kind != 'A100-80GB' else kind} {told} %" in FLAT


def test_reservations():
    found = [1 - each.reserved_1y / each.on_demand for each in RENTALS if each.reserved_1y is not None]
    assert f"{len(found)} prices: {100 * statistics.median(found):.0f} % off at the median, from " in FLAT
    assert (round(100 * min(found)), round(100 * max(found))) == (30, 38)


@pytest.mark.parametrize(("cloud", "told"), [("aws", "1.34"), ("azure", "1.39")])
def test_asia_is_dearer(cloud, told):
    def instance(rental: Rental) -> tuple[str, str, bool]:
        return (rental.instance_type, rental.kind, rental.bare)

    of_cloud = [rental for rental in RENTALS if rental.cloud == cloud]
    base = {instance(rental): rental.on_demand for rental in of_cloud if rental.region == BASE[cloud]}
    ratios: dict[str, list[float]] = {}
    for rental in of_cloud:
        if ASIA.search(rental.region) and instance(rental) in base:
            ratios.setdefault(rental.kind, []).append(rental.on_demand / base[instance(rental)])
    assert min(min(each) for each in ratios.values()) >= 0.999
    assert f"{statistics.median(map(statistics.median, ratios.values())):.2f}" == told
    assert f"{told} times" in FLAT


def test_specifications():
    boards = {name: find(name)[0].typical for name in ("A100-80GB", "V100-16GB", "A10", "A10G", "T4")}
    a100, v100, a10, a10g, t4 = boards.values()
    assert a100 is not None
    assert (a100.shaders, a100.tensor_cores, a100.compute_units) == (6912, 432, 108)
    assert v100 is not None
    assert (a100.fp16_tensor_tflops or 0) / (v100.fp16_tensor_tflops or 1) == pytest.approx(2.5, abs=0.01)
    assert a10 is not None
    assert a10g is not None
    assert (a10g.fp16_tensor_tflops, a10.fp16_tensor_tflops) == (70, 125)
    assert t4 is not None
    assert t4.bf16 is False


def test_every_claim_of_the_table_has_its_evidence_below():
    anchors = re.findall(r"^\| \[[^]]+\]\(#([\w-]+)\)", TEXT, re.MULTILINE)
    headings = {
        re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-")
        for line in re.findall(r"^### (.+)$", TEXT, re.M)
    }
    assert set(anchors) == headings
    for section in TEXT.split("### ")[1:]:
        assert re.search(r"\*Sources?:\s", section), section[:40]
