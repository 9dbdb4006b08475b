"""What only a pipe can suffer: a far side that dies, and calls that must not wait for one another."""

import os
import signal
import threading
import time

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import InstanceState
from cumulo.engines.protocol import ExecRequest
from tests.engines.conftest import WAIT, Bench


@pytest.fixture
def piped(node_root):
    bench = Bench("piped", node_root)
    yield bench
    bench.engine.close()


def test_a_dead_far_side_is_unreachable_and_its_runs_live_on(piped):
    name = piped.start("survivor", f"{WAIT}; exit 6")
    piped.until(name, InstanceState.RUNNING)
    os.kill(piped.engine._process.pid, signal.SIGKILL)
    piped.engine._process.wait()
    with pytest.raises(CumuloError) as error:
        piped.engine.observe()
    assert error.value.code == "engine_unreachable"
    piped.restart()
    assert piped.look(name).state is InstanceState.RUNNING
    piped.open_gate(name)
    assert piped.end(name).exit_code == 6


def test_a_call_that_waits_is_answered_when_the_far_side_dies(piped):
    name = piped.start("waits", WAIT)
    piped.until(name, InstanceState.RUNNING)
    stream = piped.engine.stream(name, ExecRequest(argv=("sleep", "60")))
    failures = []

    def read():
        try:
            stream.read()
        except CumuloError as error:
            failures.append(error.code)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.2)
    assert piped.look(name).state is InstanceState.RUNNING  # while another call waits
    os.kill(piped.engine._process.pid, signal.SIGKILL)
    reader.join(timeout=10)
    assert failures == ["engine_unreachable"]
    piped.restart()
    piped.open_gate(name)
    piped.end(name)
