"""The shipped constants of serving and of the laws on the results they were fitted to: within the bars.

Results that were not seen are scored elsewhere; this catches constants and code that drift apart."""

from pathlib import Path

import pytest

from bench.advisor import laws, serving
from bench.advisor.ranking import taus
from bench.advisor.score import score

FOLDER = Path(__file__).parents[4] / "shared" / "advisor" / "calibration"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the published results are not beside the repository")
BARS = {
    "serving_offline": 0.08,
    "decode_batch1": 0.08,
    "md": 0.12,
    "mlperf_training": 0.1,
    "mlperf_inference": 0.08,
    "hash": 0.12,
    "zk": 0.2,
}


@pytest.fixture(scope="module")
def targets():
    return serving.targets(FOLDER) | laws.targets(FOLDER)


@pytest.mark.parametrize("name", BARS)
def test_errors_and_ranges_are_within_the_bars(targets, name):
    found = score(targets[name].rows)
    assert found["median_ape"] <= BARS[name]
    assert found["range_ratio"] <= 2.01
    assert found["inside_80"] >= 0.75


def test_gpus_are_ordered_as_mlperf_orders_them():
    for name, pairs in taus(FOLDER).items():
        assert pairs.tau >= 0.85, name
