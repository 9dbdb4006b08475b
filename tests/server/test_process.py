"""The server as a process: it starts, answers, stops in a moment, and starts again after a kill."""

import http.client
import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import time

import pytest

from tests.server.box import OverSocket

START_S = 30.0


class Process:
    """`python -m cumulo.server` on a state folder of its own."""

    def __init__(self, home, *words):
        self.home, self.socket = home, home / "s"
        self.child = subprocess.Popen(
            [sys.executable, "-m", "cumulo.server", "--port", "0", "--emulate", "A100-80GB:2", *words],
            env={**os.environ, "CUMULO_HOME": str(home), "CUMULO_SOCKET": str(self.socket)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def state(self):
        return json.loads((self.home / "server.json").read_text())

    def ready(self):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                raise AssertionError(self.child.communicate()[1])
            if (self.home / "server.json").exists():
                return self
            time.sleep(0.02)
        raise AssertionError("the server did not start")

    def get(self, path):
        connection = OverSocket(self.socket)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, json.loads(body)

    def stop(self, number=signal.SIGTERM):
        """Sends a signal and waits: (exit code, seconds it took, what it said)."""
        began = time.monotonic()
        if self.child.poll() is None:
            self.child.send_signal(number)
        _, said = self.child.communicate(timeout=20)
        return self.child.returncode, time.monotonic() - began, said


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(*words):
        started.append(Process(tmp_path / "home", *words))
        return started[-1]

    yield begin
    for process in started:
        process.stop(signal.SIGKILL)


def test_it_starts_answers_and_stops(start):
    server = start().ready()
    state = server.state()
    assert state["pid"] == server.child.pid
    assert state["socket"] == str(server.socket)
    assert server.get("/v1/health")[1]["status"] == "ok"
    assert stat.S_IMODE((server.home / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE((server.home / "cumulo.db").stat().st_mode) == 0o600
    assert stat.S_IMODE(server.socket.stat().st_mode) == (0o666 if os.geteuid() == 0 else 0o600)
    token = (server.home / "token").read_text().strip()
    host, port = state["url"].removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", "/v1/nodes", headers={"Authorization": f"Bearer {token}"})
    assert json.loads(connection.getresponse().read())["items"][0]["devices"][0]["emulated"]
    connection.request("GET", "/v1/me", headers={"Authorization": f"Bearer {token}x"})
    assert connection.getresponse().read()
    connection.close()
    code, seconds, said = server.stop(signal.SIGINT)
    assert (code, said) == (0, "")  # nothing went wrong, and no secret was told
    assert seconds < 5
    assert not (server.home / "server.json").exists()
    assert not server.socket.exists()
    again = start().ready()
    assert (server.home / "token").read_text().strip() == token  # the same one, while it is good
    assert again.get("/v1/me")[0] == 200


def test_after_a_kill_the_next_one_starts_at_once(start):
    first = start().ready()
    first.stop(signal.SIGKILL)
    assert first.socket.exists()  # left behind, as is server.json
    (first.home / "server.json").unlink()
    assert start().ready().get("/v1/health")[0] == 200


def test_it_stops_in_a_moment_though_streams_are_open(start):
    server = start().ready()
    readers = []
    for path in ("/v1/events?follow=true", "/v1/events?follow=true"):
        connection = OverSocket(server.socket)
        connection.request("GET", path, headers={"Accept": "text/event-stream"})
        readers.append((connection, connection.getresponse()))
    idle = OverSocket(server.socket)  # kept alive, says nothing
    idle.request("GET", "/v1/health")
    idle.getresponse().read()
    code, seconds, said = server.stop()
    assert (code, said) == (0, "")
    assert seconds < 3
    for connection, answer in readers:
        answer.read()  # ends properly: no broken chunk
        answer.close()
        connection.close()
    idle.close()


def test_tls_is_for_tcp_and_the_socket_stays_plain(start, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl is not installed")
    server = start("--tls-cert", str(cert), "--tls-key", str(key)).ready()
    url = server.state()["url"]
    assert url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=str(cert))
    connection = http.client.HTTPSConnection(url.removeprefix("https://"), context=context, timeout=10)
    connection.request("GET", "/v1/health")
    assert connection.getresponse().read()
    connection.close()
    assert server.get("/v1/health")[0] == 200
