"""Who gets what next, with real processes: room that is kept, runs that make room, projects, a server killed amid."""

from functools import partial
from typing import Any

import pytest

from tests.system.cloud import Cloud, eventually

pytestmark = pytest.mark.system

RUN = "sleep 300"
# Takes its time to end, and tells that it was asked to.
SLOW = "trap 'echo asked >> asked; sleep 3; exit 1' TERM; while true; do sleep 0.1; done"
CONFIG = """
placement: {make_room: true}
projects:
  vision: {quota: {gpus: 2}, guaranteed: {A100-80GB: 2}}
"""


@pytest.fixture
def cloud(new_cloud: Any) -> Cloud:
    made: Cloud = new_cloud(emulate="A100-80GB:4")
    made.home.mkdir()
    (made.home / "config.yaml").write_text(CONFIG)
    made.start()
    return made


def launched(cloud: Cloud, name: str, *flags: str, script: str = RUN) -> dict[str, Any]:
    """Launches a run and waits until it is running."""
    cloud.launch(script, "--name", name, *flags)
    eventually(lambda: cloud.run(name)["status"] == "running")
    return cloud.run(name)


def status(cloud: Cloud, name: str) -> str:
    return str(cloud.run(name)["status"])


def runs(cloud: Cloud, name: str) -> bool:
    return status(cloud, name) == "running"


def test_a_large_run_starts_before_small_ones_that_came_later(cloud: Cloud):
    launched(cloud, "first", "--gpus", "A100:3")
    cloud.launch(RUN, "--name", "large", "--gpus", "A100:4")
    cloud.launch(RUN, "--name", "small", "--gpus", "A100")
    assert cloud.ok("why", "small").startswith("the room is kept for large, which is next and asked for A100:4")
    cloud.ok("cancel", "first", "--wait", "--grace", "0")
    eventually(lambda: status(cloud, "large") == "running")
    assert status(cloud, "small") == "queued"


def test_a_spot_run_makes_room_and_a_server_that_is_killed_meanwhile_forgets_nothing(cloud: Cloud):
    # Longer than a server takes to come back on a busy machine.
    launched(cloud, "spot", "--gpus", "A100:3", "--spot", script=SLOW.replace("sleep 3", "sleep 12"))
    launched(cloud, "other", "--gpus", "A100", "--spot")
    cloud.launch(RUN, "--name", "mine", "--gpus", "A100:3")
    eventually(lambda: cloud.ok("why", "mine").startswith("spot ("))
    cloud.kill()
    cloud.start()
    assert "is stopping to make room for it" in cloud.ok("why", "mine")
    eventually(lambda: status(cloud, "mine") == "running")
    assert (status(cloud, "spot"), status(cloud, "other")) == ("recovering", "running")
    assert cloud.ok("events", "spot").count("run.preempted") == 1
    cloud.ok("cancel", "mine", "--wait", "--grace", "0")
    eventually(lambda: status(cloud, "spot") == "running")
    assert cloud.run("spot")["attempts"] == 2


def test_a_project_gets_what_it_is_sure_of_and_no_more_than_its_quota(cloud: Cloud):
    launched(cloud, "kept", "--gpus", "A100:2")
    launched(cloud, "borrowed", "--gpus", "A100:2")
    launched(cloud, "sure", "--gpus", "A100:2", "--project", "vision")
    assert (status(cloud, "kept"), status(cloud, "borrowed")) == ("running", "recovering")
    cloud.launch(RUN, "--name", "more", "--gpus", "A100", "--project", "vision")
    assert cloud.ok("why", "more").startswith("project vision holds 2 of its quota of 2 GPUs, 1 asked")
    refused = cloud.cli("launch", "-y", "-d", "--no-workdir", "--gpus", "A100:3", "--project", "vision", "--", "true")
    assert refused.code != 0
    assert "project vision holds 0 of its quota of 2 GPUs, 3 asked" in refused.err


def test_a_config_that_is_wrong_is_told_and_one_that_is_mended_is_read(cloud: Cloud):
    launched(cloud, "runs", "--gpus", "A100")
    cloud.stop()
    (cloud.home / "config.yaml").write_text("projects: {vision: {wieght: 2}}\n")
    cloud.start(wait=False)
    assert cloud.server is not None
    assert cloud.server.wait(20) == 2
    assert "config.yaml:1: projects.vision.wieght: is not known; did you mean 'weight'?" in cloud.said()
    (cloud.home / "config.yaml").write_text("projects: {vision: {quota: {gpus: 0}}}\n")
    cloud.start()
    assert status(cloud, "runs") == "running"
    refused = cloud.cli("launch", "-y", "-d", "--no-workdir", "--gpus", "A100", "--project", "vision", "--", "true")
    assert "its quota of 0 GPUs, 1 asked" in refused.err


def test_small_runs_that_may_be_moved_are(new_cloud: Any):
    cloud: Cloud = new_cloud(emulate="2x A100-80GB:2")
    cloud.home.mkdir()
    (cloud.home / "config.yaml").write_text(CONFIG)
    cloud.start()
    file = cloud.work / "small.yaml"
    file.write_text("gpu: A100\nmigratable: true\nrun: sleep 300\n")
    for name in ("a", "b", "c"):
        cloud.ok("launch", str(file), "-y", "-d", "--name", name)
        eventually(partial(runs, cloud, name))
    cloud.ok("cancel", "b", "--wait", "--grace", "0")
    launched(cloud, "large", "--gpus", "A100:2")
    eventually(lambda: [status(cloud, name) for name in ("a", "c")] == ["running", "running"])
    assert sum(cloud.run(name)["attempts"] for name in ("a", "c")) == 3
