"""`up`: this machine becomes a cloud, in the foreground or in the background.

The server is a process of its own either way (`python -m cumulo.server`). In the foreground it is ours to stop; what
runs on the machine is never stopped with it.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from cumulo import __version__
from cumulo.cli import background, phrases
from cumulo.cli.background import Options
from cumulo.cli.down import going_on
from cumulo.cli.phrases import clean
from cumulo.cli.session import note
from cumulo.cli.tables import pairs, styled
from cumulo.client import Client
from cumulo.client.answers.cloud import Node
from cumulo.client.endpoint import Endpoint, own_home, own_server
from cumulo.domain.errors import CumuloError

_EMULATED = " (EMULATED: no real GPU is behind them)"
_SIMULATED = " (SIMULATED: nothing is started on them)"


class _Stop(Exception):
    """A signal asked us to end."""


@click.command("up")
@click.option("-d", "--detach", is_flag=True, help="Start it in the background and return once it answers.")
@click.option(
    "--emulate",
    metavar="SPEC",
    help="Emulated GPUs: A100-80GB:8, or '2x H100-80GB:8,T4:1' for 3 nodes. Kept for the next start; off ends it.",
)
@click.option(
    "--simulate",
    metavar="SPEC",
    help="Simulated nodes, written the same way: nothing is started on them. For a state folder of its own.",
)
@click.option("--database", metavar="URL", help="postgresql://… instead of SQLite under the state folder.")
@click.option("--host", help="Address to listen on (default: loopback).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option("--socket", metavar="PATH", help="Where the local socket lies.")
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="Certificate for TLS.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Its key.")
@click.option("--insecure", is_flag=True, help="Allow an address other than loopback without TLS.")
def up_command(detach: bool, tls_cert: str | None, tls_key: str | None, **flags: object) -> int:
    """Make this machine a cloud.

    State lies under $CUMULO_HOME. Stopping the server (Ctrl-C, or `cumulo down`) stops no run.
    """
    options = Options(tls_cert=_absolute(tls_cert), tls_key=_absolute(tls_key), **flags)  # type: ignore[arg-type]
    running = background.find()
    if running:
        found = own_server(running.home)
        where = f" at {found.url}" if found else ""
        raise CumuloError(
            "conflict",
            f"a server is running already{where} (pid {running.pid}, state {running.home})",
            hint="`cumulo down` stops it; another one needs another $CUMULO_HOME",
        )
    if detach:
        click.echo(banner(background.start(options), stop="cumulo down"))
        return 0
    return _foreground(options)


def _absolute(path: str | None) -> str | None:
    return os.path.abspath(path) if path else None


def _foreground(options: Options) -> int:
    """Runs the server until it ends or we are told to stop; its exit code, 0 if we stopped it."""
    with _stopping_on_signals():
        # Its own session: Ctrl-C reaches us alone, so that the server still answers when we ask what goes on.
        child = subprocess.Popen(
            [sys.executable, "-m", "cumulo.server", *options.arguments()],
            stdin=subprocess.DEVNULL, env={**os.environ, **options.environment()}, start_new_session=True,
        )  # fmt: skip
        try:
            try:
                found = background.await_answer(child)
            except CumuloError:
                if child.poll() is None:
                    raise
                return child.returncode or 1  # it has said why
            click.echo(banner(found, stop="Ctrl-C"))
            sys.stdout.flush()
            return child.wait()
        except _Stop:
            note("\n" + going_on(own_server(own_home(os.environ))))
            return 0
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()


@contextmanager
def _stopping_on_signals() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)  # once is enough: the rest is done in a moment
        raise _Stop

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(one, stop) for one in signals]
    try:
        yield
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)


def banner(found: Endpoint, *, stop: str) -> str:
    """What a person wants to know of a server that has just started."""
    with Client(found) as client:
        nodes = client.nodes()
    gpu = next((device.model for node in nodes for device in node.devices), None)
    ask = f"--gpus {clean(gpu)} " if gpu else ""
    rows = [
        ("address", found.url if found.url != "http://localhost" else ""),
        ("socket", found.socket or ""),
        ("state", str(own_home(os.environ))),
        ("devices", devices(nodes)),
        ("launch", f"cumulo launch {ask}-- python train.py"),
        ("stop", f"{stop} (runs go on)"),
    ]
    return f"{styled(f'Cumulo {__version__} is up', 'bold')}\n{pairs(rows)}"


def devices(nodes: tuple[Node, ...]) -> str:
    """`8x A100-80GB on 2 nodes`, with EMULATED or SIMULATED where nothing real is behind them."""
    counts: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        emulated = _SIMULATED if node.region == "simulated" else _EMULATED
        counts.update((device.model, emulated if device.emulated else "") for device in node.devices)
    if not counts:
        return "no GPU found; runs get CPUs and memory (emulate some: cumulo up --emulate A100-80GB:8)"
    parts = [f"{count}x {clean(model)}{remark}" for (model, remark), count in counts.items()]
    return f"{', '.join(parts)} on {phrases.plural(len(nodes), 'node')}"
