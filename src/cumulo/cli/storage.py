"""`df` and `sweep`: what the server keeps on disk, for how long, and removing what it need not."""

import click

from cumulo.cli import phrases
from cumulo.cli.phrases import DASH, clean
from cumulo.cli.session import Session, with_session
from cumulo.cli.tables import Column, render
from cumulo.client.answers.service import StorageRow


@click.command("df")
@with_session
def df_command(session: Session) -> None:
    """Show what is stored, how much of it, and how long it is kept."""
    found = session.client.storage()
    if session.as_json:
        session.print_json(found)
    else:
        click.echo(table(found))


@click.command("sweep")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@with_session
def sweep_command(session: Session, dry_run: bool) -> None:
    """Remove what is older than it is kept for. What runs, or is needed by what runs, stays."""
    swept = session.client.sweep(dry_run=dry_run)
    if session.as_json:
        session.print_json(swept)
        return
    gone = [row for row in swept if row.bytes or row.count]
    for row in gone:
        count = "" if row.count is None else f"{row.count:,} of "
        click.echo(f"{'would remove' if dry_run else 'removed'} {count}{clean(row.what)}, {phrases.size(row.bytes)}")
    if not gone:
        click.echo("Nothing to remove.")


def table(found: tuple[StorageRow, ...]) -> str:
    columns = (
        Column("WHAT"), Column("SIZE", right=True), Column("COUNT", right=True), Column("KEPT", right=True),
        Column("PATH", shrinks=True),
    )  # fmt: skip
    rows = [
        [
            clean(row.what), phrases.size(row.bytes), DASH if row.count is None else f"{row.count:,}",
            DASH if row.kept_days is None else f"{row.kept_days:g} days", clean(row.path),
        ]
        for row in found
    ]  # fmt: skip
    return render(columns, rows)
