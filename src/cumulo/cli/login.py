"""`login` and `context`: servers elsewhere, by name."""

import os
import sys
from urllib.parse import urlsplit

import click

from cumulo.cli.phrases import clean
from cumulo.cli.session import Session, with_session
from cumulo.cli.tables import Column, is_terminal, render
from cumulo.client import Client
from cumulo.client.contexts import Context, Contexts
from cumulo.client.endpoint import Endpoint, check_url
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import name_from


@click.command("login")
@click.argument("url")
@click.option("--name", help="What to call it (default: the host's name).")
@click.option("--ca", type=click.Path(exists=True, dir_okay=False), help="The authority that signed its certificate.")
def login_command(url: str, name: str | None, ca: str | None) -> None:
    """Log in to the server at URL with a token that its admin made (`cumulo token create`).

    The token is asked for, or read from standard input; it is kept in a file that only you can read.
    """
    url = check_url(url)
    ca_file = os.path.abspath(ca) if ca else None
    endpoint = Endpoint(url=url, ca_file=ca_file)
    Client(endpoint).health()  # before the token is shown to whoever that is
    if is_terminal(sys.stdin):
        token = click.prompt("Token", hide_input=True, err=True).strip()
    else:
        token = sys.stdin.readline().strip()
    if not token:
        raise click.UsageError("no token was given")
    with Client(Endpoint(url=url, token=token, ca_file=ca_file)) as client:
        me = client.me()
    contexts = Contexts.load(os.environ)
    known = contexts.by_url(url)
    called = name or (known.name if known else name_from(urlsplit(url).hostname or "server"))
    contexts.add(Context(name=called, url=url, token=token, ca_file=ca_file))
    contexts.save()
    click.echo(f"Logged in to {url} as {clean(me.account)}. It is the current context, {called!r}.")


@click.group("context")
def context_command() -> None:
    """List the servers you are logged in to, and choose one."""


@context_command.command("list")
@with_session
def list_command(session: Session) -> None:
    """List contexts; the current one has a star."""
    contexts = Contexts.load(os.environ)
    if session.as_json:
        known = [
            {"name": one.name, "url": one.url, "current": one.name == contexts.current}
            for one in contexts.known.values()
        ]
        session.print_json(known)
    elif contexts.known:
        rows = [["*" if one.name == contexts.current else "", one.name, one.url] for one in contexts.known.values()]
        click.echo(render((Column(""), Column("NAME"), Column("URL")), rows))
    else:
        click.echo("No contexts; `cumulo login URL` makes one. Without one, this machine's own server is used.")


@context_command.command("use")
@click.argument("name")
def use_command(name: str) -> None:
    """Make NAME the current context; `local` means this machine's own server."""
    contexts = Contexts.load(os.environ)
    if name != "local" and contexts.get(name) is None:
        known = ", ".join(["local", *contexts.known])
        raise CumuloError("not_found", f"there is no context {name!r}", hint=f"known: {known}")
    contexts.current = None if name == "local" and not contexts.get(name) else name
    contexts.save()
    click.echo(f"Using {name}.")


@context_command.command("remove")
@click.argument("name")
def remove_command(name: str) -> None:
    """Forget NAME and its token."""
    contexts = Contexts.load(os.environ)
    if contexts.known.pop(name, None) is None:
        raise CumuloError("not_found", f"there is no context {name!r}")
    contexts.current = None if contexts.current == name else contexts.current
    contexts.save()
    click.echo(f"Forgot {name}. The token itself still works until it is revoked.")
