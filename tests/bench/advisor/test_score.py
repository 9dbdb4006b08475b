"""What rows of estimates come to."""

import json

import pytest

from bench.advisor.__main__ import main
from bench.advisor.score import Row, Target, as_text, baseline_scores, gpu_family, quantile, report, score
from cumulo.advisor.estimate import Range
from tests.bench.advisor.rows import FINETUNE, ITERATION, THROUGHPUT, write


def row(expected: float, actual: float, **more) -> Row:
    return Row(estimate=Range(expected * 0.8, expected, expected * 1.25), actual=actual, gpu="A100-SXM4-80GB", **more)


def test_errors_are_fractions_of_what_was_measured():
    found = score([row(90, 100), row(120, 100), row(200, 100)], dropped=3)
    assert (found["n"], found["dropped"]) == (3, 3)
    assert found["mape"] == pytest.approx((0.1 + 0.2 + 1.0) / 3)
    assert found["median_ape"] == pytest.approx(0.2)
    assert found["bias"] == pytest.approx((-0.1 + 0.2 + 1.0) / 3)
    assert found["inside_80"] == pytest.approx(2 / 3)
    assert found["range_ratio"] == pytest.approx(1.25 / 0.8)
    assert "refused" not in found


def test_what_ran_and_was_called_impossible_is_counted():
    assert score([row(1, 1, refused=True), row(1, 1, refused=False), row(1, 1)])["refused"] == 0.5


def test_quantiles_are_linear_between_neighbours():
    assert [quantile([4, 1, 3, 2], share) for share in (0, 0.5, 0.9, 1)] == pytest.approx([1, 2.5, 3.7, 4])


def test_simple_rules_stand_beside():
    found = baseline_scores([row(1, 2, baselines={"rule": 1.0}), row(1, 2, baselines={"rule": 3.0}), row(1, 2)])
    assert found["rule"] == {"n": 2, "mape": 0.5, "median_ape": 0.5, "bias": 0.0}


def test_families_are_the_catalogue_s():
    assert gpu_family("A100-SXM4-80GB") == gpu_family("A100-PCIe-40GB") == "A100"
    assert gpu_family("Abacus-3000") == "Abacus-3000"


def test_a_report_has_every_target_and_no_empty_one():
    found = report({"time": Target([row(1, 1)], 2), "nothing": Target([])})
    assert found["targets"]["time"]["dropped"] == 2
    assert list(found["targets"]) == list(found["families"]) == ["time"]
    assert "A100" in as_text(found)


def test_a_check_stands_apart():
    found = report({"time": Target([row(1, 1)]), "far": Target([row(1, 1)], check=True)})
    assert (list(found["targets"]), list(found["checks"])) == (["time"], ["far"])
    assert "far (check)" in as_text(found)


def test_a_folder_is_scored_and_files_that_it_lacks_are_skipped(tmp_path, capsys):
    write(tmp_path, "megatron_iteration_times", ITERATION)
    write(tmp_path, "finetune_memory_time", FINETUNE, {**FINETUNE, "suspect": "typing error"})
    assert main([str(tmp_path), "--json", "--only", "training", "memory"]) == 0
    targets = json.loads(capsys.readouterr().out)["targets"]
    assert set(targets) == {"training_dense", "memory"}
    assert targets["memory"]["n"] == targets["memory"]["dropped"] == 1


def test_a_row_that_cannot_be_read_does_not_stop_the_others(tmp_path, capsys):
    write(tmp_path, "llm_training_throughput", THROUGHPUT, {**THROUGHPUT, "gpu": "Abacus"})
    assert main([str(tmp_path), "--json", "--only", "training"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["targets"]["training_dense"]["n"] == 1
    assert "Abacus" in captured.err


@pytest.mark.parametrize(
    "words", [["/nowhere/at/all"], ["fit", "cooking", "--data", "."], ["fit", "--data", "/nowhere"]]
)
def test_bad_arguments_are_told_in_a_line(words, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")
