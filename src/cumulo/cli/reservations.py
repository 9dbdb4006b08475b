"""`reservations`: GPUs promised to a project for a term."""

from datetime import datetime, timedelta

import click

from cumulo.cli import phrases
from cumulo.cli.phrases import clean
from cumulo.cli.session import Session, with_session
from cumulo.cli.tables import Column, render
from cumulo.client.answers.market import Reservation
from cumulo.domain.quantities import parse_duration
from cumulo.wire.deadline import resolved


@click.group("reservations", invoke_without_command=True)
@with_session
def reservations_command(session: Session) -> None:
    """List what is reserved; reserve GPUs for a project, or give a reservation back.

    A run draws on one with `cumulo launch --reservation NAME`. What it does not use, spot runs may, and yield.
    """
    if click.get_current_context().invoked_subcommand is None:
        _list(session)


@reservations_command.command("list")
@with_session
def list_command(session: Session) -> None:
    """List what is reserved, now or later."""
    _list(session)


def _list(session: Session) -> None:
    found = session.client.reservations()
    if session.as_json:
        session.print_json(found)
    else:
        click.echo(table(found) if found else "Nothing is reserved.")


def table(found: tuple[Reservation, ...]) -> str:
    """The list of reservations as people read it."""
    columns = (
        Column("NAME", shrinks=True), Column("GPUS"), Column("PROJECT", shrinks=True), Column("IN USE", right=True),
        Column("PRICE/H", right=True), Column("UPFRONT", right=True), Column("FROM"), Column("UNTIL"), Column("ID"),
    )  # fmt: skip
    rows = [
        [
            clean(one.name), f"{one.count}x {clean(one.gpu)}", clean(one.project), f"{one.in_use:g} of {one.count}",
            phrases.usd(one.price_usd_h * one.count), phrases.usd(one.upfront_usd), phrases.clock(one.starts_at),
            phrases.clock(one.ends_at), one.id,
        ]
        for one in found
    ]  # fmt: skip
    return render(columns, rows)


@reservations_command.command("create")
@click.option("--gpus", required=True, metavar="ASK", help="So many of one kind: A100-80GB:4.")
@click.option("--term", required=True, metavar="TIME", help="For how long: 12h, 30d, 365d.")
@click.option("--upfront", is_flag=True, help="Pay for all of it when it begins.")
@click.option("--project", help="Who pays; your own if left out.")
@click.option("--name", help="What runs call it.")
@click.option("--start", metavar="WHEN", help="When it begins: in 2d, at 18:00, 2026-12-24T18:00. Default: now.")
@with_session
def create_command(
    session: Session, gpus: str, term: str, upfront: bool, project: str | None, name: str | None, start: str | None
) -> None:
    """Reserve GPUs for a project. Admins only: what is reserved, others can't have on demand."""
    made = session.client.reserve(
        gpus, term, project=project, name=name, starts_at=_moment(start) if start else None, upfront=upfront
    )
    if session.as_json:
        session.print_json(made)
        return
    cost = f"{phrases.usd(made.price_usd_h * made.count)}/h, used or not"
    if float(made.upfront_usd):
        cost = f"{phrases.usd(made.upfront_usd)} upfront"
    elif not made.price_usd_h:
        cost = "free of charge: these GPUs have no rate"
    click.echo(
        f"{clean(made.name)}: {made.count}x {clean(made.gpu)} for project {clean(made.project)}, "
        f"{phrases.clock(made.starts_at)} until {phrases.clock(made.ends_at)}, {cost}.\n"
        f"Draw on it: cumulo launch --gpus {clean(made.gpu)} --project {clean(made.project)} "
        f"--reservation {clean(made.name)} -- …"
    )


def _moment(text: str) -> str:
    """A time as the server takes it, from a time here or from so long from now."""
    try:
        return (datetime.now().astimezone() + timedelta(seconds=parse_duration(text))).isoformat()
    except ValueError:
        return str(resolved(text, datetime.now()))  # the time of day here is meant


@reservations_command.command("give-back")
@click.argument("reservations", nargs=-1, required=True, metavar="NAME...")
@with_session
def give_back_command(session: Session, reservations: tuple[str, ...]) -> None:
    """End reservations now, by name or id. What was paid upfront stays paid. Admins only."""
    over = [session.client.give_back(one) for one in reservations]
    if session.as_json:
        session.print_json(over)
        return
    for one in over:
        click.echo(f"{clean(one.name)} is given back; what draws on it goes on otherwise")
