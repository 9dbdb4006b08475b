"""`token`: what lets programs and laptops in over TCP."""

import click

from cumulo.cli import phrases
from cumulo.cli.actions import DURATION
from cumulo.cli.phrases import DASH, clean
from cumulo.cli.session import Session, note, with_session
from cumulo.cli.tables import Column, render


@click.group("token")
def token_command() -> None:
    """Create, list and revoke tokens."""


@token_command.command("create")
@click.argument("label")
@click.option("--account", help="For another account (admins only).")
@click.option("--expires", type=DURATION, metavar="TIME", help="Valid for so long: 12h, 30d. Default: until revoked.")
@with_session
def create_command(session: Session, label: str, account: str | None, expires: float | None) -> None:
    """Create a token. It is printed once and kept nowhere; LABEL says in lists what it is for."""
    made = session.client.create_token(label, account=account, expires_in_s=expires)
    if session.as_json:
        session.print_json(made)
        return
    click.echo(made.token)
    note(f"Token {made.id}. This is the only time it is shown; use it with `cumulo login URL`.")


@token_command.command("list")
@with_session
def list_command(session: Session) -> None:
    """List tokens, without their secrets."""
    found = session.client.tokens()
    if session.as_json:
        session.print_json(found)
        return
    since = phrases.now()
    columns = (
        Column("ID"), Column("LABEL", shrinks=True), Column("ACCOUNT", shrinks=True), Column("AGE", right=True),
        Column("USED", right=True), Column("EXPIRES"), Column("STATUS"),
    )  # fmt: skip
    rows = []
    for one in found:
        over = "revoked" if one.revoked_at else "expired" if one.expires_at and one.expires_at < since else "valid"
        used = f"{phrases.ago(one.used_at, since=since)} ago" if one.used_at else "never"
        expires = phrases.clock(one.expires_at) if one.expires_at else DASH
        age = phrases.ago(one.created_at, since=since)
        rows.append([one.id, clean(one.label), clean(one.account), age, used, expires, over])
    click.echo(render(columns, rows) if rows else "No tokens.")


@token_command.command("revoke")
@click.argument("tokens", nargs=-1, required=True, metavar="ID...")
@with_session
def revoke_command(session: Session, tokens: tuple[str, ...]) -> None:
    """Revoke tokens by id: they stop working at once."""
    for token in tokens:
        session.client.revoke_token(token)
        if not session.as_json:
            click.echo(f"revoked {clean(token)}")
    if session.as_json:
        session.print_json({"revoked": list(tokens)})
