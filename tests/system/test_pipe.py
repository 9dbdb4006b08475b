"""The whole of it with the engine in another process, behind a pipe of bytes: nothing but data crosses."""

from pathlib import Path

import pytest

from tests.system.cloud import Cloud, eventually

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def cloud():
    made = Cloud(emulate="2x A100-80GB:2", pipe=True)
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_a_run_with_files_and_its_log(cloud: Cloud):
    (cloud.work / "given").write_text("over there\n")
    done = cloud.cli(
        "launch",
        "-y",
        "--gpus",
        "A100:2",
        "--name",
        "far",
        "--",
        "bash",
        "-c",
        "cat given; echo $CUDA_VISIBLE_DEVICES; exit 3",
    )
    assert done.code == 3, done.err
    text, devices = done.out.splitlines()
    assert text == "over there"
    assert devices.split(",") == cloud.run("far")["instances"][0]["devices"]


def test_a_gang_exec_files_and_cancel(cloud: Cloud, tmp_path: Path):
    run = cloud.launch(
        "echo $RANK > $CUMULO_OUTPUT_DIR/$RANK; sleep 60", "-N", "2", "--gpus", "A100:2", "--name", "gang"
    )
    eventually(lambda: cloud.run("gang")["status"] == "running")
    assert cloud.cli("exec", "gang", "--rank", "1", "--", "bash", "-c", "cat; echo $RANK; exit 4", stdin="x\n") == (
        4, "x\n1\n", "",
    )  # fmt: skip
    cloud.ok("cp", "gang:outputs", str(tmp_path / "got"))
    assert sorted(path.name for path in (tmp_path / "got").iterdir()) == ["0", "1"]
    cloud.ok("cancel", "--wait", "gang")
    assert cloud.run(run["id"])["status"] == "cancelled"


def test_the_server_dies_with_its_pipe_and_finds_all_again(cloud: Cloud):
    run = cloud.launch("for i in $(seq 20); do echo $i; sleep 0.1; done; exit 5", "--gpus", "A100")
    eventually(lambda: cloud.run(run["id"])["status"] == "running")
    cloud.kill()
    cloud.start()
    assert cloud.cli("wait", run["id"]).code == 100
    assert cloud.run(run["id"])["exit_code"] == 5
    assert cloud.ok("logs", run["id"]).split() == [str(i) for i in range(1, 21)]
