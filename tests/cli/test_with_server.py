"""The command line against a real server with real processes: what a person does in a session."""

import fcntl
import http.client
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cumulo.client import Client
from cumulo.client.endpoint import own_server
from tests.cli.cumulo import Cumulo

pytestmark = pytest.mark.system

EMULATED = "2x A100-80GB:2"


@pytest.fixture(scope="module")
def cumulo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cumulo]:
    root = tmp_path_factory.mktemp("cloud")
    cumulo = Cumulo(root)
    text = cumulo.ok("up", "-d", "--emulate", EMULATED)
    assert "EMULATED: no real GPU is behind them" in text
    try:
        yield cumulo
    finally:
        if cumulo("status").returncode:
            cumulo.ok("up", "-d", "--emulate", EMULATED)
        cumulo.ok("down", "--cancel", timeout=100)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(
        "import os\nprint('hello from', os.environ['CUMULO_RUN_NAME'])\n"
        "open(os.environ['CUMULO_OUTPUT_DIR'] + '/model.txt', 'w').write('a model')\n"
    )
    return tmp_path


def eventually(check: Callable[[], bool], what: str, *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def start(cumulo: Cumulo, *words: str, cwd: Path | None = None) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        cumulo.argv(*words), env=cumulo.env, cwd=cwd or cumulo.root, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_launch_follow_and_fetch(cumulo: Cumulo, work: Path):
    done = cumulo("launch", "-y", "--gpus", "A100:2", "--", "python", "train.py", cwd=work)
    assert (done.returncode, done.stdout) == (0, b"hello from train\n"), done.stderr
    assert b"train succeeded" in done.stderr
    cumulo.ok("cp", "train:outputs/model.txt", ".", cwd=work)
    assert (work / "model.txt").read_text() == "a model"
    cumulo.ok("cp", "train:outputs", "all", cwd=work)
    assert (work / "all" / "model.txt").read_text() == "a model"
    assert cumulo.ok("logs", "train") == "hello from train\n"
    assert cumulo("wait", "train").returncode == 0
    [run] = json.loads(cumulo.ok("status", "--json"))[:1]
    assert run["status"] == "succeeded"


def test_the_runs_own_exit_code_and_why(cumulo: Cumulo):
    done = cumulo("launch", "-y", "--no-workdir", "--name", "bad", "--", "bash", "-c", "echo oops; exit 7")
    assert done.returncode == 7
    assert cumulo("wait", "bad").returncode == 100
    told = cumulo.ok("why", "bad")
    assert "7" in told.splitlines()[0]
    assert "  oops" in told.splitlines()
    signalled = cumulo("launch", "-y", "--no-workdir", "--name", "shot", "--", "bash", "-c", "kill -9 $$")
    assert signalled.returncode == 137


def test_ctrl_c_leaves_the_run_running_and_says_how_to_go_on(cumulo: Cumulo):
    process = start(cumulo, "launch", "-y", "--no-workdir", "--name", "goes-on", "--", "sleep", "300")
    assert process.stdout
    assert process.stderr
    with process.stdout, process.stderr:
        eventually(lambda: b"running" in cumulo("status", "goes-on").stdout, "it runs")
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
    assert process.wait(20) == 130
    assert "goes on. Follow: cumulo logs -f" in said
    assert json.loads(cumulo.ok("status", "goes-on", "--json"))["status"] == "running"
    cumulo.ok("cancel", "goes-on", "--wait", "--grace", "1s")
    assert cumulo("wait", "goes-on").returncode == 103


def test_asks_that_cannot_be_met(cumulo: Cumulo):
    assert cumulo("launch", "-y", "--no-workdir", "--gpus", "H100", "--", "true").returncode == 4
    done = cumulo("launch", "-y", "--no-workdir", "--gpus", "A1000", "--", "true")
    assert done.returncode == 2
    assert b"did you mean" in done.stderr


def test_gangs_and_arrays_say_whose_line_it_is(cumulo: Cumulo):
    gang = cumulo.ok("launch", "-y", "--no-workdir", "--nodes", "2", "--", "bash", "-c", "echo rank $CUMULO_RANK")
    assert sorted(gang.splitlines()) == ["[rank 0] rank 0", "[rank 1] rank 1"]
    words = ["--array", "3-5", "--", "bash", "-c", "echo index $CUMULO_ARRAY_INDEX"]
    array = cumulo.ok("launch", "-y", "--no-workdir", *words)
    assert sorted(array.splitlines()) == ["[3] index 3", "[4] index 4", "[5] index 5"]


@pytest.fixture(scope="module")
def box(cumulo: Cumulo) -> Iterator[str]:
    cumulo.ok("launch", "-y", "--dev", "--gpus", "1", "--name", "box", "--no-workdir")
    yield "box"
    cumulo.ok("cancel", "box", "--wait")


def test_exec_is_binary_safe_and_passes_the_exit_code_through(cumulo: Cumulo, box: str):
    data = os.urandom(3_000_000)
    done = cumulo("exec", box, "--", "sh", "-c", "cat; exit 5", stdin=data)
    assert done.returncode == 5
    assert done.stdout == data
    assert cumulo("exec", "nobody", "--", "true").returncode == 102


def test_files_go_in_and_come_out(cumulo: Cumulo, box: str, work: Path):
    cumulo.ok("cp", "train.py", f"{box}:src/", cwd=work)
    cumulo.ok("cp", "train.py", f"{box}:other.py", cwd=work)
    assert cumulo.ok("exec", box, "--", "ls", "src/train.py", "other.py").split() == ["other.py", "src/train.py"]
    cumulo.ok("cp", f"{box}:src", "back", cwd=work)
    assert (work / "back" / "train.py").read_text() == (work / "train.py").read_text()
    assert cumulo("cp", f"{box}:../../../etc/passwd", "x", cwd=work).returncode == 2


def test_a_terminal_of_the_right_size_that_is_put_back(cumulo: Cumulo, box: str):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        cumulo.argv("ssh", box),
        env={**cumulo.env, "LINES": "", "COLUMNS": ""},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    try:
        screen = _type(ours, "stty size\n", until="31 97")
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
        process.send_signal(signal.SIGWINCH)
        screen += _type(ours, "sleep 0.3; stty size\n", until="20 60")
        os.write(ours, b"exit 4\n")
        assert process.wait(20) == 4, screen
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def _type(terminal: int, text: str, *, until: str) -> str:
    os.write(terminal, text.encode())
    screen, deadline = "", time.monotonic() + 20
    while until not in screen:
        assert time.monotonic() < deadline, screen
        if select.select([terminal], [], [], 0.2)[0]:
            screen += os.read(terminal, 4096).decode(errors="replace")
    return screen


def test_a_port_of_the_run_is_reached_from_here(cumulo: Cumulo):
    serve = "import http.server, os; os.write(1, b'x'); s = http.server.HTTPServer(('127.0.0.1', 0), "
    serve += "http.server.SimpleHTTPRequestHandler); print(s.server_port, flush=True); s.serve_forever()"
    script = f'head -c 2000000 /dev/zero > zeros; exec python3 -c "{serve}"'
    cumulo.ok("launch", "-y", "-d", "--no-workdir", "--name", "web", "--", "bash", "-c", script)
    eventually(lambda: cumulo("logs", "web").stdout.endswith(b"\n"), "it listens")
    port = cumulo.ok("logs", "web").strip().removeprefix("x")
    process = start(cumulo, "ssh", "web", "-N", "-L", f"0:{port}")
    assert process.stdout
    assert process.stderr
    with process.stdout, process.stderr:
        url = process.stderr.readline().decode().split()[0]
        host, _, local = url.removeprefix("http://").partition(":")
        for _ in range(2):
            connection = http.client.HTTPConnection(host, int(local), timeout=20)
            connection.request("GET", "/zeros")
            assert connection.getresponse().read() == bytes(2_000_000)
            connection.close()
        process.send_signal(signal.SIGINT)
        process.stderr.read()
    assert process.wait(20) == 130
    assert cumulo("ssh", "web", "-N", "-L", f"{local}x").returncode == 2
    cumulo.ok("cancel", "web", "--wait", "--grace", "1s")


def test_a_log_is_followed_across_a_restart(cumulo: Cumulo):
    script = "for i in $(seq 80); do echo line $i; sleep 0.05; done"
    cumulo.ok("launch", "-y", "-d", "--no-workdir", "--name", "long", "--", "bash", "-c", script)
    process = start(cumulo, "logs", "-f", "long")
    assert process.stdout
    assert process.stderr
    with process.stdout, process.stderr:
        first = process.stdout.readline()
        assert "  long  running" in cumulo.ok("down")
        cumulo.ok("up", "-d", "--emulate", EMULATED)
        rest = process.stdout.read()
    assert process.wait(20) == 0
    assert (first + rest).decode().splitlines() == [f"line {number}" for number in range(1, 81)]


def test_a_second_up_is_told_of_the_first(cumulo: Cumulo):
    done = cumulo("up", "-d")
    assert done.returncode == 1
    assert b"a server is running already" in done.stderr


def test_a_token_opens_the_tcp_side(cumulo: Cumulo, tmp_path: Path):
    token = cumulo.ok("token", "create", "laptop").strip()
    found = own_server(Path(cumulo.env["CUMULO_HOME"]))
    assert found
    laptop = Cumulo(tmp_path)
    assert laptop("login", found.url, stdin=b"cumulo_x_y\n").returncode == 3
    laptop.ok("login", found.url, stdin=token.encode() + b"\n")
    laptop.ok("status")
    [mine] = [one for one in json.loads(laptop.ok("token", "list", "--json")) if one["label"] == "laptop"]
    assert token not in laptop.ok("token", "list", "--json")
    laptop.ok("token", "revoke", mine["id"])
    assert laptop("status").returncode == 3


def test_an_admin_sets_how_long_things_are_kept(cumulo: Cumulo):
    assert re.search(r"^outputs and checkpoints .* 30 days", cumulo.ok("df"), re.MULTILINE)
    text = cumulo.ok("df", "--keep", "outputs=forever", "--keep", "environments=36h")
    assert re.search(r"^outputs and checkpoints .* forever", text, re.MULTILINE)
    assert re.search(r"^environments .* 1.5 days", text, re.MULTILINE)
    assert "outputs forever (before: 30 days)" in cumulo.ok("events", "--kind", "storage.kept")
    done = cumulo("df", "--keep", "output=1d")
    assert (done.returncode, b"did you mean 'outputs'?" in done.stderr) == (2, True)
    cumulo.ok("sweep")


def test_the_sdk_reads_every_list(cumulo: Cumulo):
    found = own_server(Path(cumulo.env["CUMULO_HOME"]))
    with Client(found) as client:
        assert client.me().account
        assert {node.name for node in client.nodes()}
        assert client.offers("A100")[0].emulated
        assert client.telemetry().devices
        assert client.storage()
        assert client.doctor()
        assert client.usage(group="account").total
        run = client.submit({"name": "sdk", "run": "echo $X", "envs": {"X": "1"}}, idempotency_key="same")
        assert client.submit({"name": "sdk", "run": "echo $X", "envs": {"X": "1"}}, idempotency_key="same").id == run.id
        assert client.wait(run.id, timeout_s=30).status == "succeeded"
        assert b"".join(client.raw_log(run.id)) == b"1\n"
        assert [unit.status for unit in client.units(run.id)] == ["succeeded"]
        assert [event.run for event in client.events(run=run.id)]


def test_up_in_the_foreground_says_what_goes_on_when_it_stops(tmp_path: Path):
    cumulo = Cumulo(tmp_path)
    process = start(cumulo, "up", "--emulate", "T4:1")
    assert process.stdout
    assert process.stderr
    with process.stdout, process.stderr:
        assert process.stdout.readline().startswith(b"Cumulo ")
        cumulo.ok("launch", "-y", "-d", "--no-workdir", "--name", "stays", "--gpus", "T4", "--", "sleep", "300")
        eventually(lambda: b"running" in cumulo("status", "stays").stdout, "it runs")
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
    assert process.wait(20) == 0
    assert "1 run goes on:" in said
    assert "stays  running" in said
    assert cumulo("status").returncode == 1
    cumulo.ok("up", "-d", "--emulate", "T4:1")
    assert json.loads(cumulo.ok("status", "stays", "--json"))["status"] == "running"
    cumulo.ok("down", "--cancel")


def test_launch_starts_a_server_where_there_is_none(tmp_path: Path):
    cumulo = Cumulo(tmp_path)
    done = cumulo("launch", "-y", "--no-workdir", "--", "echo", "first")
    try:
        assert (done.returncode, done.stdout) == (0, b"first\n"), done.stderr
        assert b"starting a cloud on this machine" in done.stderr
    finally:
        cumulo.ok("down", "--cancel")
    assert cumulo.ok("down") == "No server of yours is running.\n"


def test_advise_starts_one_too(tmp_path: Path):
    cumulo = Cumulo(tmp_path)
    done = cumulo("advise", "train", "--model", "llama-2-7b", "--method", "lora", "--tokens", "100M")
    try:
        assert done.returncode == 0, done.stderr
        assert b"starting a cloud on this machine" in done.stderr
        assert b"Rent" in done.stdout
    finally:
        cumulo.ok("down", "--cancel")


@pytest.mark.skipif(os.geteuid() == 0, reason="needs an ordinary user")
def test_a_state_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "home").mkdir(mode=0o500)
    done = Cumulo(tmp_path)("up", "-d")
    assert done.returncode == 1
    assert b"can't be written" in done.stderr
