"""`cancel`, `stop`, `start` and `wait`: what is wanted of a run, and waiting for it."""

from collections.abc import Callable

import click

from cumulo.cli import phrases
from cumulo.cli.main import fail
from cumulo.cli.outcome import summary, wait_code
from cumulo.cli.session import RUN, Session, note, with_session
from cumulo.cli.status import run_json
from cumulo.client.answers.runs import Run
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import parse_duration


class Duration(click.ParamType[float]):
    """`90`, `30m`, `12h`: seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return 0.0 if value in ("0", "0s") else parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()
_grace = click.option("--grace", type=DURATION, help="Between SIGTERM and SIGKILL; the run's own if left out.")
_wait = click.option("--wait", is_flag=True, help="Return when it has ended.")


@click.command("cancel")
@click.argument("runs", nargs=-1, type=RUN, metavar="RUN...")
@click.option("--all", "everything", is_flag=True, help="All my active runs.")
@click.option("--unit", type=click.IntRange(min=0), metavar="INDEX", help="Of an array: this index only.")
@click.option("-y", "--yes", is_flag=True, help="With --all: don't ask.")
@_grace
@_wait
@with_session
def cancel_command(
    session: Session, runs: tuple[str, ...], everything: bool, unit: int | None, yes: bool, grace: float | None,
    wait: bool,
) -> int:  # fmt: skip
    """Cancel RUNs: SIGTERM, the grace, then everything of them is killed."""
    if everything == bool(runs):
        raise click.UsageError("name the runs to cancel, or give --all")
    if everything:
        found = list(session.client.runs(active=True, mine=True))
        if not found:
            note("Nothing of yours is active.")
            return 0
        if not yes:
            click.confirm(f"Cancel {phrases.plural(len(found), 'run')} of yours?", abort=True, err=True)
        runs = tuple(run.id for run in found)
    return _each(
        session, runs, lambda run: session.client.cancel(run, grace_s=grace, unit=unit), "cancelling", wait=wait
    )


@click.command("stop")
@click.argument("runs", nargs=-1, type=RUN, metavar="RUN...", required=True)
@_grace
@_wait
@with_session
def stop_command(session: Session, runs: tuple[str, ...], grace: float | None, wait: bool) -> int:
    """Stop dev RUNs. What they hold becomes free; `cumulo start` starts them again."""
    return _each(session, runs, lambda run: session.client.stop(run, grace_s=grace), "stopping", wait=wait)


@click.command("start")
@click.argument("runs", nargs=-1, type=RUN, metavar="RUN...", required=True)
@with_session
def start_command(session: Session, runs: tuple[str, ...]) -> int:
    """Start stopped dev RUNs again."""
    return _each(session, runs, session.client.start, "starting", wait=False)


def _each(session: Session, runs: tuple[str, ...], act: Callable[[str], Run], doing: str, *, wait: bool) -> int:
    """Acts on each run, goes on after an error; the exit code is the first error's."""
    code, done = 0, list[Run]()
    for name in runs:
        try:
            run = act(name)
            if not session.as_json:
                click.echo(f"{doing} {phrases.clean(run.name)} ({run.id})")
            if wait:
                run = session.client.wait(run.id, until=lambda row: row.ended or row.status == "stopped")
            done.append(run)
        except CumuloError as error:
            code = code or fail(error)
    if session.as_json:
        session.print_json([run_json(run) for run in done])
    return code


@click.command("wait")
@click.argument("runs", nargs=-1, type=RUN, metavar="RUN...", required=True)
@click.option("--timeout", type=DURATION, help="Give up after this long (exit code 1).")
@with_session
def wait_command(session: Session, runs: tuple[str, ...], timeout: float | None) -> int:
    """Wait until RUNs have ended.

    Exit code: 0 all succeeded, 100 failed, 101 lost, 102 not found, 103 cancelled; of several, the first that is not 0.
    """
    code, ended = 0, list[Run]()
    for name in runs:
        run = session.client.wait(name, timeout_s=timeout)
        ended.append(run)
        if not session.as_json:
            click.echo(summary(run))
        code = code or wait_code(run)
    if session.as_json:
        session.print_json(run_json(ended[0]) if len(ended) == 1 else [run_json(run) for run in ended])
    return code
