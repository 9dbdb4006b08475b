"""Commands, ports and files of an instance, over websockets and HTTP."""

import json
import time

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect, unix_connect

from tests.server.box import Box
from tests.server.test_runs import problem


def opened(box, path, token=None):
    headers = {"Authorization": f"Bearer {box.token if token is None else token}"}
    return connect(f"ws://127.0.0.1:{box.port}{path}", additional_headers=headers, open_timeout=10)


def eventually(look):
    deadline = time.monotonic() + 10
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_command_has_input_output_and_an_exit_code(box):
    run, _ = box.running()
    with opened(box, f"/v1/runs/{run}/exec?tty=1&rows=30&columns=100") as socket:
        socket.send(json.dumps({"argv": ["sh", "-c", "cat"], "env": {"A": "1"}}))
        socket.send(b"hello \xff\x00")
        assert socket.recv(timeout=10) == b"HELLO \xff\x00"
        socket.send(json.dumps({"resize": [50, 120]}))
        eventually(lambda: box.engine.streams[-1].size == (50, 120))
        socket.send(b"!")
        assert socket.recv(timeout=10) == b"!"
        assert json.loads(socket.recv(timeout=10)) == {"exit_code": 7}
    request = box.engine.streams[-1].request
    assert (request.argv, request.env, request.tty, request.rows) == (("sh", "-c", "cat"), (("A", "1"),), True, 30)


def test_the_end_of_input_is_not_the_end_of_the_command(box):
    run, _ = box.running()
    with opened(box, f"/v1/runs/{run}/exec") as socket:
        socket.send(json.dumps({"argv": ["cat"]}))
        socket.send(b"x" * 100_000)
        socket.send(json.dumps({"eof": True}))
        got = b""
        while isinstance(piece := socket.recv(timeout=10), bytes):
            got += piece
        assert got == b"X" * 100_000
        assert json.loads(piece) == {"exit_code": 7}


def test_a_client_that_leaves_closes_the_stream(box):
    run, _ = box.running()
    with opened(box, f"/v1/runs/{run}/exec") as socket:
        socket.send(json.dumps({"argv": ["cat"]}))
        socket.send(b"x")
        socket.recv(timeout=10)
        stream = box.engine.streams[-1]
        assert not stream.closed
    eventually(lambda: stream.closed)
    eventually(lambda: box.services.counters.streams == 0)


@pytest.mark.parametrize(
    "frame", ["", "{}", "[]", '{"argv": []}', '{"argv": "ls"}', '{"argv": [1]}', '{"argv": ["a"], "env": {"A=B": "1"}}',
              '{"argv": ["a\\u0000b"]}', "nonsense"],
)  # fmt: skip
def test_a_wrong_first_frame_is_a_problem(box, frame):
    run, _ = box.running()
    with opened(box, f"/v1/runs/{run}/exec") as socket:
        socket.send(frame)
        assert json.loads(socket.recv(timeout=10))["error"]["code"] == "invalid_request"


def test_a_wrong_later_frame_is_a_problem(box):
    run, _ = box.running()
    with opened(box, f"/v1/runs/{run}/exec") as socket:
        socket.send(json.dumps({"argv": ["cat"]}))
        socket.send('{"resize": "big"}')
        assert json.loads(socket.recv(timeout=10))["error"]["code"] == "invalid_request"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/runs/nobody/exec", 404, "run_not_found"),
        ("/v1/runs/{run}/exec?unit=3", 422, "invalid_request"),
        ("/v1/runs/{run}/exec?rank=3", 404, "not_found"),
        ("/v1/runs/{run}/exec?rank=-1", 422, "invalid_request"),
        ("/v1/runs/{run}/exec?ttty=1", 422, "invalid_request"),
        ("/v1/runs/{run}/ports/x", 422, "invalid_request"),
        ("/v1/runs/{run}/ports/0", 422, "invalid_request"),
        ("/v1/runs/{run}/ports/99999", 422, "invalid_request"),
    ],
)
def test_what_cannot_be_opened_is_an_http_problem(box, path, status, code):
    run, _ = box.running()
    with pytest.raises(InvalidStatus) as caught, opened(box, path.format(run=run)):
        pass
    assert caught.value.response.status_code == status
    assert json.loads(caught.value.response.body)["code"] == code


@pytest.mark.parametrize(("token", "status"), [("", 401), ("cumulo_a_b", 401)])
def test_a_websocket_needs_a_token_too(box, token, status):
    run, _ = box.running()
    with pytest.raises(InvalidStatus) as caught, opened(box, f"/v1/runs/{run}/exec", token=token):
        pass
    assert caught.value.response.status_code == status


def test_what_has_ended_runs_no_commands(box):
    run, instance = box.running()
    box.engine.finish(instance)
    box.await_status(run, "succeeded")
    with pytest.raises(InvalidStatus) as caught, opened(box, f"/v1/runs/{run}/exec"):
        pass
    assert caught.value.response.status_code == 409


def test_a_stranger_gets_no_shell_no_log_and_no_files(box):
    run, _ = box.running({"name": "private"})
    stranger = box.token_of("stranger")
    with pytest.raises(InvalidStatus) as caught, opened(box, f"/v1/runs/{run}/exec", token=stranger):
        pass
    assert caught.value.response.status_code == 403
    for method, path in (("GET", "logs"), ("GET", "files"), ("PUT", "files")):
        problem(box.ask(method, f"/v1/runs/{run}/{path}", token=stranger), "forbidden", 403)
    problem(box.ask("PATCH", f"/v1/runs/{run}", {"wanted": "cancelled"}, token=stranger), "forbidden", 403)
    row = box.get(f"/v1/runs/{run}", token=stranger)
    assert (row["name"], row["spec"]) == ("private", None)


def test_a_port_carries_bytes_both_ways(box):
    run, _ = box.running()
    with opened(box, f"/v1/runs/{run}/ports/8888") as socket:
        socket.send(b"get /")
        assert socket.recv(timeout=10) == b"GET /"
    assert box.engine.streams[-1].request.port == 8888


def test_exec_works_over_the_unix_socket(box):
    run, _ = box.running()
    with unix_connect(str(box.socket), uri=f"ws://localhost/v1/runs/{run}/exec", open_timeout=10) as socket:
        socket.send(json.dumps({"argv": ["cat"]}))
        socket.send(b"hi!")
        assert socket.recv(timeout=10) == b"HI!"


def test_files_come_and_go_as_a_tar(box):
    run, _ = box.running()
    answer = box.ask("GET", f"/v1/runs/{run}/files?area=workdir&path=results")
    assert (answer.status, answer.body) == (200, b"a tar of results")
    assert answer.headers["content-type"] == "application/x-tar"
    assert box.ask("PUT", f"/v1/runs/{run}/files?path=in", b"tar bytes" * 100_000).status == 204
    stream = box.engine.streams[-1]
    assert bytes(stream.written) == b"tar bytes" * 100_000
    assert (stream.request.direction, stream.request.area, stream.request.path) == ("put", "workdir", "in")
    assert stream.closed


def test_files_that_are_not_there_are_a_problem(box):
    run, _ = box.running()
    problem(box.ask("GET", f"/v1/runs/{run}/files?path=nowhere"), "not_found", 404)
    problem(box.ask("GET", f"/v1/runs/{run}/files?area=attic"), "invalid_request")
    queued = box.submit({"gpu": "A100:3"}, queue=True)["id"]
    problem(box.ask("GET", f"/v1/runs/{queued}/files"), "conflict", 409)


def test_a_server_that_stops_says_so_to_open_terminals(tmp_path):
    box = Box(tmp_path)
    run, _ = box.running()
    with opened(box, f"/v1/runs/{run}/exec") as socket:
        socket.send(json.dumps({"argv": ["cat"]}))
        socket.send(b"x")
        socket.recv(timeout=10)
        began = time.monotonic()
        box.close()
        assert time.monotonic() - began < 3
        assert json.loads(socket.recv(timeout=10))["error"]["detail"] == "the server is being restarted"
    assert box.engine.streams[-1].closed
