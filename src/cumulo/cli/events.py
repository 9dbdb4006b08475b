"""`events`: what happened, as immutable facts in order."""

import click

from cumulo.cli import phrases
from cumulo.cli.phrases import clean
from cumulo.cli.session import RUN, Session, with_session
from cumulo.client.answers.cloud import Event


@click.command("events")
@click.argument("run", required=False, type=RUN)
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--after", type=click.IntRange(min=0), metavar="SEQ", help="Only what came after this number.")
@click.option("--kind", help="Only events of this kind.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="The newest so many; the first with --after.",
)
@with_session
def events_command(
    session: Session, run: str | None, follow: bool, after: int | None, kind: str | None, limit: int
) -> None:
    """List events, oldest first; of one RUN, or all. With -f follow them (as JSON: one object a line)."""
    if run is not None:
        run = session.client.run(run).id
    if not follow:
        newest = limit if after is None else None
        found = list(session.client.events(run=run, after=after, newest=newest, kind=kind, limit=limit))
        if session.as_json:
            session.print_json(found)
        else:
            for event in found:
                click.echo(line(event))
        return
    for event in session.client.follow_events(run=run, after=after, kind=kind):
        if session.as_json:
            session.print_json_line(event)
        else:
            click.echo(line(event))


def line(event: Event) -> str:
    """`14:05:00  run.started  train-3f  …`."""
    about = event.instance or event.run or event.node or event.account or ""
    message = f"  {clean(event.message)}" if event.message else ""
    return f"{phrases.clock(event.at)}  {clean(event.kind)}  {clean(about)}{message}"
