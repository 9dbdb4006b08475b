"""`advise --live`: what telemetry says of a run, and what else would do."""

import json
import re
from typing import Any

import pytest

from tests.cli.cumulo import Cumulo
from tests.client.stub import Reply, Stub, problem

ID = "1ngvjdbe89ek"
HOLDER = {"run": ID, "name": "train", "instance": "i1", "mode": "exclusive", "milli": 1000, "memory_bytes": 80 << 30}


def reading(used: int, busy: float | None, **changes: Any) -> Reply:
    device = {
        "node": "n0", "index": 0, "uuid": "GPU-1", "model": "A100-80GB", "utilisation": busy, "holders": [HOLDER],
        "memory_used_bytes": used, "memory_bytes": 80 << 30, "emulated": False,
    }  # fmt: skip
    idle = {**device, "uuid": "GPU-2", "index": 1, "holders": [], "utilisation": 1.0, "memory_used_bytes": 1}
    return Reply({"devices": [device | changes, idle], "instances": [{"id": "i1", "run": ID, "cpu": 1.5}]})


@pytest.fixture
def watched(stub: Stub, cumulo: Cumulo) -> Cumulo:
    stub.on("GET", "/v1/runs/train", Reply({"id": ID, "name": "train", "status": "running"}))
    stub.on("GET", "/v1/offers", Reply({"items": [{"gpu": "L40S", "free": 2, "total": 2}, {"gpu": "L4", "free": 0}]}))
    return cumulo


def test_the_peak_and_the_mean_over_the_time_watched(stub, watched):
    stub.on("GET", "/v1/telemetry", reading(8 << 30, 0.2), reading(10 << 30, 0.4))
    text = watched.ok("advise", "--live", "train", "--for", "1s")
    assert "train holds 1 x A100-80GB" in text
    assert "memory: 10.0 of 80.0 GiB at the peak seen (12%)" in text
    assert "kernels ran 30% of the time" in text
    assert re.search(r"A100-80GB 0.5 +40GB .*0\.50 to ", text)
    assert re.search(r"L40S .*free here", text)
    assert not re.search(r"^L4 .*free here", text, re.MULTILINE)
    data = json.loads(watched.ok("advise", "--live", "train", "--for", "1s", "--json"))
    assert data["peak_bytes"] == 10 << 30
    assert all(choice["time"]["low"] <= choice["time"]["high"] for choice in data["choices"])


def test_emulated_devices_are_said_to_be(stub, watched):
    stub.on("GET", "/v1/telemetry", reading(1 << 30, 0.5, emulated=True))
    assert "EMULATED: the devices show what the run's processes use" in watched.ok(
        "advise", "live", "train", "--for", "1s"
    )


def test_what_cannot_be_watched_says_why(stub, watched):
    stub.on("GET", "/v1/runs/ended", Reply({"id": "x", "name": "ended", "status": "succeeded"}))
    stub.on("GET", "/v1/runs/nobody", problem("run_not_found", 404, "there is no run nobody"))
    stub.on("GET", "/v1/telemetry", reading(1 << 30, None))
    for words, told, code in (
        (("ended",), "ended is succeeded: only a running run shows what it uses", 1),
        (("nobody",), "there is no run nobody", 102),
        (("train", "--for", "1s"), "the GPUs of train don't tell how much they are used", 1),
    ):
        done = watched("advise", "--live", *words)
        assert told in done.stderr.decode()
        assert done.returncode == code


def test_a_run_without_a_gpu(stub, watched):
    stub.on("GET", "/v1/telemetry", reading(1 << 30, 0.5, holders=[]))
    assert "train holds no GPU" in watched("advise", "--live", "train", "--for", "1s").stderr.decode()
