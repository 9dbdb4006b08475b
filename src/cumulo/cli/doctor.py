"""`doctor`: what is well with this cloud, what isn't, and what to do about it."""

import click

from cumulo.cli.phrases import clean
from cumulo.cli.session import Session, with_session
from cumulo.cli.tables import status_style, styled


@click.command("doctor")
@with_session
def doctor_command(session: Session) -> int:
    """Check this cloud's health. Exit code 1 if something fails."""
    checks = session.client.doctor()
    failed = any(check.status == "fail" for check in checks)
    if session.as_json:
        session.print_json(checks)
        return int(failed)
    click.echo(f"{'ok':5}server: answers at {session.client.endpoint.where}")
    for check in checks:
        mark = styled(f"{check.status:5}", status_style(check.status))
        click.echo(f"{mark}{clean(check.name)}: {clean(check.text)}")
        if check.hint and check.status != "ok":
            click.echo(f"     {clean(check.hint)}")
    return int(failed)
