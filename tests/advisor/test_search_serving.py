"""Serving: what meets a latency, what fits, and what each precision changes."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.advisor.advise import Market, advise
from cumulo.advisor.plans import Estimate, Refusal
from cumulo.advisor.questions import Serve, Wanted
from cumulo.advisor.search import search
from cumulo.advisor.search_serving import ServingEstimator
from cumulo.advisor.supply import rented_supplies
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.models import named_model
from cumulo.domain.errors import CumuloError
from tests.advisor.supplies import supply


def serving(model="qwen3-32b", **options):
    values = {"shape": named_model(model), "context": 8192, "prompt": 6144, **options}
    return ServingEstimator(question=Serve(**values), coefficients=coefficients())


def estimate(asked, kind, gpus, **options):
    found = asked.estimate(supply(kind, **options), gpus)
    assert isinstance(found, Estimate), found
    return found


def figures(found):
    return {figure.name: figure.value for figure in found.figures}


def test_a_layout_counts_if_the_whole_range_meets_the_latency():
    free = figures(estimate(serving(users=40), "H200-141GB", 4))["each further token"]
    limit = (free.expected + free.high) / 2
    assert isinstance(serving(users=40, tpot_s=free.low / 4).estimate(supply("H200-141GB"), 4), Refusal)
    kept = estimate(serving(users=40, tpot_s=limit), "H200-141GB", 8)
    assert figures(kept)["each further token"].high <= limit


def test_what_is_too_slow_and_what_is_too_small_are_told_apart():
    slow = serving(users=40, ttft_s=0.001).estimate(supply("H100"), 8)
    small = serving(users=400).estimate(supply("L4", per_node=1), 1)
    assert isinstance(slow, Refusal)
    assert isinstance(small, Refusal)
    assert (slow.reason, small.reason) == ("latency", "memory")
    assert small.short_by > 0


def test_without_users_as_many_as_fit_are_served():
    found = estimate(serving("llama-3.1-8b"), "H100", 1)
    assert figures(found)["users at once"].expected > 10
    assert not found.demand
    assert found.memory is not None
    assert found.memory.expected <= supply("H100").memory_bytes


def test_each_precision_is_tried_and_the_fastest_counts():
    eight = estimate(serving("llama-3.1-8b", precisions=("bf16", "fp8")), "H100", 1)
    assert eight.settings["precision"] == "fp8"
    both = estimate(serving("llama-3.1-8b", precisions=("bf16",)), "H100", 1)
    assert eight.rate.expected > both.rate.expected
    four = estimate(serving("llama-3.1-8b", precisions=("int4",)), "L4", 1)
    assert any("quality" in note for note in four.notes)


def test_boards_without_a_precision():
    old = estimate(serving("llama-3.1-8b", users=1), "V100-32GB", 1)
    assert old.settings["precision"] == "fp16"
    assert any("no BF16" in note for note in old.notes)
    none = serving("llama-3.1-8b", precisions=("fp8",)).estimate(supply("A100-80GB"), 1)
    assert isinstance(none, Refusal)
    assert "FP8" in none.text


def test_a_model_larger_than_a_node_is_spread_over_nodes_that_join():
    found = estimate(serving("llama-3.1-405b", users=4), "A100-80GB", 16)
    assert (found.settings["tensor_parallel"], found.settings["pipeline_parallel"]) == (8, 2)
    apart = serving("llama-3.1-405b", users=4).estimate(supply("H100-94GB", per_node=2), 16)
    assert isinstance(apart, Refusal)


def test_replicas_work_apart():
    found = estimate(serving("llama-3.1-8b"), "L40S", 4)
    assert found.piece in (1, 2, 4)
    assert 4 % found.piece == 0


def test_there_are_no_more_replicas_than_users():
    found = serving("llama-3.2-1b", users=2).estimate(supply("L4", per_node=1), 4)
    assert isinstance(found, Refusal)
    assert "more replicas than users" in found.text


def test_pcie_is_told():
    found = estimate(serving("llama-3.1-70b", users=2), "L40S", 8)
    assert any("PCIe" in note for note in found.notes)


def test_the_cheapest_hour_counts_where_the_demand_is_met_and_the_cheapest_token_else():
    rented = Market(own=[], rented=rented_supplies())
    told = advise(serving("llama-3.1-8b", users=8), rented, Wanted(max_gpus=8))
    cheapest = next(plan for plan in told.plans if "cheapest" in plan.marks)
    assert cheapest.nano_h == min(plan.nano_h for plan in told.plans if plan.nano_h is not None)
    told = advise(serving("llama-3.1-8b"), rented, Wanted(max_gpus=8))
    cheapest = next(plan for plan in told.plans if "cheapest" in plan.marks)
    units = [plan.unit_cost.expected for plan in told.plans if plan.unit_cost is not None]
    assert cheapest.unit_cost is not None
    assert cheapest.unit_cost.expected == min(units)


def test_where_nothing_meets_it_what_would_is_told():
    told = advise(serving(users=40, tpot_s=0.0001), Market(own=[], rented=[supply("H100")]), Wanted(max_gpus=8))
    assert told.plans == ()
    assert any("no limit on latency" in line for line in told.suggestions)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"prompt": 8192}, "leaves no answer"),
        ({"context": 200_000, "prompt": 10}, "longer than Qwen3-32B takes"),
        ({"users": 0}, "users"),
    ],
)
def test_what_contradicts_itself_is_refused(options, told):
    with pytest.raises(CumuloError, match=told):
        serving(**options)


@pytest.mark.parametrize("model", ["qwen3-32b", "deepseek-v3"])
def test_all_gpus_and_numbers_are_searched_at_once(model):
    supplies = rented_supplies()
    began = time.process_time()
    found = search(serving(model, users=64, tpot_s=0.1), supplies, Wanted())
    assert time.process_time() - began < 3
    assert found.plans


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(["llama-3.1-8b", "gpt-oss-120b", "gemma-3-27b", "mixtral-8x7b"]),
    kind=st.sampled_from(["L4", "A100-80GB", "H200-141GB", "MI300X", "RTX4090"]),
    gpus=st.sampled_from([1, 2, 4, 8]),
    users=st.none() | st.integers(1, 500),
    context=st.sampled_from([1024, 8192]),
)
def test_what_is_advised_fits_and_is_a_range(model, kind, gpus, users, context):
    asked = serving(model, users=users, context=context, prompt=context // 2, precisions=("bf16", "fp8", "int4"))
    given_supply = supply(kind)
    found = asked.estimate(given_supply, gpus)
    if isinstance(found, Refusal):
        assert found.text
        return
    assert 0 < found.rate.low <= found.rate.expected <= found.rate.high
    assert found.memory is not None
    assert found.memory.expected <= given_supply.memory_bytes * 1.001
    assert gpus % found.piece == 0
    if users is not None:
        assert figures(found)["users at once"].expected >= users
