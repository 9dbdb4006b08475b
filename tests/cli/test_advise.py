"""`cumulo advise`: what is sent for what is typed, and how the answer reads."""

import json

import click
import pytest
import yaml

from cumulo.cli.advise_amounts import AMOUNT, TIME, TOKENS, WHOLE
from cumulo.cli.advise_table import money, number, span, table
from cumulo.client.answers.advice import Advice, Interval
from cumulo.client.decode import decode
from tests.client.stub import Reply, problem

PLAN = {
    "gpu": "H100-80GB", "gpus": 2, "nodes": 1, "gpus_per_node": 2, "own": False, "region": "aws us-east-1",
    "instance_type": "p5.4xlarge", "mode": "exclusive", "profile": None, "emulated": False, "free": None,
    "purchase": "on-demand", "price_usd_h": 8.0, "price_date": "2026-01-21", "rental_usd_h": None,
    "layout": "DDP 2, micro-batch 2", "memory_need_gb": {"low": 40.0, "expected": 50.4, "high": 60.0},
    "memory_gb": 80.0, "seconds": {"low": 6000.0, "expected": 7200.0, "high": 9000.0},
    "cost_usd": {"low": 13.3, "expected": 16.0, "high": 20.0}, "rate": {"low": 1e4, "expected": 1.2e4, "high": 1.4e4},
    "unit": "tokens/s", "unit_cost_usd": {"low": 0.1, "expected": 0.18, "high": 0.2}, "limit": "compute",
    "figures": [], "marks": ["cheapest"], "notes": [], "in_time": True, "in_budget": True,
}  # fmt: skip
OWN = PLAN | {
    "own": True, "gpu": "A100-80GB", "region": "local", "price_usd_h": 0.0, "rental_usd_h": 4.2, "free": 1,
    "cost_usd": {"low": 0.0, "expected": 0.0, "high": 0.0}, "marks": ["fastest"], "in_time": False,
}  # fmt: skip
ADVICE = {
    "asked": "LoRA fine-tuning of Evil\x1b[2J", "confidence": 0.8, "recommended": 1, "own": 0, "rented": 1,
    "plans": [OWN, PLAN], "considered": 120, "reasoning": ["2 x H100-80GB: the cheapest.", "Cost: much."],
    "warnings": ["beware"], "assumed": ["a batch"], "refused": ["T4 has no BF16"], "suggestions": [],
    "prices": "list prices of aws (2026-01-21)", "per": 1e6,
    "launch": {"name": "lora", "resources": {"accelerators": "A100-80GB:2"}, "run": "python train.py"},
}  # fmt: skip
NOTHING = ADVICE | {
    "plans": [], "recommended": None, "own": None, "rented": None, "launch": None, "reasoning": [], "warnings": [],
    "suggestions": ["QLoRA (4-bit weights): then 1 x L4 would do"],
}  # fmt: skip
TRAIN = ("advise", "train", "--model", "llama-2-7b")


def sent(stub):
    return stub.seen("POST", "/v1/advice")[0].json


def test_what_is_typed_is_sent_in_plain_numbers(cumulo, stub):
    stub.on("POST", "/v1/advice", Reply(ADVICE))
    cumulo.ok(
        *TRAIN, "--method", "lora", "--tokens", "2B", "--seq", "4k", "--deadline", "24h", "--budget", "50", "--gpu",
        "A100,H100", "--cloud", "aws", "--cloud", "gcp", "--purchase", "spot", "--max-gpus", "8", "--rank", "8",
    )  # fmt: skip
    assert sent(stub) == {
        "train": {"model": "llama-2-7b", "method": "lora", "tokens": 2e9, "seq": 4096, "rank": 8},
        "limits": {
            "deadline_s": 86400.0, "budget_usd": 50.0, "gpu": "A100,H100", "max_gpus": 8, "clouds": ["aws", "gcp"],
            "purchases": ["spot"], "own": "first",
        },
        "limit": 6,
    }  # fmt: skip


def test_a_config_json_and_numbers_are_sent_as_such(cumulo, stub, tmp_path):
    stub.on("POST", "/v1/advice", Reply(ADVICE))
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2}')
    cumulo.ok("advise", "train", "--model", str(tmp_path / "config.json"))
    assert sent(stub)["train"]["config"] == {"num_hidden_layers": 2}
    cumulo.ok("advise", "train", "--shape", "layers=32,hidden=4096,tied=true")
    assert stub.seen("POST", "/v1/advice")[1].json["train"]["shape"] == {"layers": 32, "hidden": 4096, "tied": True}


def test_the_answer_comes_first_then_the_table_then_why(cumulo, stub):
    stub.on("POST", "/v1/advice", Reply(ADVICE))
    lines = cumulo.ok(*TRAIN).splitlines()
    assert lines[0] == "LoRA fine-tuning of Evil?[2J"
    assert lines[2] == "Yours  2 x A100-80GB on-demand here: 2 h (1.67-2.5), too late, $0, rents for about $4.20/h"
    assert lines[3] == "Rent   2 x H100-80GB on-demand at aws us-east-1: 2 h (1.67-2.5), $16 (13.3-20)"
    assert lines[4] == "warning: beware"
    assert lines[6].split() == [
        "GPUS",
        "LAYOUT",
        "GB",
        "EACH",
        "TIME",
        "COST",
        "BOUGHT",
        "WHERE",
        "LIMIT",
        "BEST",
        "AT",
    ]
    assert "capacity: 1 free now" in lines[7]
    assert lines[8].startswith("*  2 x H100-80GB")
    assert "50 of 80" in lines[8]
    text = "\n".join(lines)
    for told in ("Cost: much.", "80 times in 100", "120 plans", "a batch", "T4 has no BF16", "list prices of aws"):
        assert told in text


def test_work_without_an_end_is_priced_by_the_hour(cumulo, stub):
    endless = ADVICE | {"plans": [plan | {"seconds": None, "cost_usd": None} for plan in (OWN, PLAN)]}
    stub.on("POST", "/v1/advice", Reply(endless))
    text = cumulo.ok(*TRAIN)
    assert "COST/H" in text
    assert "A MILLION TOKENS" in text
    assert "$0.18 (0.1-0.2)" in text


def test_json_is_the_api_s_answer(cumulo, stub):
    stub.on("POST", "/v1/advice", Reply(ADVICE))
    assert json.loads(cumulo.ok(*TRAIN, "--json")) == ADVICE


def test_nothing_fits_is_exit_4_with_what_would_do(cumulo, stub, tmp_path):
    stub.on("POST", "/v1/advice", Reply(NOTHING))
    done = cumulo(*TRAIN)
    assert done.returncode == 4
    assert done.stderr == b"error: nothing fits\nhint: QLoRA (4-bit weights): then 1 x L4 would do\n"
    assert b"QLoRA (4-bit weights): then 1 x L4 would do" in done.stdout
    done = cumulo(*TRAIN, "-o", str(tmp_path / "task.yaml"))
    assert b"no plan to write" in done.stderr
    assert not (tmp_path / "task.yaml").exists()


def test_the_run_file_is_written(cumulo, stub, tmp_path):
    stub.on("POST", "/v1/advice", Reply(ADVICE))
    done = cumulo(*TRAIN, "-o", str(tmp_path / "task.yaml"))
    assert b"cumulo launch" in done.stderr
    text = (tmp_path / "task.yaml").read_text()
    assert text.startswith("# LoRA fine-tuning of Evil?[2J\n# 2 x A100-80GB: DDP 2, micro-batch 2\n")
    assert yaml.safe_load(text) == ADVICE["launch"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("advise", "trian"), "did you mean 'train'"),
        (("advise", "train"), "say which model"),
        (("advise", "train", "--model", "x", "--shape", "layers=1"), "say which model"),
        (("advise", "train", "--shape", "layers"), "not NAME=NUMBER"),
        ((*TRAIN, "--tokens", "-5"), "-5: must be more than nothing"),
        ((*TRAIN, "--tokens", "0"), "more than nothing"),
        ((*TRAIN, "--tokens", "1e30"), "less than 1e19"),
        ((*TRAIN, "--seq", "0.5"), "whole number"),
        ((*TRAIN, "--deadline", "soon"), "is not a duration"),
        ((*TRAIN, "--max-gpus", "0"), "--max-gpus"),
        ((*TRAIN, "--method", "magic"), "--method"),
    ],
)
def test_what_is_mistyped_is_told_in_a_line_and_exit_2(cumulo, stub, words, told):
    done = cumulo(*words)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr.decode()
    assert stub.requests == []


def test_a_broken_config_json_is_told(cumulo, tmp_path):
    (tmp_path / "config.json").write_text("{")
    done = cumulo("advise", "train", "--model", str(tmp_path / "config.json"))
    assert (done.returncode, b"not valid JSON" in done.stderr) == (2, True)
    (tmp_path / "config.json").write_text("[1]")
    done = cumulo("advise", "train", "--model", str(tmp_path / "config.json"))
    assert (done.returncode, b"is a mapping" in done.stderr) == (2, True)


def test_the_server_s_refusal_is_exit_2(cumulo, stub):
    stub.on("POST", "/v1/advice", problem("invalid_request", 422, "no model 'x' is known", hint="did you mean y?"))
    done = cumulo(*TRAIN)
    assert done.returncode == 2
    assert done.stderr.decode() == "error: no model 'x' is known\nhint: did you mean y?\n"


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        (AMOUNT, "2B", 2e9), (AMOUNT, "1.4M", 1.4e6), (AMOUNT, "15T", 1.5e13), (AMOUNT, "5e9", 5e9),
        (AMOUNT, "2^24", 2**24), (AMOUNT, "1,000", 1000), (WHOLE, "300", 300), (TOKENS, "8k", 8192),
        (TOKENS, "4096", 4096), (AMOUNT, "8k", 8000), (TIME, "500ms", 0.5), (TIME, "24h", 86400), (TIME, "40 ms", 0.04),
    ],
)  # fmt: skip
def test_amounts(kind, text, number):
    assert kind.convert(text, None, None) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "x", "1e400", "2^999", "-1", "nan", "inf", "1 2", "9" * 400])
def test_what_is_no_amount(text):
    for kind in (AMOUNT, WHOLE, TIME):
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)


def test_ranges_have_three_figures_and_one_unit():
    of = lambda value: Interval(low=0.8 * value, expected=value, high=1.25 * value)  # noqa: E731
    assert span(of(71_000)) == "19.7 h (15.8-24.7)"
    assert span(of(0.02)) == "20 ms (16-25)"
    assert span(of(864_000)) == "10 d (8-12.5)"
    assert money(of(73.79)) == "$73.8 (59-92.2)"
    assert money(of(257_000)) == "$257k (206-321)"
    assert money(of(8.4e6)) == "$8.4M (6.72-10.5)"
    assert number(of(48_200)) == "48,200 (38,600-60,200)"
    assert number(of(1.41e9)) == "1.41 G (1.13-1.76)"


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (
            ("serve", "--model", "qwen3-32b", "--context", "8k", "--ttft", "500ms", "--precision", "fp8,int4"),
            {"serve": {"model": "qwen3-32b", "context": 8192, "ttft_s": 0.5, "precisions": ["fp8", "int4"]}},
        ),
        (("vision", "--model", "yolov7", "--images", "5M"), {"vision": {"model": "yolov7", "images": 5e6}}),
        (("hpc", "--code", "gromacs", "--atoms", "1.4M"), {"hpc": {"code": "gromacs", "atoms": 1.4e6}}),
        (("hpc", "--precision", "fp64"), {"hpc": {"precision": "fp64"}}),
        (("render", "--frames", "300"), {"render": {"frames": 300}}),
        (
            ("render", "--frame-time", "90s", "--measured-on", "T4"),
            {"render": {"frame_s": 90.0, "measured_on": "T4"}},
        ),
        (
            ("prove", "--system", "groth16", "--constraints", "2^24"),
            {"prove": {"system": "groth16", "constraints": 2.0**24}},
        ),
        (("hash", "--algorithm", "md5"), {"hash": {"algorithm": "md5"}}),
    ],
)  # fmt: skip
def test_every_kind_of_work_is_sent(cumulo, stub, words, question):
    stub.on("POST", "/v1/advice", Reply(ADVICE))
    cumulo.ok("advise", *words)
    assert {key: value for key, value in sent(stub).items() if key not in ("limits", "limit")} == question


def test_a_run_file_is_sent_without_its_files(cumulo, stub, tmp_path):
    stub.on("POST", "/v1/advice", Reply(ADVICE))
    (tmp_path / "task.yaml").write_text("name: a\nworkdir: .\nrequirements: req.txt\ngpu: A100:2\nrun: ./x\n")
    cumulo.ok("advise", str(tmp_path / "task.yaml"))
    assert sent(stub)["run"] == {"name": "a", "gpu": "A100:2", "run": "./x"}
    cumulo.ok("advise", "-", stdin=b"run: ./y\n")
    assert stub.seen("POST", "/v1/advice")[1].json["run"] == {"run": "./y"}
    done = cumulo("advise", str(tmp_path / "other.yaml"))
    assert (done.returncode, b"can't be read" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("columns", "titles"),
    [
        (200, "GPUS LAYOUT GB EACH TIME COST BOUGHT WHERE LIMIT BEST AT"),
        (100, "GPUS GB EACH TIME COST BOUGHT WHERE LIMIT BEST AT"),
        (70, "GPUS TIME COST WHERE BEST AT"),
    ],
)
def test_a_narrow_terminal_is_spared_what_can_be_read_below(monkeypatch, columns, titles):
    monkeypatch.setattr("cumulo.cli.tables.is_terminal", lambda stream: True)
    monkeypatch.setattr("cumulo.cli.advise_table.is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    lines = table(decode(Advice, ADVICE)).splitlines()
    assert " ".join(lines[0].split()) == titles
    assert all(len(line) <= columns for line in lines)
