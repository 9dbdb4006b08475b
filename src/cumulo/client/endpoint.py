"""Which server to talk to, and as whom.

In order: `--server` or $CUMULO_SERVER (with $CUMULO_TOKEN); the current context, made by `cumulo login`; one's own
server, whose state folder is $CUMULO_HOME; the server of this box, at its well-known socket.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from cumulo.client.contexts import Context, Contexts
from cumulo.domain.errors import CumuloError

BOX_SOCKET = "/run/cumulo/server.sock"
_START = "start one with `cumulo up -d`, or log in to one with `cumulo login URL`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server's address, with what opens it. `socket` wins over `url`; `hint` is for people when nobody answers."""

    url: str
    socket: str | None = None
    token: str | None = None
    ca_file: str | None = None
    hint: str = "check the address, and that the server runs"

    @property
    def where(self) -> str:
        return self.socket or self.url


def own_home(env: Mapping[str, str]) -> Path:
    """The state folder of one's own server."""
    if home := env.get("CUMULO_HOME"):
        return Path(home).absolute()
    state = env.get("XDG_STATE_HOME") or Path(env.get("HOME") or Path.home()) / ".local" / "state"
    return Path(state) / "cumulo"


def find(server: str | None = None, *, env: Mapping[str, str] | None = None) -> Endpoint:
    """The endpoint to use. `server` is a URL, `unix:PATH`, or the name of a context.

    Raises CumuloError (`unreachable`) when there is none, saying how to get one.
    """
    endpoint = look(server, env=env)
    if endpoint is None:
        raise CumuloError("unreachable", "no server is running here, and none is configured", hint=_START)
    return endpoint


def look(server: str | None = None, *, env: Mapping[str, str] | None = None) -> Endpoint | None:
    """Like `find`, with None where there is none. An explicit choice that can't be understood still raises."""
    env = os.environ if env is None else env
    named = server or env.get("CUMULO_SERVER")
    contexts = Contexts.load(env)
    if named:
        endpoint = _named(named, contexts)
        token = env.get("CUMULO_TOKEN")
        return replace(endpoint, token=token) if token else endpoint
    if current := contexts.get_current():
        return _of_context(current)
    return own_server(own_home(env)) or _box(env)


def _named(named: str, contexts: Contexts) -> Endpoint:
    if named.startswith("unix:"):
        return Endpoint(url="http://localhost", socket=named.removeprefix("unix:"))
    if "://" not in named:
        if context := contexts.get(named):
            return _of_context(context)
        raise CumuloError(
            "invalid_request",
            f"{named!r} is neither a URL nor a context",
            hint="write http://HOST:PORT, unix:PATH, or a name that `cumulo context list` shows",
        )
    url = check_url(named)
    known = contexts.by_url(url)
    return _of_context(known) if known else Endpoint(url=url)


def check_url(text: str) -> str:
    """`text` as a server's URL without a path. Raises CumuloError (`invalid_request`)."""
    try:
        parts = urlsplit(text)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/")
        right = right and (parts.port is None or parts.port > 0) and not (parts.query or parts.username)
    except ValueError:
        right = False
    if not right:
        raise CumuloError(
            "invalid_request", f"{text!r} is not a server's URL", hint="write for example https://box.example:7070"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _of_context(context: Context) -> Endpoint:
    return Endpoint(
        url=context.url,
        token=context.token,
        ca_file=context.ca_file,
        hint=f"check that the server runs; another context: `cumulo context use NAME` (this is {context.name})",
    )


def own_server(home: Path) -> Endpoint | None:
    """One's own server, if its process lives. A file left behind by a server that was killed does not count."""
    try:
        state = json.loads((home / "server.json").read_text())
        pid, url = int(state["pid"]), str(state.get("url") or "")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not alive(pid):
        return None
    path = state.get("socket")
    if path and os.path.exists(path):
        return Endpoint(url=url or "http://localhost", socket=path, hint=_hint_ofown_server(home))
    try:
        token = (home / "token").read_text().strip()
    except OSError:
        return None  # somebody else's folder: their server is not ours to use
    return Endpoint(url=url, token=token, hint=_hint_ofown_server(home))


def _hint_ofown_server(home: Path) -> str:
    return f"see {home / 'server.log'}; start it again with `cumulo up -d`"


def _box(env: Mapping[str, str]) -> Endpoint | None:
    path = env.get("CUMULO_SOCKET") or BOX_SOCKET
    if not os.path.exists(path):
        return None
    return Endpoint(
        url="http://localhost", socket=path, hint="the box's server is not running: ask its admin for `cumulo up -d`"
    )


def alive(pid: int) -> bool:
    """Whether a process of that id exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return stat.rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
