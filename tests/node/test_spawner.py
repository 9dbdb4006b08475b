"""The spawner comes and goes; what it started stays."""

import os
import signal
import socket

from cumulo.node import instances, processes
from cumulo.node.spawner import supervisor_copy


def test_supervisors_outlive_a_killed_spawner(bench):
    folder = bench.launch("sleep 0.7; exit 4")
    bench.running(folder)
    killed = bench.spawner.pid
    os.kill(killed, signal.SIGKILL)
    bench.until(lambda: (stat := processes.stat(killed)) and stat.state == "Z")
    assert bench.run("exit 5").exit_code == 5  # by a new one, without being asked
    assert bench.end(folder).exit_code == 4


def test_a_let_go_spawner_leaves_after_its_last_supervisor(bench):
    folder = bench.launch("sleep 0.5; exit 4")
    bench.running(folder)
    pid = bench.spawner.pid
    bench.spawner.close()
    assert processes.stat(pid) is not None
    assert bench.end(folder).exit_code == 4
    bench.until(lambda: processes.stat(pid) is None)


def test_an_idle_spawner_leaves_at_once(bench):
    bench.spawner.warm()
    pid = bench.spawner.pid
    bench.spawner.close()
    bench.until(lambda: processes.stat(pid) is None)


def test_supervisors_are_sessions_of_their_own(bench):
    """So that no Ctrl-C in the server's terminal reaches them."""
    view = bench.running(bench.launch("sleep 300"))
    assert os.getsid(view.supervisor_pid) == view.supervisor_pid
    assert os.getsid(view.state.payload_pid) == view.state.payload_pid
    assert os.getsid(bench.spawner.pid) == bench.spawner.pid


def test_idle_supervisors_do_not_wake(bench):
    """Waiting is all they do: no polling."""
    view = bench.running(bench.launch("sleep 300"))
    status = f"/proc/{view.supervisor_pid}/status"

    def wakes() -> str:
        with open(status) as file:
            return next(line for line in file if line.startswith("voluntary_ctxt_switches"))

    bench.until(lambda: (processes.stat(view.supervisor_pid) or view).state == "S")
    first = wakes()
    bench.run("sleep 1")
    assert wakes() == first


def test_the_copy_is_named_by_its_content(bench):
    copy = supervisor_copy(bench.root)
    assert supervisor_copy(bench.root) == copy
    assert copy.parent == bench.root
    assert copy.read_text().startswith('"""The small process that owns one instance')


def test_a_request_for_a_missing_folder_harms_nobody(bench):
    bench.spawner.start(bench.root / "instances" / "never-made")
    assert bench.run("exit 3").exit_code == 3


def test_each_change_is_told(bench):
    address = str(bench.root / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(10)
        folder = bench.launch("sleep 0.2", notify=address)
        assert listener.recv(100).decode() == folder.name
        assert instances.look(folder).state is not None
        assert listener.recv(100).decode() == folder.name
        assert bench.end(folder).exit_code == 0


def test_a_deaf_listener_blocks_nobody(bench):
    assert bench.run("exit 3", notify="/no/such/socket").exit_code == 3
