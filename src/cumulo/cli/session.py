"""What all commands share: which server, which form of output, and the options that say so."""

import functools
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from cumulo.client import Client
from cumulo.client.decode import encode
from cumulo.client.endpoint import Endpoint, look

F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """One invocation of the command line. `client` is made when first used, so that `--help` needs no server."""

    def __init__(self, *, server: str | None, as_json: bool) -> None:
        self.server = server
        self.as_json = as_json
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self.server)
        return self._client

    def use(self, endpoint: Endpoint) -> None:
        """Talks to this endpoint from now on."""
        self._client = Client(endpoint)

    def start_own(self) -> None:
        """Where no server runs here and none is configured, this machine becomes a cloud, in the background."""
        if self.server is not None or look() is not None:
            return
        from cumulo.cli import background

        note("No server is configured: starting a cloud on this machine (`cumulo down` stops it)")
        self.use(background.start(background.Options()))

    def print_json(self, value: Any) -> None:
        """ASCII only, so that text from others can't act on a terminal."""
        click.echo(json.dumps(encode(value), indent=2))

    def print_json_line(self, value: Any) -> None:
        click.echo(json.dumps(encode(value)))
        sys.stdout.flush()


def with_session(function: F) -> F:
    """Gives a command `--server` and `--json`, and a Session as its first argument."""

    @click.option("--server", metavar="URL", help="The server to use: a URL, unix:PATH, or a context's name.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(function)
    def wrapped(*args: Any, server: str | None, as_json: bool, **options: Any) -> Any:
        return function(Session(server=server, as_json=as_json), *args, **options)

    return wrapped  # type: ignore[return-value]


def note(text: str = "") -> None:
    """Says something to the person: on stderr, so that stdout holds only what was asked for."""
    click.echo(text, err=True)


_COMMAND = "cumulo.command"


class TakesCommand(click.Command):
    """A command that takes what follows the first `--` word for word, before Click sees it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def command_after_dashes(ctx: click.Context) -> list[str] | None:
    """What followed `--`; None without one."""
    command: list[str] | None = ctx.meta.get(_COMMAND)
    return command


class RunName(click.ParamType[str]):
    """A run's id or name, completed from the names the server knows."""

    name = "run"

    def __init__(self, *, suffix: str = "") -> None:
        self.suffix = suffix

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            client = Client(patience_s=0)
            client.transport.timeout_s = 1.0
            names = client.names(incomplete)
        except Exception:  # completion is silent whatever happens: there is no place to say anything
            return []
        return [CompletionItem(name + self.suffix) for name in names]


RUN = RunName()
