"""How the server is reached: one TCP address, and a unix socket that knows who is at its other end.

uvicorn serves both from one loop. Two things are ours: the uid of a unix peer (SO_PEERCRED) stands where a TCP peer
has its address, and TLS is for TCP alone.
"""

import asyncio
import contextlib
import errno
import functools
import ipaddress
import signal
import socket
import ssl
import stat
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from cumulo.domain.errors import CumuloError
from cumulo.server.auth import PEER_PREFIX
from cumulo.server.gate import App

DEFAULT_PORT: Final = 7070
_BACKLOG: Final = 1024
# Streams end by themselves when the feed closes, and terminals say why; uvicorn would cut them off at once.
_FAREWELL_S: Final = 0.1
# Whatever is still open after this is cut.
_GRACE_S: Final = 1.5
_MAX_FRAME: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen. `port` None: the usual one, or any if that is taken; `socket` None: no unix socket."""

    host: str = "127.0.0.1"
    port: int | None = None
    socket: Path | None = None
    socket_mode: int = 0o600
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check(self) -> None:
        """Raises CumuloError (invalid_request), also for what would send tokens over a network in the clear."""
        if self.port is not None and not 0 <= self.port <= 65535:
            raise CumuloError("invalid_request", f"{self.port} is no port: they go from 1 to 65535")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise CumuloError(
                "invalid_request", "TLS needs both a certificate and its key", hint="--tls-cert, --tls-key"
            )
        if not (self.loopback or self.tls_cert or self.insecure):
            raise CumuloError(
                "invalid_request",
                f"{self.host} can be reached over the network, and without TLS tokens would travel in the clear",
                hint="give --tls-cert and --tls-key, or --insecure if the network is trusted",
            )


class Listeners:
    """Bound sockets: `tcp` and perhaps `unix`. Binding comes first of all, so that a taken port is told at once."""

    def __init__(self, address: Address) -> None:
        address.check()
        self.address = address
        self.tls = _tls(address)
        self.tcp = _bind_tcp(address)
        try:
            self.unix = _bind_unix(address.socket, address.socket_mode) if address.socket else None
        except BaseException:
            self.tcp.close()
            raise

    @property
    def url(self) -> str:
        host, port = self.tcp.getsockname()[:2]
        if host in ("0.0.0.0", "::"):  # noqa: S104 (told apart, not bound here)
            host = socket.gethostname()
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{shown}:{port}"

    def close(self) -> None:
        self.tcp.close()
        if self.unix is not None and self.address.socket is not None:
            self.unix.close()
            self.address.socket.unlink(missing_ok=True)


def _tls(address: Address) -> ssl.SSLContext | None:
    if address.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(address.tls_cert, address.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise CumuloError(
            "invalid_request", f"the certificate {address.tls_cert} and its key can't be used: {error}"
        ) from None
    return context


def _bind_tcp(address: Address) -> socket.socket:
    if address.port is not None:
        return _bind_port(address.host, address.port)
    try:
        return _bind_port(address.host, DEFAULT_PORT)
    except CumuloError:
        return _bind_port(address.host, 0)


def _bind_port(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(found[0], found[1])
    except (OSError, OverflowError) as error:
        raise CumuloError("invalid_request", f"can't listen on {host}: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(found[4])
        bound.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        bound.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise CumuloError(
                "conflict", f"port {port} of {host} is in use", hint="choose another with --port, or leave it out"
            ) from None
        raise CumuloError("invalid_request", f"can't listen on {host}:{port}: {error}") from None
    return bound


def _bind_unix(path: Path, mode: int) -> socket.socket:
    _clear_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Nobody can connect before `listen`, so the mode is right before it matters.
        bound.bind(str(path))
        path.chmod(mode)
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise CumuloError("invalid_request", f"can't make the socket {path}: {error}") from None
    return bound


def _clear_stale(path: Path) -> None:
    """Removes the socket that a killed server left. Raises CumuloError (conflict) if one answers there."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise CumuloError("conflict", f"{path} is there and is no socket", hint="choose another with --socket")
    except (FileNotFoundError, NotADirectoryError):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise CumuloError("conflict", f"the socket {path} can't be taken over: {error}") from None
    raise CumuloError("conflict", f"another server answers on {path}", hint="choose another with --socket")


def peer_of(transport: Any) -> tuple[str, int] | None:
    """(`uid:1000`, pid) of the process at the other end of a unix socket; None for TCP."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _gid = struct.unpack("3i", raw)
    return f"{PEER_PREFIX}{uid & 0xFFFFFFFF}", pid


class _Http(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = peer_of(transport) or self.client


class _WebSocket(WebSocketsSansIOProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = peer_of(transport) or self.client


class Server(uvicorn.Server):
    """uvicorn on our sockets. `on_ready` is called once it accepts; `on_stopping` when it begins to stop."""

    def __init__(
        self, app: App, listeners: Listeners, *, on_ready: Callable[[], None], on_stopping: Callable[[], None]
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Http,
                ws=_WebSocket,
                loop="asyncio",
                lifespan="on",
                access_log=False,
                log_config=None,
                proxy_headers=False,
                server_header=False,
                ws_max_size=_MAX_FRAME,
                ws_per_message_deflate=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=_GRACE_S,  # type: ignore[arg-type]
            )
        )
        self._listeners = listeners
        self._on_ready, self._on_stopping = on_ready, on_stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise CumuloError("internal", "the server could not start", hint="its log has the details")
        protocol = functools.partial(
            _Http, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        loop, bound = asyncio.get_running_loop(), self._listeners
        self.servers = [await loop.create_server(protocol, sock=bound.tcp, ssl=bound.tls, backlog=_BACKLOG)]
        if bound.unix is not None:
            self.servers.append(await loop.create_unix_server(protocol, sock=bound.unix, backlog=_BACKLOG))
        self.started = True
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stopping()
        await asyncio.sleep(_FAREWELL_S)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """SIGTERM and SIGINT stop the server once; a second one does not wait for anybody."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError, RuntimeError):  # not the main thread: a test stops it otherwise
                loop.add_signal_handler(number, self.stop)
        yield

    def stop(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


def run(server: Server) -> None:
    """Serves until told to stop."""
    asyncio.run(server.serve())
