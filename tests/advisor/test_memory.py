"""Memory: the closed forms of the papers, and what each measure saves."""

from dataclasses import replace

import pytest

from cumulo.advisor.memory import held_weights, host_bytes, inference_memory, training_memory
from cumulo.advisor.topology import typical_cluster
from cumulo.advisor.training_plan import TrainingPlan
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import find
from cumulo.catalog.models import named_model
from cumulo.domain.quantities import GIB

HELD = coefficients()
LLAMA = named_model("Llama-3.1-8B")
PLAN = TrainingPlan(shape=LLAMA, seq=4096, micro_batch=1, global_batch=8, dp=8)


def memory(plan, name="H100-80GB"):
    kind = find(name)[0]
    assert kind.typical
    where = typical_cluster(kind.typical, kind.architecture, memory_bytes=kind.memory_bytes, gpus=plan.gpus)
    return training_memory(plan, where, HELD)


def megatron(name, tp, pp, micro_batch, **changed):
    """A plan of arXiv:2205.05198, figure 1."""
    plan = TrainingPlan(
        shape=named_model(name), seq=2048, micro_batch=micro_batch, global_batch=micro_batch * pp, tp=tp, pp=pp,
        stack="megatron-2021",
    )  # fmt: skip
    return memory(replace(plan, **changed))


@pytest.mark.parametrize(
    ("name", "tp", "pp", "micro_batch", "none", "selective"),
    [
        ("megatron-22b", 8, 1, 4, 59.25, 9.5625),
        ("megatron-530b", 8, 35, 1, 105 * 1.0857421875, 105 * 0.212890625),
    ],
)
def test_activations_are_those_of_the_paper(name, tp, pp, micro_batch, none, selective):
    shape, width = named_model(name), 2048 * micro_batch
    kept = megatron(name, tp, pp, micro_batch).activations
    scores = 5 * shape.heads * 2048 / shape.hidden / tp
    assert kept == pytest.approx(shape.layers * width * shape.hidden * (10 + 24 / tp + scores))
    split = megatron(name, tp, pp, micro_batch, recompute="selective", sequence_parallel=True).activations
    assert split == pytest.approx(shape.layers * width * shape.hidden * 34 / tp)
    if pp == 1:
        assert kept / GIB == pytest.approx(none)
        assert split / GIB == pytest.approx(selective)


def test_adam_takes_18_bytes_a_parameter():
    found = memory(replace(PLAN, dp=1))
    assert found.weights + found.gradients + found.optimizer == 18 * LLAMA.parameters


@pytest.mark.parametrize(("sharding", "bytes_each"), [("zero1", 6 + 12 / 8), ("zero2", 2 + 16 / 8), ("zero3", 18 / 8)])
def test_sharding_spreads_what_its_stage_says(sharding, bytes_each):
    found = memory(replace(PLAN, sharding=sharding))
    assert found.weights + found.gradients + found.optimizer == pytest.approx(bytes_each * LLAMA.parameters)


def test_each_measure_saves_memory():
    again = replace(PLAN, recompute="full")
    plans = [PLAN, again, replace(again, method="lora"), replace(again, method="qlora")]
    need = [memory(plan).total.expected for plan in plans]
    assert need == sorted(need, reverse=True)


def test_mixed_precision_does_not_halve_memory():
    mixed, single = memory(PLAN), memory(replace(PLAN, precision="fp32"))
    assert 1.1 < single.activations / mixed.activations < 1.9
    assert single.total.expected < 1.3 * mixed.total.expected


def test_an_8b_model_is_not_trained_on_one_gpu_but_its_lora_is():
    assert not memory(replace(PLAN, dp=1)).fits()
    assert memory(replace(PLAN, dp=1, method="lora")).fits_surely()


def test_a_loss_in_chunks_keeps_a_quarter_of_the_logits():
    assert memory(replace(PLAN, chunked_loss=True)).logits == memory(PLAN).logits / 4


def test_what_fits_surely_fits_likely_and_fits():
    for seq in (1024, 8192, 16384, 32768, 65536):
        found = memory(replace(PLAN, sharding="zero3", seq=seq))
        assert found.fits_surely() <= found.fits_likely() <= found.fits()


def test_experts_are_spread_over_their_group():
    mixture = TrainingPlan(shape=named_model("Mixtral-8x7B"), dp=8, global_batch=8, sharding="zero1", stack="megatron")
    assert memory(replace(mixture, ep=8)).weights < memory(mixture).weights / 5


def test_four_bits_hold_layers_and_not_embeddings():
    shape = named_model("Llama-2-7B")
    assert held_weights(shape, "nf4") / 1e9 == pytest.approx(4.17, abs=0.05)
    assert held_weights(shape, "bf16") == 2 * shape.parameters


def test_generating_with_a_longer_context_needs_the_cache_of_it():
    short, long = (
        inference_memory(LLAMA, "bf16", context=context, coefficients=HELD).expected for context in (1000, 9000)
    )
    assert long - short == pytest.approx(2 * LLAMA.kv_values_per_token * 8000)


def test_states_on_the_host_leave_weights_and_gradients_on_the_gpu():
    plan = replace(PLAN, optimizer="adamw-host", dp=1, sharding="none")
    found = memory(plan)
    assert (found.weights, found.gradients, found.optimizer) == pytest.approx((*[2 * plan.shape.parameters] * 2, 0))
    assert host_bytes(plan) == 16 * plan.shape.parameters
    assert host_bytes(replace(plan, optimizer="adamw")) == 0
    assert host_bytes(replace(plan, dp=8, sharding="zero3")) == 2 * plan.shape.parameters
