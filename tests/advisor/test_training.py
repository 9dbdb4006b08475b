"""The time of a step: what it is made of, and how it answers to more hardware and more work."""

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.advisor.topology import typical_cluster
from cumulo.advisor.training import TrainingPlan, step_time
from cumulo.advisor.training_layers import share_of_best
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import all_kinds, find
from cumulo.catalog.models import named_model
from cumulo.domain.errors import CumuloError

HELD = coefficients()
PLAN = TrainingPlan(shape=named_model("Llama-3.1-8B"), seq=4096, global_batch=64, sharding="zero3", dp=8)
MIXTURE = replace(PLAN, shape=named_model("Qwen3-30B-A3B"), stack="megatron", sharding="zero1", ep=8)


def cluster(name="H100-80GB", gpus=8):
    kind = find(name)[0]
    assert kind.typical
    return typical_cluster(kind.typical, kind.architecture, memory_bytes=kind.memory_bytes, gpus=gpus)


def seconds(plan, name="H100-80GB"):
    return step_time(plan, cluster(name, plan.gpus), HELD).total.expected


@pytest.mark.parametrize("plan", [PLAN, MIXTURE, replace(PLAN, tp=2, pp=2, dp=2, sharding="none", stack="megatron")])
def test_parts_sum_to_the_total(plan):
    found = step_time(plan, cluster(gpus=plan.gpus), HELD)
    parts = [getattr(found, field.name) for field in fields(found) if field.name != "total"]
    assert sum(parts) == pytest.approx(found.total.expected)
    assert all(part >= 0 for part in parts)


def test_a_faster_gpu_takes_less_time():
    assert seconds(PLAN, "B200") < seconds(PLAN, "H100-80GB") < seconds(PLAN, "A100-80GB")


@pytest.mark.parametrize(
    ("better", "than"), [("RTX5090", "RTX4090"), ("L40S", "L40"), ("A100-80GB", "A40"), ("H200", "H100-80GB")]
)
def test_boards_of_a_line_keep_their_order(better, than):
    plan = replace(PLAN, dp=1, method="lora", sharding="none", stack="eager")
    assert seconds(plan, better) < seconds(plan, than)


def test_a_board_held_to_few_watts_reaches_less_of_its_peak():
    plan = replace(PLAN, dp=1, method="lora", sharding="none", stack="eager")
    assert seconds(plan, "L4") / seconds(plan, "RTX4090") > 1.3 * 165.2 / 121  # their peaks


def test_a_rate_that_nobody_knows_is_not_invented():
    with pytest.raises(CumuloError, match="no FP32 rate of Gaudi2 is known"):
        seconds(replace(PLAN, precision="fp32"), "Gaudi2")


def test_twice_the_batch_takes_nearly_twice_the_time():
    assert seconds(replace(PLAN, global_batch=128)) == pytest.approx(2 * seconds(PLAN), rel=0.1)


def test_gpus_whose_batch_does_not_come_out_even_wait_for_the_others():
    assert seconds(replace(PLAN, global_batch=65)) == pytest.approx(seconds(replace(PLAN, global_batch=72)))


def test_the_faster_the_tensor_cores_the_less_of_their_rate_is_reached():
    kinds = [find(name)[0] for name in ("A100-80GB", "H100", "B200")]
    boards = [(kind.typical, kind.architecture) for kind in kinds]
    for work in ("matmul", "attention"):
        shares = [share_of_best(work, board, name, HELD.training) for board, name in boards if board]
        assert shares == sorted(shares, reverse=True)
        assert all(0 < share < 1.2 for share in shares)


def test_a_gpu_that_holds_many_experts_adds_up_many_gradients():
    few, many = replace(MIXTURE, micro_batch=1), replace(MIXTURE, micro_batch=1, ep=1)
    spent = [step_time(plan, cluster(), HELD).elementwise for plan in (few, many)]
    assert spent[1] > 1.2 * spent[0]
    lora = replace(MIXTURE, method="lora", ep=1)
    assert step_time(lora, cluster(), HELD).elementwise < spent[1]


def test_a_gpu_that_holds_many_experts_launches_many_kernels():
    few, many = replace(MIXTURE, micro_batch=1), replace(MIXTURE, micro_batch=1, ep=2)
    spent = [step_time(plan, cluster(), HELD).launch for plan in (few, many)]
    assert spent[1] > 1.5 * spent[0]


def test_newer_attention_kernels_gain_where_the_board_has_what_they_use():
    newer, older = replace(PLAN, dp=8, sharding="zero1", stack="megatron"), replace(PLAN, sharding="zero1")
    for name, gains in (("A100-80GB", False), ("H100-80GB", True), ("B300", True)):
        one, other = (step_time(plan, cluster(name), HELD).attention for plan in (newer, older))
        assert (one < 0.7 * other) is gains


def test_states_on_the_host_cost_what_crosses_and_what_the_cpu_updates():
    kept = replace(PLAN, dp=1, sharding="none", optimizer="adamw-host")
    here, there = (
        step_time(replace(kept, optimizer="adamw"), cluster(gpus=1), HELD),
        step_time(kept, cluster(gpus=1), HELD),
    )
    assert here.host == 0 == there.optimizer
    share = HELD.training.number("memory_share")
    parameters = kept.shape.parameters
    assert there.host == pytest.approx(parameters * (4 / 63.04e9 + 30 / (614e9 / 8)) / share)
    assert there.total.expected - here.total.expected == pytest.approx(there.host - here.optimizer)
    assert there.total.ratio > 1.9  # nothing was measured
    assert step_time(kept, cluster("GH200-96GB", 1), HELD).host < there.host / 5


def test_a_step_that_waits_for_the_host_says_so():
    plan = replace(PLAN, dp=1, sharding="none", optimizer="adamw-host", global_batch=1)
    assert step_time(plan, cluster(gpus=1), HELD).limit == "host memory"


def test_computing_again_costs_about_a_third():
    assert 1.2 < seconds(replace(PLAN, recompute="full")) / seconds(PLAN) < 1.4


def test_lora_takes_less_than_training_all():
    assert 0.6 < seconds(replace(PLAN, method="lora")) / seconds(PLAN) < 0.8


def test_fp8_helps_where_the_board_has_it():
    assert seconds(replace(PLAN, precision="fp8")) < seconds(PLAN)
    assert seconds(replace(PLAN, precision="fp8"), "A100-80GB") == pytest.approx(seconds(PLAN, "A100-80GB"))


def test_a_mixture_costs_what_is_active_and_not_what_is_there():
    dense = replace(MIXTURE, shape=named_model("Qwen3-32B"), ep=1)
    assert seconds(MIXTURE) < seconds(dense) / 2


def test_tensor_parallelism_over_pcie_is_bound_by_the_network():
    plan = replace(PLAN, tp=8, dp=1, sharding="none", stack="megatron", micro_batch=4)
    assert step_time(plan, cluster("L40S"), HELD).limit == "network"
    assert step_time(PLAN, cluster(), HELD).limit == "compute"


def test_a_tiny_model_is_bound_by_launching():
    plan = replace(PLAN, shape=named_model("GPT-2"), seq=256, dp=1, global_batch=64, sharding="none")
    assert step_time(plan, cluster(gpus=1), HELD).limit == "launch overhead"


def test_few_micro_batches_make_a_pipeline_wait():
    plan = replace(PLAN, pp=8, dp=1, sharding="none", stack="megatron", global_batch=8)
    few, many = (step_time(replace(plan, global_batch=size), cluster(), HELD) for size in (8, 128))
    assert few.pipeline / few.total.expected > 3 * many.pipeline / many.total.expected


def test_a_range_is_wider_for_gpus_that_nothing_was_measured_on():
    seen, *unseen = (step_time(PLAN, cluster(name), HELD).total for name in ("H200", "MI300X", "RTX3090", "L40S"))
    assert all(each.ratio > seen.ratio for each in unseen)


@settings(max_examples=60)
@given(
    kind=st.sampled_from([kind for kind in all_kinds() if kind.typical]),
    model=st.sampled_from(["GPT-2", "Llama-3.1-8B", "DeepSeek-V3"]),
    plan=st.fixed_dictionaries(
        {
            "tp": st.sampled_from([1, 2, 8, 16]),
            "pp": st.sampled_from([1, 4]),
            "dp": st.sampled_from([1, 8, 64]),
            "micro_batch": st.sampled_from([1, 4]),
            "precision": st.sampled_from(["bf16", "fp8", "fp4"]),
            "method": st.sampled_from(["full", "lora", "qlora"]),
            "sharding": st.sampled_from(["none", "zero1", "zero3"]),
        }
    ),
)
def test_every_gpu_and_plan_has_a_finite_time(kind, model, plan):
    asked = TrainingPlan(shape=named_model(model), global_batch=256, **plan)
    where = typical_cluster(kind.typical, kind.architecture, memory_bytes=kind.memory_bytes, gpus=asked.gpus)
    found = step_time(asked, where, HELD).total
    assert 0 < found.low <= found.expected <= found.high < float("inf")
