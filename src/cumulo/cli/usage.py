"""`usage`: what was used, by whom, and what it cost."""

from datetime import timedelta

import click

from cumulo.cli import phrases
from cumulo.cli.phrases import DASH, clean
from cumulo.cli.session import Session, with_session
from cumulo.cli.tables import Column, render
from cumulo.client.answers.cloud import Usage, UsageRow
from cumulo.client.decode import encode
from cumulo.domain.quantities import parse_duration


@click.command("usage")
@click.option("--since", metavar="WHEN", help="From a time (ISO 8601) or so long ago (7d, 12h).")
@click.option("--until", metavar="WHEN", help="Up to a time.")
@click.option(
    "--by",
    "group",
    type=click.Choice(["run", "account", "project", "purchase"]),
    default="run",
    help="Sums by this (default run).",
)  # fmt: skip
@with_session
def usage_command(session: Session, since: str | None, until: str | None, group: str) -> None:
    """Show what was used and what it cost, beside what the same GPUs rent for."""
    found = session.client.usage(since=_time(since), until=_time(until), group=group)
    if session.as_json:
        session.print_json(found)
    else:
        click.echo(bill(found, group) if found.items else "Nothing was used.")


def bill(found: Usage, group: str) -> str:
    """Rows and their sum."""
    columns = (
        Column(group.upper(), shrinks=True), Column("GPU HOURS", right=True), Column("CPU HOURS", right=True),
        Column("COST", right=True), Column("RENTS FOR", right=True),
    )  # fmt: skip
    rows = [_row(row) for row in found.items]
    if found.total:
        rows.append(["total", *_row(found.total)[1:]])
    return render(columns, rows)


def _row(row: UsageRow) -> list[str]:
    hours = [f"{seconds / 3600:,.3f}" for seconds in (row.gpu_seconds, row.cpu_seconds)]
    label = f"{clean(row.name)} ({clean(row.key)})" if row.name else clean(row.key)
    # Emulated devices and CPUs have no list price, which is not the same as renting for nothing.
    rental = phrases.usd(row.rental_usd) if float(row.rental_usd or 0) else DASH
    return [label, *hours, phrases.usd(row.cost_usd), rental]


def _time(text: str | None) -> str | None:
    if text is None or "-" in text:
        return text
    try:
        return str(encode(phrases.now() - timedelta(seconds=parse_duration(text))))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="WHEN") from None
