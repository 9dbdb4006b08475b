"""The runtime process: the command as it is."""

from cumulo.node.runtimes import ProcessRuntime, StageRequest


def test_the_command_goes_through_unchanged():
    request = StageRequest(argv=("python", "train.py"), env={"A": "b"}, cwd="/work", uid=1001, gid=1001)
    stage = ProcessRuntime().stage("running", request)
    assert stage.to_json() == {
        "name": "running",
        "argv": ["python", "train.py"],
        "env": {"A": "b"},
        "cwd": "/work",
        "drop": True,
        "stdin": None,
        "json_status": False,
    }


def test_an_ordinary_server_has_nobody_to_become():
    assert not ProcessRuntime().stage("running", StageRequest(argv=("true",), env={}, cwd="/")).drop


def test_it_claims_no_fence():
    assert ProcessRuntime().available() is None
    assert "not fence" in ProcessRuntime.isolation
