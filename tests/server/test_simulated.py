"""A simulated cloud: a server that starts nothing, whose state folder holds no other nodes."""

import json
import os
import subprocess
import sys
import time

import pytest

from cumulo.client import Client
from cumulo.client.endpoint import Endpoint

SIMULATED = "120x A100-80GB:8,cpu"


class Server:
    """`python -m cumulo.server` on one state folder, as often as a test wants it."""

    def __init__(self, home):
        self.home = home

    def command(self, *words):
        socket = self.home / "s"
        return {
            "args": [sys.executable, "-m", "cumulo.server", "--port", "0", "--socket", str(socket), *words],
            "env": {**os.environ, "CUMULO_HOME": str(self.home)},
            "stdin": subprocess.DEVNULL,
            "stderr": subprocess.PIPE,
            "text": True,
        }

    def refused(self, *words):
        done = subprocess.run(**self.command(*words), timeout=30)
        assert done.returncode == 1
        return done.stderr

    def start(self, *words):
        self.child = subprocess.Popen(**self.command(*words))
        deadline = time.monotonic() + 30
        while not (self.home / "server.json").exists():
            assert time.monotonic() < deadline
            assert self.child.poll() is None, "the server ended"
            time.sleep(0.02)
        socket = json.loads((self.home / "server.json").read_text())["socket"]
        return Client(Endpoint(url="http://localhost", socket=socket))

    def stop(self):
        self.child.terminate()
        self.child.communicate(timeout=20)


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path / "home")
    yield server
    server.stop()


def test_a_fleet_that_this_machine_has_not(server):
    with server.start("--simulate", SIMULATED) as client:
        assert client.offers("A100")[0].total == 960  # it waits until the nodes are known
        nodes = client.nodes()
        assert len(nodes) == 121
        assert {node.region for node in nodes} == {"simulated"}
        ends = client.submit({"name": "ends", "resources": {"gpus": "A100:8"}, "nodes": 3, "run": "x",
                              "env": {"CUMULO_SIMULATED_SECONDS": "0.2"}})  # fmt: skip
        stays = client.submit({"name": "stays", "resources": {"gpus": "A100:8"}, "run": "x"})
        assert client.wait(ends.id, timeout_s=20).status == "succeeded"
        assert client.wait(stays.id, timeout_s=20, until=lambda run: run.status == "running")
    server.stop()
    with server.start() as client:  # what is simulated is remembered, and so is what runs there
        assert client.wait(stays.id, timeout_s=20, until=lambda run: run.status == "running")
        client.cancel(stays.id)
        assert client.wait(stays.id, timeout_s=20).status == "cancelled"
    server.stop()
    assert "error: --emulate: the nodes of this cloud are simulated" in server.refused("--emulate", "T4:1")


def test_a_cloud_of_real_runs_is_never_simulated(server):
    server.start("--emulate", "T4:1").close()
    server.stop()
    said = server.refused("--simulate", SIMULATED)
    assert "error: --simulate: this cloud has nodes already (local/emulated-0)" in said
    assert "hint: give it a state folder of its own by CUMULO_HOME, and its own database" in said
