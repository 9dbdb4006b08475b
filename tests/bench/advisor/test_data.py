"""Rows become plans, clusters and shapes, whatever they leave out."""

import pytest

from bench.advisor import data, memory, training_cases
from bench.advisor.fit import BadData
from cumulo.advisor.training_plan import TrainingPlan
from cumulo.domain.quantities import GIB
from tests.bench.advisor.rows import FINETUNE, ITERATION, THROUGHPUT, write


@pytest.mark.parametrize(
    ("name", "variant", "gib"),
    [
        ("A100-SXM4-40GB", "A100-SXM4-40GB", 40),
        ("GB200", "GB200 (per GPU)", 186),
        ("H100-SXM-96GB-HBM2e-500W", "H100-SXM-96GB-HBM2e-500W", 96),
        ("8xH100", "H100-SXM5-80GB", 80),
        ("RTX 4090", "RTX 4090", 24),
    ],
)
def test_boards_under_the_names_that_tables_give_them(name, variant, gib):
    found = data.cluster(name, 8)
    assert (found.variant.name, found.memory_bytes) == (variant, gib * GIB)


def test_a_board_sold_with_other_memory_and_power_is_that_board():
    found = data.cluster("H100-SXM-96GB-HBM2e-500W", 8).variant
    assert (found.tdp_watts, found.memory_bandwidth) == (500, 2.4e12)


def test_boards_with_slower_links():
    assert data.cluster("H800-SXM5-80GB", 8).fabric_bytes_s == 200e9


def test_an_unknown_gpu_is_told_by_its_name():
    with pytest.raises(BadData, match="Abacus"):
        data.board("Abacus 3000")


def test_notes_tell_the_network():
    assert data.cluster("A100-SXM4-80GB", 16, "with 1600 Gbps node-node interconnect").nic_bytes_s == 25e9


def test_a_model_of_the_table_keeps_its_shape_there():
    assert data.shape(THROUGHPUT).gated
    assert data.shape({**THROUGHPUT, "layers": "", "hidden": ""}).layers == 32


def test_a_model_told_by_its_numbers_has_the_parameters_that_are_told():
    told = {**THROUGHPUT, "model": "Nobody-5B", "layers": "20", "params": "5e9"}
    assert data.shape(told).parameters == pytest.approx(5e9, rel=0.02)
    mixture = data.shape({**told, "model": "Nobody-50B", "params": "5e10", "moe_active": "5e9"})
    assert mixture.parameters == pytest.approx(5e10, rel=0.05)
    assert mixture.active_parameters == pytest.approx(5e9, rel=0.05)


def test_a_model_told_by_its_size_alone():
    told = {"model": "Somebody-13B", "params": "13e9", "source": "a test"}
    assert data.shape(told).parameters == pytest.approx(13e9, rel=0.2)
    with pytest.raises(BadData):
        data.shape({"model": "Somebody", "source": "a test"})


def test_a_row_of_throughput_is_a_plan_and_seconds(tmp_path):
    (case,) = training_cases.cases(write(tmp_path, "llm_training_throughput", THROUGHPUT))
    plan = case.plan
    assert (plan.dp, plan.sharding, plan.stack, plan.recompute) == (8, "zero3", "megatron", "none")
    assert case.seconds == pytest.approx(128 * 8192 / 11000 / 8)
    assert case.tuned


def test_a_row_that_tells_flops_and_no_micro_batch_is_completed(tmp_path):
    row = {**THROUGHPUT, "tokens_per_s_gpu": "", "model_tflops_gpu": "500", "micro_batch": "", "source_table": "other"}
    (case,) = training_cases.cases(write(tmp_path, "llm_training_throughput", row))
    assert case.plan.micro_batch >= 1
    assert case.seconds == pytest.approx(training_cases.model_flops(case.plan) / (500e12 * 8))


def test_a_measured_iteration_is_a_plan_of_its_time(tmp_path):
    (case,) = training_cases.cases(write(tmp_path, "megatron_iteration_times", ITERATION))
    assert case.plan.gpus == 8
    assert not case.plan.fused_attention
    assert case.seconds == 0.4


@pytest.mark.parametrize(
    ("method", "expected", "held"),
    [("lora", "lora", "bf16"), ("qlora-nf4-dq", "qlora", "nf4-dq"), ("adapter-q-nf4-v2", "adapter-v2", "nf4")],
)
def test_methods_of_fine_tuning(tmp_path, method, expected, held):
    (case,) = memory.cases(write(tmp_path, "finetune_memory_time", {**FINETUNE, "method": method}))
    assert isinstance(case.question, TrainingPlan)
    assert (case.question.method, case.question.held_as) == (expected, held)


def test_generating_and_running_out_of_memory(tmp_path):
    rows = [{**FINETUNE, "method": "inference-bnb.nf4"}, {**FINETUNE, "peak_mem_gb": "", "oom": "True"}]
    generated, failed = memory.cases(write(tmp_path, "finetune_memory_time", *rows))
    assert isinstance(generated.question, memory.Generation)
    assert generated.question.held_as == "nf4"
    assert failed.out_of_memory
    assert not failed.peak


def test_a_row_without_a_column_is_left_out_with_its_name(tmp_path, capsys):
    row = {name: text for name, text in THROUGHPUT.items() if name != "gpu"}
    assert training_cases.cases(write(tmp_path, "llm_training_throughput", row)) == []
    assert "'gpu'" in capsys.readouterr().err
