"""Fitting training: tables of constants, what is left out, and how many results stand behind an architecture."""

import math

import pytest

from bench.advisor import training
from bench.advisor.training_cases import cases, finetunes
from cumulo.catalog.coefficients import coefficients
from tests.bench.advisor.rows import FINETUNE, ITERATION, THROUGHPUT, write


@pytest.fixture
def folder(tmp_path):
    """Measured on a machine of its own: all as the shipped constants say, but with products at half their rate."""
    rates = "dtype,gpu,achieved_tflops,peak_dense_tflops,efficiency,source\n"
    (tmp_path / "matmul_achieved_mamf.csv").write_text(rates + "bf16,A100-SXM4-80GB,271.2,312,0.869,a test\n")
    rows = [{**ITERATION, "hidden": str(hidden), "micro_batch": "4"} for hidden in (4096, 6144, 8192)]
    write(tmp_path, "megatron_iteration_times", *rows)
    held = coefficients()
    slow = training.with_constants(held, training.matmul_tables(tmp_path), {**START, SHARE: 0.45})
    for row, case in zip(rows, cases(tmp_path), strict=True):
        row["iter_ms"] = str(1000 * case.seconds * math.exp(training.residual(case, slow)))
    return write(tmp_path, "megatron_iteration_times", *rows)


START = {name: prior.start for name, prior in training.PRIORS.items()}
SHARE = "matmul_share"


def test_the_share_that_made_the_rows_is_found(folder):
    found = training.fitted(cases(folder), training.matmul_tables(folder), coefficients())
    assert found[SHARE] == pytest.approx(0.45, rel=0.1)
    assert found["matmul_own.Volta"] == pytest.approx(1.0, rel=1e-3)


def test_tables_have_what_stands_for_the_rest():
    found = training.nested({**START, "rate": 1.0, "by.a": 2.0, "by.b": 8.0, "set.a": 1.0, "set.other": 5.0})
    assert found["rate"] == 1.0
    assert found["by"] == {"a": 2.0, "b": 8.0, "other": 4.0}
    assert found["set"]["other"] == 5.0


def test_what_the_host_takes_for_an_operation_is_shared_by_all_software():
    found = training.nested({**START, "operation_seconds": 1e-4, "launch_own.eager": 1.1})
    launch = found["launch_seconds"]
    assert launch == pytest.approx({"megatron-2021": 2.4e-3, "eager": 4.4e-3, "other": 1.2e-3})
    assert (found["launch_routing_seconds"], found["launch_expert_seconds"]) == pytest.approx((2e-3, 3e-4))


def test_each_case_is_left_out_once(folder):
    found = training.left_out(cases(folder), training.FAMILIES["model"], folder)
    assert len(found) == 3


def test_products_of_boards_and_of_their_architecture(folder):
    assert training.matmul_tables(folder)["matmul_bf16"] == {"A100-SXM4-80GB": 0.869, "Ampere": 0.869, "other": 0.869}


def test_results_behind_an_architecture_are_counted(tmp_path):
    write(tmp_path, "llm_training_throughput", THROUGHPUT, THROUGHPUT)
    assert training.counted(cases(tmp_path)) == {"Hopper": 2}


def test_rules_that_people_reckon_with(tmp_path):
    (case,) = cases(write(tmp_path, "llm_training_throughput", THROUGHPUT))
    (row,) = training.targets(tmp_path)["training_dense"].rows
    tokens = case.plan.step_tokens
    by_parameters = 6 * case.plan.shape.parameters * tokens / (0.4 * 8 * 989.4e12)
    assert row.baselines["6ND at 40 % MFU"] == pytest.approx(by_parameters)
    assert row.refused is False


@pytest.mark.parametrize(
    ("told", "seconds"), [({"min_per_1k_iter": "2.4"}, 0.144), ({"tokens_per_s": "1304"}, 1.0), ({}, None)]
)
def test_fine_tuning_that_tells_a_rate(tmp_path, told, seconds):
    row = {**FINETUNE, "min_per_1k_iter": "", "tokens_per_s": "", **told}
    found = [case.seconds for case in finetunes(write(tmp_path, "finetune_memory_time", row))]
    assert found == ([] if seconds is None else [pytest.approx(seconds)])
