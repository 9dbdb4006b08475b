"""The shipped constants on the results they were fitted to: within the bars, far better than simple rules.

Results that were not seen are scored elsewhere; this catches constants and code that drift apart."""

from pathlib import Path

import pytest

from bench.advisor import memory, training, whole_runs
from bench.advisor.score import baseline_scores, score
from cumulo.catalog.coefficients import coefficients

FOLDER = Path(__file__).parents[4] / "shared" / "advisor" / "calibration"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the published results are not beside the repository")


@pytest.fixture(scope="module")
def targets():
    return training.targets(FOLDER) | memory.targets(FOLDER)


@pytest.mark.parametrize(
    ("name", "median", "ratio"), [("training_dense", 0.1, 1.5), ("training_moe", 0.2, 2), ("memory", 0.12, 2)]
)
def test_errors_ranges_and_refusals_are_within_the_bars(targets, name, median, ratio):
    found = score(targets[name].rows)
    assert found["median_ape"] <= median
    assert found["range_ratio"] <= ratio + 0.01
    assert found["inside_80"] >= 0.75
    assert found["refused"] <= 0.03


def test_a_single_node_is_as_good_as_many(targets):
    single = [row for row in targets["training_dense"].rows if row.source == "vtrain_single"]
    assert score(single)["median_ape"] <= 0.1


def test_simple_rules_are_beaten(targets):
    for target in targets.values():
        for rule in baseline_scores(target.rows).values():
            assert score(target.rows)["median_ape"] < rule["median_ape"] / 3


def test_suspect_rows_are_dropped_and_counted(targets):
    assert targets["memory"].dropped == 20


def test_what_ran_out_of_memory_was_mostly_foreseen():
    failed = [case for case in memory.cases(FOLDER) if case.out_of_memory]
    held = coefficients()
    missed = [case for case in failed if memory.needed(case, held).high < case.cluster.memory_bytes]
    assert len(missed) <= len(failed) / 4


def test_whole_runs_come_out_within_a_half():
    for row in whole_runs.targets(FOLDER)["llm_full_runs"].rows:
        assert abs(row.error) < 0.5
