"""Serving: what a person would expect of it whatever the constants are, and a few published results."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.advisor.serving import decode_rate, decode_step, latency, serving_rate, serving_spread
from cumulo.advisor.serving_memory import serving_memory
from cumulo.advisor.serving_plan import PRECISIONS, ServingPlan, ServingPrecision, precision_tflops, supports
from cumulo.advisor.topology import Cluster, typical_cluster
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import find
from cumulo.catalog.models import ModelShape, named_model
from cumulo.domain.quantities import GIB

LLAMA_8B = named_model("llama-3.1-8b")
LLAMA_70B = named_model("llama-3.3-70b")
QWEN_MOE = named_model("qwen3-30b-a3b")
CONSTANTS = coefficients()


def cluster(name: str, gpus: int = 1) -> Cluster:
    (kind,) = find(name)
    assert kind.typical
    return typical_cluster(kind.typical, kind.architecture, memory_bytes=kind.memory_bytes, gpus=gpus)


H100 = cluster("H100-80GB")


def rate(plan: ServingPlan, where: Cluster = H100, *, isl: int = 1000, osl: int = 1000, **more: float) -> float:
    found = serving_rate(plan, where, CONSTANTS, isl=isl, osl=osl, **more)
    assert found is not None
    return found.output_tokens_s.expected


def test_a_published_rate_is_met():
    """TensorRT-LLM 1.0 says 15,220 tokens/s of Llama 3.1 8B in FP8 on one H100, 1,000 tokens in and out."""
    found = serving_rate(ServingPlan(shape=LLAMA_8B, precision="fp8"), H100, CONSTANTS, isl=1000, osl=1000)
    assert found is not None
    assert found.output_tokens_s.expected == pytest.approx(15220, rel=0.15)
    assert found.output_tokens_s.low < found.output_tokens_s.expected < found.output_tokens_s.high


@given(st.integers(1, 8000), st.integers(1, 4000))
def test_longer_prompts_leave_fewer_tokens_for_answers(isl: int, osl: int):
    plan = ServingPlan(shape=LLAMA_8B, precision="fp8")
    assert rate(plan, isl=isl + 500, osl=osl) < rate(plan, isl=isl, osl=osl)


@given(st.integers(1, 200))
def test_users_wait_longer_the_more_there_are_and_together_get_more(users: int):
    plan = ServingPlan(shape=LLAMA_8B, precision="fp8")
    few = latency(plan, H100, CONSTANTS, isl=1000, osl=200, concurrency=users)
    more = latency(plan, H100, CONSTANTS, isl=1000, osl=200, concurrency=users + 20)
    assert few
    assert more
    assert more.ttft.expected > few.ttft.expected
    assert more.tpot.expected > few.tpot.expected
    assert more.output_tokens_s.expected > few.output_tokens_s.expected


def test_stages_of_a_pipeline_let_nobody_go_sooner():
    few, many = (ServingPlan(shape=LLAMA_70B, tp=4, pp=pp) for pp in (1, 4))
    where = cluster("H100-80GB", 16)
    alone, staged = (latency(plan, where, CONSTANTS, isl=2000, osl=200, concurrency=1) for plan in (few, many))
    assert alone is not None
    assert staged is not None
    assert staged.tpot.expected > 0.9 * alone.tpot.expected
    assert staged.ttft.expected == pytest.approx(alone.ttft.expected, rel=0.1)
    crowd, spread_out = (latency(plan, where, CONSTANTS, isl=2000, osl=200, concurrency=16) for plan in (few, many))
    assert crowd is not None
    assert spread_out is not None
    assert spread_out.tpot.expected < crowd.tpot.expected


def test_as_many_as_fit_at_once_is_the_most():
    plan = ServingPlan(shape=LLAMA_70B, precision="fp8", tp=2)
    where = cluster("H100-80GB", 2)
    limited = [rate(plan, where, concurrency=users) for users in (1, 8, 64)]
    assert limited == sorted(limited)
    assert rate(plan, where) > limited[-1]


def test_what_does_not_fit_or_cannot_be_multiplied_has_no_rate():
    assert serving_rate(ServingPlan(shape=LLAMA_70B), H100, CONSTANTS, isl=100, osl=100) is None
    on_a100 = ServingPlan(shape=LLAMA_8B, precision="fp8")
    assert serving_rate(on_a100, cluster("A100-80GB"), CONSTANTS, isl=100, osl=100) is None
    crowd = latency(ServingPlan(shape=LLAMA_8B), H100, CONSTANTS, isl=100_000, osl=100, concurrency=50)
    assert crowd is None


def test_boards_have_the_precisions_that_they_have():
    def held(name: str) -> set[str]:
        variant = cluster(name).variant
        return {precision for precision in PRECISIONS if supports(variant, precision)}

    assert held("V100-32GB") == {"fp16", "int4"}
    assert held("T4") == {"fp16", "int8", "int4"}
    assert held("A100-80GB") == {"bf16", "fp16", "int8", "int4"}
    assert held("H100-80GB") == {"bf16", "fp16", "fp8", "int8", "int4"}
    assert held("B200-180GB") == set(PRECISIONS)


def test_a_cache_is_as_large_as_its_heads_or_its_latent():
    plan = ServingPlan(shape=LLAMA_8B)
    assert plan.cache_bytes(1) == 2 * 2 * 32 * 8 * 128
    assert replace(plan, precision="fp8").cache_bytes(1) == plan.cache_bytes(1) / 2
    deepseek = ServingPlan(shape=named_model("deepseek-v3"), precision="fp8")
    assert deepseek.cache_bytes(1) == 61 * 576
    # Eight heads spread over eight GPUs but not over sixteen; a latent is on each.
    assert replace(plan, tp=8).cache_bytes(1) == plan.cache_bytes(1)
    assert replace(plan, tp=16).cache_bytes(1) == 2 * plan.cache_bytes(1)
    assert replace(deepseek, tp=8).cache_bytes(1) == 8 * deepseek.cache_bytes(1)


def test_memory_is_weights_and_cache_and_what_the_engine_leaves():
    memory = serving_memory(ServingPlan(shape=LLAMA_8B), H100, context=8192, sequences=10)
    assert memory.weights == pytest.approx(2 * 8.03e9, rel=0.01)
    assert memory.cache == 10 * 8192 * 131072
    assert memory.fits()
    assert not serving_memory(ServingPlan(shape=LLAMA_70B), H100, context=1).fits()
    assert serving_memory(ServingPlan(shape=LLAMA_70B, precision="int4"), H100, context=4096).fits()
    many = round(memory.sequences)
    assert serving_memory(ServingPlan(shape=LLAMA_8B), H100, context=8192, sequences=many - 1).fits()
    assert not serving_memory(ServingPlan(shape=LLAMA_8B), H100, context=8192, sequences=many + 1).fits()


def test_a_small_batch_reads_few_experts_and_a_large_one_all():
    plan, serving = ServingPlan(shape=QWEN_MOE, precision="fp8"), CONSTANTS.serving
    one, many = (decode_step(plan, H100, serving, batch=batch, context=1) for batch in (1, 1000))
    assert one.reading < many.reading / 5
    assert one.limit in ("memory bandwidth", "launch")


def test_tensor_parallel_costs_more_without_a_fabric():
    plan = ServingPlan(shape=LLAMA_70B, precision="int4", tp=4)
    fabric = decode_step(plan, cluster("A100-80GB", 4), CONSTANTS.serving, batch=64, context=1000)
    pcie = decode_step(plan, cluster("L40S", 4), CONSTANTS.serving, batch=64, context=1000)
    assert pcie.network > 5 * fabric.network > 0


def test_one_sequence_is_read_by_bandwidth():
    """llama.cpp in early 2024: 127.7 tokens/s of Llama 3 8B in Q4_K_M on an RTX 4090, 54.3 in 16 bits."""
    shape = named_model("llama-3-8b")
    quantised = ServingPlan(shape=shape, precision="int4", weight_bits=4.89, engine="llama.cpp (early 2024)")
    whole = ServingPlan(shape=shape, precision="fp16", engine="llama.cpp (early 2024)")
    where = cluster("RTX4090")
    small, large = decode_rate(quantised, where, CONSTANTS), decode_rate(whole, where, CONSTANTS)
    assert small
    assert large
    assert small.expected == pytest.approx(127.7, rel=0.1)
    assert large.expected == pytest.approx(54.3, rel=0.1)
    piped = decode_rate(replace(whole, pp=4), replace(where, gpus=4), CONSTANTS)
    assert piped
    assert piped.expected < large.expected
    unknown = replace(where, variant=replace(where.variant, boost_mhz=None))
    assert decode_rate(whole, unknown, CONSTANTS) is None


def test_what_is_new_has_a_wider_range():
    known = ServingPlan(shape=LLAMA_8B, precision="fp8")
    widths = [
        serving_spread(plan, where, CONSTANTS.serving).high
        for plan, where in (
            (known, H100),
            (replace(known, shape=named_model("gemma-2-9b")), H100),
            (replace(known, shape=named_model("gemma-2-9b")), cluster("L40S")),
            (replace(known, shape=named_model("gemma-2-9b"), engine="vllm"), cluster("L40S")),
        )
    ]
    assert widths == sorted(set(widths))


def test_memory_there_is_counted_in_the_engines_share():
    tight = replace(H100, memory_bytes=24 * GIB)
    assert rate(ServingPlan(shape=LLAMA_8B), tight) < rate(ServingPlan(shape=LLAMA_8B), H100)


@given(
    st.sampled_from(["A100-80GB", "H100-80GB", "H200", "B200", "L40S", "A10G", "RTX4090"]),
    st.sampled_from([LLAMA_8B, LLAMA_70B, QWEN_MOE, named_model("qwen3-32b")]),
    st.sampled_from(["bf16", "fp8", "int4"]),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(64, 16_000),
    st.integers(16, 2_000),
)
def test_one_user_waits_no_less_than_physics_asks_and_no_more_than_ten_times_that(
    board: str, model: ModelShape, precision: ServingPrecision, tp: int, isl: int, osl: int
):
    """No published row tells latencies: they are held between what whole rates allow, and ten times that."""
    where, plan = cluster(board, tp), ServingPlan(shape=model, precision=precision, tp=tp)
    found = latency(plan, where, CONSTANTS, isl=isl, osl=osl, concurrency=1)
    if found is None:
        return
    variant = where.variant
    peak = max(variant.fp16_tensor_tflops or 0, precision_tflops(variant, precision) or 0) * 1e12 * tp
    active = model.active_parameters - model.vocab * model.hidden
    prompt = 2 * active * isl / peak
    weights = plan.read_bytes * (model.active_parameters / model.parameters)
    token = weights / ((variant.memory_bandwidth or 0) * tp)
    hops = model.layers * 4 * 15e-6 + model.layers * 2 * 10e-6 * (tp > 1)
    sums = 4 * model.layers * model.hidden * isl / (where.fabric_bytes_s / 2) * 2 * (tp > 1)
    looked = 2 * model.layers * model.heads * model.head_dim * isl * isl / peak
    assert prompt < found.ttft.expected < 10 * (prompt + looked + token) + sums * 2 + 10 * hops
    assert token < found.tpot.expected < 10 * token + 10 * hops + found.ttft.expected / osl
