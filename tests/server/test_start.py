"""What a server that can't start says: one line that tells what, where and what to do, and nothing half-made."""

import errno
import json
import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.server.__main__ import main
from cumulo.server.listen import Address, Listeners
from cumulo.server.state import BOX_SOCKET, Running, StateFolder, default_home, default_socket, told


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def start(monkeypatch, tmp_path, home, capsys):
    """Starts a server that is to refuse: (exit code, what it said)."""
    monkeypatch.setenv("CUMULO_HOME", str(home))
    monkeypatch.setenv("CUMULO_SOCKET", str(tmp_path / "s"))
    monkeypatch.delenv("CUMULO_DATABASE", raising=False)

    def begin(*words):
        words = words if "--port" in words else (*words, "--port", "0")
        code = main(list(words))
        said = capsys.readouterr().err
        assert said.startswith("error: ")
        return code, said

    return begin


def test_a_second_server_is_refused_and_names_the_first(start, home):
    first = StateFolder(home)
    first.claim()
    code, said = start()
    first.release()
    assert code == 1
    assert said.startswith(f"error: a server already runs on {home} (pid {os.getpid()})\nhint: ")


def test_a_taken_port_is_told(start, home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = start("--port", str(port))
    assert code == 1
    assert said.startswith(f"error: port {port} of 127.0.0.1 is in use\nhint: ")
    assert not (home / "cumulo.db").exists()  # nothing was made


def test_a_socket_that_somebody_answers_on_is_left_alone(start, tmp_path):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        other.listen()
        code, said = start()
        assert (tmp_path / "s").exists()
    assert code == 1
    assert "another server answers on" in said


def test_what_is_no_socket_is_left_alone(start, tmp_path):
    (tmp_path / "s").write_text("precious")
    code, said = start()
    assert code == 1
    assert "is no socket" in said
    assert (tmp_path / "s").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", "0.0.0.0"], "tokens would travel in the clear"),
        (["--host", "no.such.host.invalid", "--insecure"], "can't listen on no.such.host.invalid"),
        (["--tls-cert", "/nowhere"], "TLS needs both"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "can't be used"),
        (["--port", "99999"], "99999 is no port"),
        (["--port", "-1"], "-1 is no port"),
        (["--emulate", "NOSUCHGPU:8"], "--emulate: "),
    ],
)
def test_a_wrong_argument_is_told(start, words, told):
    code, said = start(*words)
    assert code == 2
    assert told in said


def test_a_database_that_cannot_be_used_is_told_without_its_password(start, monkeypatch):
    monkeypatch.setenv("CUMULO_DATABASE", "mysql://u:secret@h/d")
    code, said = start()
    assert code == 2
    assert said.startswith("error: mysql is not a database")
    assert "secret" not in said


@pytest.mark.skipif(os.geteuid() == 0, reason="needs an ordinary user")
def test_a_folder_that_cannot_be_written_is_told(start, home):
    home.mkdir(mode=0o500)
    code, said = start()
    assert code == 1
    assert said.startswith(f"error: the state folder {home} can't be written: permission denied\nhint: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("options", "words"), [("ro,size=1m", "can't be written: read-only file system"), ("size=64k", "is full")]
)
def test_a_disk_that_takes_nothing_is_told(start, home, options, words):
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(home)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        code, said = start()
    finally:
        subprocess.run(["umount", str(home)], check=True)
    assert code == 1
    assert words in said
    assert "hint: " in said


def test_errors_of_the_folder_have_their_own_codes():
    assert told(OSError(errno.ENOSPC, "x"), Path("/h")).code == "storage_full"
    assert told(OSError(errno.EACCES, "Permission denied"), Path("/h")).code == "storage_read_only"


def test_where_the_state_lies():
    assert default_home({"CUMULO_HOME": "/a"}) == Path("/a")
    assert default_home({"XDG_STATE_HOME": "/x", "HOME": "/h"}) == Path("/x/cumulo")
    assert default_home({"HOME": "/h"}) == Path("/h/.local/state/cumulo")


def test_where_the_socket_lies(monkeypatch):
    home = Path("/home/a/state")
    assert default_socket(home, {"CUMULO_SOCKET": "/s"}) == Path("/s")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_socket(home, {}) == home / "server.sock"
    assert default_socket(Path("/" + "x" * 120), {}) is None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_socket(home, {}) == BOX_SOCKET
    assert default_socket(home, {"CUMULO_HOME": str(home)}) == home / "server.sock"


def test_what_is_announced_is_whole_and_goes_with_the_server(tmp_path):
    folder = StateFolder(tmp_path / "home")
    folder.claim()
    folder.announce(Running(pid=7, url="http://127.0.0.1:1", socket=None, version="1", started_at="now"))
    told = json.loads((folder.home / "server.json").read_text())
    assert told == {"pid": 7, "url": "http://127.0.0.1:1", "socket": None, "version": "1", "started_at": "now"}
    folder.write("token", "secret\n", mode=0o600)
    assert stat.S_IMODE((folder.home / "token").stat().st_mode) == 0o600
    assert folder.read("token") == "secret"
    assert folder.read("nothing") is None
    folder.release()
    assert not (folder.home / "server.json").exists()
    StateFolder(tmp_path / "home").claim()  # the lock is free again


def test_a_stale_socket_is_replaced(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    listeners = Listeners(Address(port=0, socket=path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert listeners.url.startswith("http://127.0.0.1:")
    listeners.close()
    assert not path.exists()


def test_without_a_port_the_usual_one_or_any_is_taken(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("cumulo.server.listen.DEFAULT_PORT", taken.getsockname()[1])
        listeners = Listeners(Address())
        assert listeners.tcp.getsockname()[1] != taken.getsockname()[1]
        listeners.close()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("box.example", False),
    ],
)
def test_loopback_is_known_in_all_its_spellings(host, loopback):
    assert Address(host=host).loopback is loopback


def test_insecure_is_allowed_when_asked_for():
    Address(host="0.0.0.0", insecure=True).check()
    with pytest.raises(CumuloError, match="in the clear"):
        Address(host="0.0.0.0").check()
