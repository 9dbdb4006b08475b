"""Advice over HTTP: this cloud's GPUs first, every answer as its description says, bad questions refused."""

import pytest

from cumulo.client import Client
from cumulo.client.answers.advice import Advice
from cumulo.client.endpoint import Endpoint
from cumulo.wire import api
from cumulo.wire.run_file import read_run_file, to_spec
from tests.server.test_runs import problem

TRAIN = {"model": "llama-2-7b", "method": "lora", "tokens": 1e8}


def advice(box, question, **limits):
    answer = box.ask("POST", "/v1/advice", {**question, "limits": limits})
    assert answer.status == 200, answer.json
    return api.Advice.model_validate(answer.json)


def test_this_cloud_s_gpus_come_first_and_rentals_beside_them(box):
    told = advice(box, {"train": TRAIN}, deadline_s=86400)
    own = [plan.own for plan in told.plans]
    assert own == sorted(own, reverse=True)
    assert told.own == 0
    assert told.plans[0].gpu == "A100-80GB"
    assert told.plans[0].emulated
    assert told.rented is not None
    assert told.recommended == told.rented  # what is emulated computes nothing
    assert "cheapest by the deadline" in told.plans[told.rented].marks
    assert told.reasoning
    assert told.prices.startswith("list prices of")
    assert told.confidence == 0.8


def test_what_launches_it_here_is_a_run_file_that_this_cloud_takes(box):
    told = advice(box, {"train": TRAIN})
    assert told.launch is not None
    spec = to_spec(read_run_file(told.launch))
    assert spec.ask.gpu is not None
    assert spec.ask.gpu.names == ("A100-80GB",)
    plan = box.ask("POST", "/v1/plans", {"run": told.launch})
    assert plan.json["satisfiable"]


def test_limits_are_kept(box):
    told = advice(box, {"train": TRAIN}, own="none", clouds=["aws"], gpu="A100,H100", purchases=["spot"], max_gpus=8)
    assert told.plans
    for plan in told.plans:
        assert plan.region.startswith("aws ")
        assert plan.gpu.startswith(("A100", "H100"))
        assert (plan.purchase, plan.own) == ("spot", False)
        assert plan.gpus <= 8


def test_a_budget_is_kept_by_what_is_marked(box):
    told = advice(box, {"train": TRAIN}, own="none", budget_usd=5)
    marked = [plan for plan in told.plans if plan.marks]
    assert marked
    assert all(plan.in_budget and plan.cost_usd and plan.cost_usd.high <= 5 for plan in marked)


def test_without_tokens_only_the_rate_is_told(box):
    told = advice(box, {"train": {"model": "llama-2-7b", "method": "lora"}}, own="none")
    assert all(plan.seconds is None and plan.cost_usd is None and plan.rate.expected > 0 for plan in told.plans)


def test_where_nothing_fits_the_answer_says_what_would(box):
    told = advice(box, {"train": {"model": "llama-3.1-405b", "tokens": 1e9}}, gpu="T4", max_gpus=8)
    assert (told.plans, told.recommended, told.launch) == ([], None, None)
    assert told.suggestions
    assert told.refused


def test_a_config_and_numbers_are_models_too(box):
    config = {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "intermediate_size": 11008, "vocab_size": 32000, "tie_word_embeddings": False, "max_position_embeddings": 4096,
    }  # fmt: skip
    numbers = {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000}
    by_name, by_config, by_numbers = (
        advice(box, {"train": {**which, "method": "lora", "tokens": 1e8}}, own="none").plans[0].seconds
        for which in ({"model": "llama-2-7b"}, {"config": config}, {"shape": numbers})
    )
    assert by_name == by_config == by_numbers


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        ({}, "invalid_request", "exactly one of"),
        ({"tain": {}}, "invalid_request", "did you mean 'train'"),
        ({"train": {"tokens": 1e9}}, "invalid_request", "give one of model"),
        ({"train": {**TRAIN, "config": {}}}, "invalid_request", "give one of model"),
        ({"train": {**TRAIN, "model": "lama-2-7b"}}, "invalid_request", "no model"),
        ({"train": {**TRAIN, "tokens": -1}}, "invalid_request", "train.tokens"),
        ({"train": {**TRAIN, "tokens": 0}}, "invalid_request", "train.tokens"),
        ({"train": {**TRAIN, "tokens": 1}}, "invalid_request", "tokens: 1 must be between"),
        ({"train": {**TRAIN, "tokens": "2B"}}, "invalid_request", "train.tokens"),
        ({"train": {**TRAIN, "seq": 10**9}}, "invalid_request", "seq"),
        ({"train": {**TRAIN, "seq": 100_000}}, "invalid_request", "longer than Llama-2-7B takes"),
        ({"train": {**TRAIN, "micro_batch": 64, "global_batch": 8}}, "invalid_request", "more than the global batch"),
        ({"train": {"config": {"num_hidden_layers": 3}}}, "invalid_request", "lacks hidden_size"),
        ({"train": {"config": {"num_hidden_layers": "a"}}}, "invalid_request", "whole number"),
        (
            {"train": {"shape": {"layers": 1, "hidden": 9, "heads": 2, "ffn": 9, "vocab": 9}}}, "invalid_request",
            "do not divide",
        ),
        ({"train": TRAIN, "limits": {"gpu": "H10"}}, "unknown_gpu", "no GPU 'H10'"),
        ({"train": TRAIN, "limits": {"gpu": "A100:::"}}, "invalid_ask", "gpu"),
        ({"train": TRAIN, "limits": {"gpu": "999GB.."}}, "invalid_ask", "so much memory"),
        ({"train": TRAIN, "limits": {"clouds": ["awz"]}}, "invalid_request", "no price list"),
        ({"train": TRAIN, "limits": {"deadline_s": 0}}, "invalid_request", "deadline_s"),
        ({"train": TRAIN, "limits": {"max_gpus": 20_000}}, "invalid_request", "max_gpus"),
    ],
)  # fmt: skip
def test_bad_questions_are_refused_with_the_reason(box, body, code, told):
    refused = problem(box.ask("POST", "/v1/advice", body), code, 422)
    assert told in refused.detail


def test_the_sdk_answers_alike(box):
    with Client(Endpoint(url=f"http://127.0.0.1:{box.port}", token=box.token)) as client:
        told = client.advise({"train": TRAIN})
    assert isinstance(told, Advice)
    asked = box.ask("POST", "/v1/advice", {"train": TRAIN}).json
    assert told.asked == asked["asked"]
    assert [plan.gpus for plan in told.plans] == [plan["gpus"] for plan in asked["plans"]]
    assert told.plans[0].seconds is not None
    assert told.plans[0].seconds.expected == asked["plans"][0]["seconds"]["expected"]
    assert told.launch == asked["launch"]
