"""`logs`: what a run has written, as it is, and as it comes."""

import sys

import click

from cumulo.cli.follow import LogWriter, has_several
from cumulo.cli.session import RUN, Session, note, with_session
from cumulo.client.answers.logs import LogText
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import parse_duration


@click.command("logs")
@click.argument("run", type=RUN)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("-n", "--tail", type=click.IntRange(min=0), help="Begin with the last so many lines of the last attempt.")
@click.option("--since", metavar="WHEN", help="Begin at a time (ISO 8601) or so long ago (10m, 2h).")
@click.option("--unit", type=click.IntRange(min=0), metavar="INDEX", help="Of an array: this index.")
@click.option("--rank", type=click.IntRange(min=0), help="Of a run on several nodes: this one.")
@click.option("--attempt", type=click.IntRange(min=1), help="This attempt alone.")
@click.option("--raw", is_flag=True, help="One instance's log byte for byte, even what is not UTF-8.")
@with_session
def logs_command(
    session: Session, run: str, follow: bool, tail: int | None, since: str | None,
    unit: int | None, rank: int | None, attempt: int | None, raw: bool,
) -> None:  # fmt: skip
    """Print RUN's log, its attempts one after the other; with -f follow it, across restarts of the server, until the
    run ends.

    With --json, one JSON object a line: {"source", "unit", "attempt", "rank", "text"}.
    """
    if raw:
        if follow or tail is not None or since is not None:
            raise click.UsageError("--raw prints one whole log: it goes with --unit, --rank and --attempt only")
        for data in session.client.raw_log(run, unit=unit, attempt=attempt, rank=rank):
            sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    row = session.client.run(run)
    if row.units > 1 and unit is None and not follow:
        raise CumuloError(
            "invalid_request",
            f"{row.name} is an array of {row.units}: say whose log",
            hint=f"cumulo logs {row.name} --unit INDEX, or -f to follow all of them",
        )
    prefixed = has_several(row) and rank is None and (unit is None or row.units == 1)
    writer = LogWriter(sys.stdout.buffer, prefixed)
    for event in session.client.logs(
        row.id, follow=follow, tail=tail, since=_since(since), unit=unit, attempt=attempt, rank=rank,
        on_trouble=lambda reason: note(f"the server went away ({reason}); waiting for it"),
    ):  # fmt: skip
        if isinstance(event, LogText):
            if session.as_json:
                session.print_json_line(event)
            else:
                writer.write(event)
    writer.close()


def _since(text: str | None) -> str | float | None:
    if text is None:
        return None
    if "T" in text or (text[:4].isdigit() and "-" in text):
        return text
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from None
