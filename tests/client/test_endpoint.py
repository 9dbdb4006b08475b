"""Which server is talked to, in the order that people are told."""

import json
import os
import stat
from pathlib import Path

import pytest

from cumulo.client import CumuloError, endpoint
from cumulo.client.contexts import Context, Contexts

DEAD = 2**22 + 1  # more than any process id


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        "XDG_CONFIG_HOME": str(tmp_path / "config"), "CUMULO_HOME": str(tmp_path / "home"), "HOME": str(tmp_path),
        "CUMULO_SOCKET": str(tmp_path / "box.sock"),
    }  # fmt: skip


def own(env: dict[str, str], *, pid: int, socket: bool = False) -> None:
    home = Path(env["CUMULO_HOME"])
    home.mkdir()
    path = home / "server.sock"
    if socket:
        path.touch()
    state = {"pid": pid, "url": "http://127.0.0.1:7070", "socket": str(path) if socket else None}
    (home / "server.json").write_text(json.dumps(state))
    (home / "token").write_text("cumulo_own\n")


def log_in(env: dict[str, str], name: str = "box") -> None:
    contexts = Contexts.load(env)
    contexts.add(Context(name=name, url=f"https://{name}:7070", token=f"cumulo_{name}"))
    contexts.save()


def test_nothing_is_there(env: dict[str, str]):
    assert endpoint.look(env=env) is None
    with pytest.raises(CumuloError, match="no server is running") as caught:
        endpoint.find(env=env)
    assert "cumulo up" in caught.value.hint


def test_the_box_then_ones_own_then_the_context_then_what_is_named(env: dict[str, str]):
    Path(env["CUMULO_SOCKET"]).touch()
    assert endpoint.find(env=env).where == env["CUMULO_SOCKET"]
    own(env, pid=os.getpid())
    assert endpoint.find(env=env).token == "cumulo_own"
    log_in(env)
    assert endpoint.find(env=env).where == "https://box:7070"
    named = endpoint.find(env={**env, "CUMULO_SERVER": "http://other:1", "CUMULO_TOKEN": "t"})
    assert (named.where, named.token) == ("http://other:1", "t")
    assert endpoint.find("unix:/x.sock", env=env).socket == "/x.sock"


def test_ones_own_socket_is_preferred(env: dict[str, str]):
    own(env, pid=os.getpid(), socket=True)
    found = endpoint.find(env=env)
    assert found.socket == str(Path(env["CUMULO_HOME"]) / "server.sock")
    assert found.token is None


def test_a_server_that_was_killed_does_not_count(env: dict[str, str]):
    own(env, pid=DEAD)
    assert endpoint.look(env=env) is None


def test_a_context_can_be_named(env: dict[str, str]):
    log_in(env, "one")
    log_in(env, "two")
    assert endpoint.find("one", env=env).token == "cumulo_one"
    assert endpoint.find("https://one:7070/", env=env).token == "cumulo_one"
    with pytest.raises(CumuloError, match="neither a URL nor a context"):
        endpoint.find("three", env=env)


def test_contexts_are_for_their_owner_only(env: dict[str, str]):
    log_in(env)
    path = Path(env["XDG_CONFIG_HOME"]) / "cumulo" / "contexts.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_contexts_that_make_no_sense_are_said(env: dict[str, str]):
    path = Path(env["XDG_CONFIG_HOME"]) / "cumulo" / "contexts.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(CumuloError, match=r"contexts.json can't be read"):
        endpoint.look(env=env)


@pytest.mark.parametrize("url", ["box:7070", "ftp://x", "http://", "http://u:p@x", "http://x/path", "http://x:99999"])
def test_what_is_no_url(url: str):
    with pytest.raises(CumuloError, match="not a server's URL"):
        endpoint.check_url(url)


def test_where_ones_own_state_is():
    assert endpoint.own_home({"HOME": "/h"}) == Path("/h/.local/state/cumulo")
    assert endpoint.own_home({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == Path("/s/cumulo")
