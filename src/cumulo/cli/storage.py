"""`df` and `sweep`: what the server keeps on disk, for how long, and removing what it need not."""

from typing import Final

import click

from cumulo.cli import phrases
from cumulo.cli.phrases import DASH, clean
from cumulo.cli.session import Session, with_session
from cumulo.cli.tables import Column, render
from cumulo.client.answers.service import StorageRow
from cumulo.domain.quantities import parse_duration

_DAY_S: Final = 86400.0
_FOREVER: Final = "forever"


class Kept(click.ParamType[tuple[str, float | None]]):
    """`logs=14d`, `outputs=forever`: a name and days. A number needs its unit, since files go by it."""

    name = "kept"

    def convert(
        self, value: str | tuple[str, float | None], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float | None]:
        if isinstance(value, tuple):
            return value
        name, _, time = value.partition("=")
        if not name or not time or time.strip().replace(".", "").isdigit():
            self.fail(f"{value!r} must read like logs=14d or outputs={_FOREVER}", param, ctx)
        try:
            return name, None if time == _FOREVER else parse_duration(time) / _DAY_S
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("df")
@click.option(
    "--keep", "kept", type=Kept(), multiple=True, metavar="WHAT=TIME",
    help="Keep WHAT (logs, outputs, environments, blobs, events, idempotency) for so long: logs=14d, outputs=forever. "
    "Repeatable; admins only.",
)  # fmt: skip
@with_session
def df_command(session: Session, kept: tuple[tuple[str, float | None], ...]) -> None:
    """Show what is stored, how much of it, and how long it is kept; or with --keep set that first."""
    found = session.client.keep(dict(kept)) if kept else session.client.storage()
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
            _kept(row.kept_days), clean(row.path),
        ]
        for row in found
    ]  # fmt: skip
    return render(columns, rows)


def _kept(days: float | None) -> str:
    return _FOREVER if days is None else f"{days:g} {'day' if days == 1 else 'days'}"
