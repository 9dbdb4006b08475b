"""Advice over HTTP: this cloud's GPUs first, every answer as its description says, bad questions refused."""

import subprocess
import sys

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


def test_a_server_that_nobody_asks_does_not_import_the_advisor():
    script = "import sys, cumulo.server.app; print(any(name.startswith('cumulo.advisor') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


def test_the_run_file_that_was_advised_is_read_as_the_same_question(box):
    told = advice(box, {"train": {**TRAIN, "seq": 2048}})
    assert told.launch is not None
    assert told.launch["envs"]["TOKENS"] == 10**8
    again = advice(box, {"run": told.launch})
    assert again.asked == told.asked
    assert again.plans[0].seconds == told.plans[0].seconds


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


@pytest.mark.parametrize(
    ("question", "asked", "unit"),
    [
        ({"serve": {"model": "qwen3-32b", "context": 8192, "users": 9, "tpot_s": 0.1}}, "9 users at once", "tokens/s"),
        ({"serve": {"model": "llama-3.1-8b", "precisions": ["fp8", "int4"]}}, "serving Llama", "tokens/s"),
        ({"vision": {"model": "yolov7", "images": 5e6, "epochs": 100}}, "YOLOv7", "images/s"),
        ({"hpc": {"code": "gromacs", "atoms": 1.4e6, "ns": 100}}, "GROMACS", "ns/s"),
        ({"hpc": {"precision": "fp64", "flops": 1e18}}, "FP64", "operations/s"),
        ({"render": {"frames": 300, "samples": 1024}}, "Cycles, 300 frames", "frames/s"),
        ({"render": {"frames": 3, "frame_s": 90.0, "measured_on": "RTX4090"}}, "cycles, 3 frames", "frames/s"),
        ({"prove": {"system": "groth16", "constraints": 2.0**24}}, "Groth16", "proofs/s"),
        ({"prove": {"system": "risc0", "cycles": 1e6, "proofs": 100}}, "RISC Zero", "proofs/s"),
        ({"hash": {}}, "ethash", "hashes/s"),
        ({"run": {"name": "sim", "run": "./solve", "gpu": "A100:2", "max_duration": "12h"}}, "sim: 2 GPUs", "hours/s"),
        (
            {"run": {"run": "python train.py --model meta-llama/Llama-2-7b-hf --lora", "workdir": "."}},
            "LoRA fine-tuning of Llama-2-7B", "tokens/s",
        ),
        ({"run": {"run": "vllm serve $MODEL", "env": {"MODEL": "Qwen/Qwen3-8B"}}}, "serving Qwen3-8B", "tokens/s"),
    ],
)  # fmt: skip
def test_every_kind_of_work_is_answered_and_can_be_launched_here(box, question, asked, unit):
    told = advice(box, question)
    assert asked in told.asked
    assert {plan.unit for plan in told.plans} == {unit}
    assert told.own is not None
    assert told.rented is not None
    assert told.launch is not None
    plan = box.ask("POST", "/v1/plans", {"run": told.launch})
    assert plan.status == 200, plan.json
    assert plan.json["satisfiable"], plan.json


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"serve": {"model": "qwen3-32b", "context": 8192, "prompt": 8192}}, "leaves no answer"),
        ({"serve": {"model": "qwen3-32b", "precisions": []}}, "precisions"),
        ({"serve": {"model": "qwen3-32b", "precisions": ["bf8"]}}, "precisions"),
        ({"vision": {"model": "yolo99", "images": 1.0}}, "no vision network"),
        ({"hpc": {}}, "give a code"),
        ({"hpc": {"code": "gromacs"}}, "atoms are missing"),
        ({"hpc": {"code": "gromacs", "atoms": 1e6, "precision": "fp64"}}, "contradict"),
        ({"hpc": {"precision": "fp64", "ns": 1.0}}, "say nothing without a code"),
        ({"hpc": {"code": "gromax", "atoms": 1e6}}, "no results of"),
        ({"render": {"engine": "octane"}}, "no results of"),
        ({"render": {"frame_s": 3.0}}, "together"),
        ({"render": {"frame_s": 3.0, "measured_on": "RTX9090"}}, "no GPU"),
        ({"prove": {"system": "groth16"}}, "constraints"),
        ({"hash": {"algorithm": "rot13"}}, "no results of hashing"),
        ({"run": {"run": "echo hi"}}, "asks for no GPU"),
        ({"run": {"run": "x", "gpu": "A100:0"}}, "at least 1 GPU"),
        ({"hash": {}, "prove": {"system": "risc0"}}, "exactly one of"),
    ],
)  # fmt: skip
def test_bad_questions_of_every_kind_are_refused(box, body, told):
    answer = box.ask("POST", "/v1/advice", body)
    assert answer.status == 422, answer.json
    assert told in answer.json["detail"]
