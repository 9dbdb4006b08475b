"""`down`: stops one's own server, and says what keeps running."""

import click

from cumulo.cli import background
from cumulo.cli.phrases import clean, plural
from cumulo.cli.session import note
from cumulo.client import Client
from cumulo.client.endpoint import Endpoint, own_server
from cumulo.domain.errors import CumuloError

_SHOWN = 10


@click.command("down")
@click.option("--cancel", is_flag=True, help="Cancel all active runs first, and wait until they have ended.")
def down_command(cancel: bool) -> None:
    """Stop the server on this machine. Runs go on, and the next `cumulo up` finds them again."""
    running = background.find()
    if running is None:
        click.echo("No server of yours is running.")
        return
    found = own_server(running.home)
    if cancel:
        if found is None:
            raise CumuloError("forbidden", f"the server's token under {running.home} can't be read")
        _cancel_all(found)
    told = going_on(found)
    background.stop(running)
    click.echo(told)


def going_on(found: Endpoint | None) -> str:
    """What keeps running without the server; asked before it stops."""
    unknown = "The server is stopped; runs that were active go on."
    if found is None:
        return unknown
    try:
        with Client(found, patience_s=0) as client:
            runs = list(client.runs(active=True, limit=1000))
    except CumuloError:
        return unknown
    if not runs:
        return "The server is stopped; nothing was running."
    working = [run for run in runs if run.status not in ("queued", "stopped")]
    waiting = sum(run.status == "queued" for run in runs)
    lines = [f"The server is stopped; {plural(len(working), 'run goes on', 'runs go on')}:"]
    if not working:
        lines = ["The server is stopped; nothing was running."]
    for run in working[:_SHOWN]:
        lines.append(f"  {run.id}  {clean(run.name)}  {run.status}  {clean(run.placed_on)}".rstrip())
    if len(working) > _SHOWN:
        lines.append(f"  and {len(working) - _SHOWN} more")
    if waiting:
        lines.append(f"{plural(waiting, 'run')} in the queue will wait for the next `cumulo up`.")
    if working:
        lines.append("To stop them too: cumulo up -d && cumulo down --cancel")
    return "\n".join(lines)


def _cancel_all(found: Endpoint) -> None:
    with Client(found) as client:
        runs = list(client.runs(active=True))
        for run in runs:
            try:
                client.cancel(run.id)
            except CumuloError as error:
                if error.code != "conflict":  # it ended in the meantime
                    raise
        if runs:
            note(f"cancelling {plural(len(runs), 'run')}")
        for run in runs:
            client.wait(run.id)
