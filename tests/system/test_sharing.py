"""Parts of GPUs as people ask for them and see them: fractions, MIG instances, and what keeps them apart."""

import json
from typing import Any

import pytest

from tests.system.cloud import Cloud, eventually

pytestmark = pytest.mark.system

RUN = "sleep 300"


@pytest.fixture
def shared(new_cloud: Any) -> Cloud:
    cloud: Cloud = new_cloud(emulate="H100-80GB:2,T4:1")
    cloud.start()
    return cloud


def launched(cloud: Cloud, name: str, *flags: str, script: str = RUN) -> dict[str, Any]:
    """Launches a run and waits until it is running."""
    cloud.launch(script, "--name", name, *flags)
    eventually(lambda: cloud.run(name)["status"] == "running")
    return cloud.run(name)


def devices(cloud: Cloud) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cloud.ok("nodes", "emulated-0", "--json"))["devices"]
    return found


def test_fractions_share_a_gpu_until_it_is_full(shared: Cloud):
    launched(shared, "a", "--gpus", "H100:0.6")
    launched(shared, "b", "--gpus", "H100", "--gpu-memory", "24GB")
    one, other = devices(shared)
    assert (one["mode"], one["milli_free"], other["mode"], other["milli_free"]) == ("mps", 100, None, 1000)
    assert [(holder["name"], holder["milli"], holder["memory_bytes"] >> 30) for holder in one["holders"]] in (
        [("a", 600, 48), ("b", 300, 24)],
        [("b", 300, 24), ("a", 600, 48)],
    )
    assert "0.6 of H100-80GB (mps)" in shared.ok("top")
    assert "0.3 b" in shared.ok("nodes", "emulated-0")
    assert "[0.1 free]" in shared.ok("nodes", "emulated-0")
    launched(shared, "whole", "--gpus", "H100")
    shared.launch("true", "--name", "late", "--gpus", "H100:0.2")
    why = shared.ok("why", "late")
    assert "100 of 1000 milli free on the emptiest of 2 H100-80GB, 200 asked" in why
    shared.ok("cancel", "b", "--wait", "--grace", "0")
    assert shared.cli("wait", "late").code == 0


def test_mig_instances_fill_a_gpu_by_its_rules(shared: Cloud):
    row = launched(shared, "four", "--gpus", "H100:mig-4g.40gb", "--isolation", "hard")
    assert row["ask"] == "H100:mig-4g.40gb:1, hard isolation"
    launched(shared, "ones", "--gpus", "H100:mig-1g.10gb:3")
    cut = next(device for device in devices(shared) if device["mode"] == "mig")
    lie = {(holder["profile"], holder["start"], holder["size"]) for holder in cut["holders"]}
    assert lie == {("4g.40gb", 0, 4), ("1g.10gb", 4, 1), ("1g.10gb", 5, 1), ("1g.10gb", 6, 1)}
    assert cut["mig_grid"] == 8
    drawn = shared.ok("nodes", "emulated-0")
    assert "[4g.40gb four][1g.10gb ones][1g.10gb ones][1g.10gb ones][·]" in drawn
    launched(shared, "whole", "--gpus", "H100")
    shared.launch("true", "--name", "fifth", "--gpus", "H100:mig-1g.10gb")
    assert "no 1g.10gb slice free: 2 of 2 H100-80GB held (1 exclusive, 1 mig), 1 asked" in shared.ok("why", "fifth")
    offer = json.loads(shared.ok("offers", "H100:mig-1g.10gb", "--json"))[0]
    assert (offer["free"], offer["total"], offer["isolation"]) == (0, 14, "hard")
    shared.ok("cancel", "ones", "--wait", "--grace", "0")
    assert shared.cli("wait", "fifth").code == 0


def test_modes_do_not_mix_and_a_restart_keeps_what_is_held(shared: Cloud):
    launched(shared, "part", "--gpus", "T4:0.5", "--sharing", "timeslice")
    launched(shared, "sliced", "--gpus", "H100:mig-3g.40gb:2")
    shared.launch("true", "--name", "caps", "--gpus", "T4:0.5", "--sharing", "mps")
    assert "1 of 1 T4 held (1 timeslice), 500 milli asked" in shared.ok("why", "caps")
    before = json.loads(shared.ok("nodes", "--json"))
    shared.kill()
    shared.start()
    assert json.loads(shared.ok("nodes", "--json")) == before
    assert shared.run("sliced")["status"] == shared.run("part")["status"] == "running"
    launched(shared, "beside", "--gpus", "T4", "--gpu-memory", "8GB", "--sharing", "timeslice", "--priority", "1")
    shared.ok("cancel", "part", "beside", "--wait", "--grace", "0")
    assert shared.cli("wait", "caps").code == 0


def test_a_run_is_told_its_part_and_billed_for_it(shared: Cloud):
    script = 'echo "$CUMULO_GPU_SHARING $CUMULO_GPU_MILLI $CUMULO_GPU_MEMORY $CUMULO_GPUS_PER_NODE"; sleep 1'
    shared.launch(script, "--name", "told", "--gpus", "H100:0.25")
    assert shared.cli("wait", "told").code == 0
    assert shared.ok("logs", "told") == f"mps 250 {20 << 30} 1\n"
    row = shared.run("told")
    assert row["placed_on"] == "emulated-0: 0.25 of H100-80GB (mps) (emulated)"
    assert row["instances"][0]["gpus"] == "0.25 of H100-80GB (mps)"
    usage = json.loads(shared.ok("usage", "--json"))["total"]
    assert 0.24 <= usage["gpu_seconds"] < 0.25 * 30  # from when it was seen to run: somewhat less than its second


def test_what_contradicts_itself_is_refused_in_a_line(shared: Cloud):
    def refused(*flags: str) -> str:
        done = shared.cli("launch", "-y", "-d", "--no-workdir", *flags, "--", "true")
        assert done.code != 0
        return done.err

    assert "write H100:mig-1g.20gb, or ask for a whole GPU" in refused("--gpus", "H100:0.25", "--isolation", "hard")
    assert "gpu: T4 has no MIG; ask for a fraction, such as T4:0.25" in refused("--gpus", "T4:mig-1g.10gb")
    assert "no MIG profile 9g.1gb on H100; there are H100-80GB: 1g.10gb" in refused("--gpus", "H100:mig-9g.1gb")
    assert "has 1 T4, 17GB of T4 asked" in refused("--gpus", "T4", "--gpu-memory", "17GB")
