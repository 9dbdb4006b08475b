"""`launch`: from a YAML file or flags to a run, by way of a plan that a person says yes to."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cumulo.cli import phrases, plan
from cumulo.cli.attach import attach
from cumulo.cli.overrides import Overrides
from cumulo.cli.session import RUN, Session, TakesCommand, command_after_dashes, note, with_session
from cumulo.cli.status import run_json
from cumulo.cli.tables import is_terminal
from cumulo.client import run_file
from cumulo.client.answers.planning import Plan
from cumulo.client.answers.runs import Run
from cumulo.client.run_file import Draft
from cumulo.domain.errors import CumuloError

_SMALL_UPLOAD = 4 << 20


@click.command("launch", cls=TakesCommand)
@click.argument("words", nargs=-1, metavar="[TASK.YAML] [-- COMMAND...]")
@click.option(
    "--gpus", "--gpu", metavar="ASK", help="GPUs of each node: A100:2, 24GB.., 8, H100:0.25, H100:mig-1g.10gb:2."
)
@click.option("--gpu-memory", metavar="SIZE", help="A part of one GPU, by its memory: 20GB.")
@click.option("--sharing", type=click.Choice(["mps", "timeslice"]), help="How a part of a GPU is shared.")
@click.option("--isolation", type=click.Choice(["any", "hard"]), help="hard: only a GPU or a MIG slice of its own.")
@click.option("--cpus", metavar="N", help="CPUs of each node.")
@click.option("--memory", metavar="SIZE", help="Memory of each node: 16GB, 512MB.")
@click.option("-N", "--nodes", type=click.IntRange(min=1), help="Nodes, all or none.")
@click.option("--name", help="The run's name.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Set an environment variable.")
@click.option("--array", metavar="FIRST-LAST[%N]", help="Once for each index (CUMULO_ARRAY_INDEX), N at once.")
@click.option("--max-duration", metavar="TIME", help="Stop each attempt after this long: 30m, 12h.")
@click.option("--deadline", metavar="WHEN", help="Be done by then at the least cost: 20h, 18:00, 2026-12-24T18:00.")
@click.option("--work", metavar="TIME", help="How long it runs for its deadline; else learnt from its progress.")
@click.option("--priority", type=click.IntRange(-100, 100), help="Higher goes first.")
@click.option("--spot", is_flag=True, help="May be stopped to make room for others; it is queued again.")
@click.option("--max-price", metavar="USD", help="With --spot: pay that much an hour for a GPU at most.")
@click.option("--reservation", metavar="NAME", help="Draw on this reservation.")
@click.option("--after", multiple=True, type=RUN, metavar="RUN", help="Start when this run has succeeded.")
@click.option("--runtime", type=click.Choice(["process", "sandbox"]), help="Isolation; the best there is if left out.")
@click.option("--mount", "mounts", multiple=True, metavar="PATH", help="A folder of the node the run sees: /data, ~.")
@click.option("--project", help="Who pays.")
@click.option("--dev", is_flag=True, help="A server to work on: stays until it is stopped.")
@click.option("--workdir", metavar="FOLDER", help="The folder that travels; the current one if a command is given.")
@click.option("--no-workdir", is_flag=True, help="No folder travels.")
@click.option("--queue", is_flag=True, help="Wait even if no node could take it today.")
@click.option("-d", "--detach", is_flag=True, help="Return once it is accepted.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@with_session
def launch_command(
    session: Session, words: tuple[str, ...], workdir: str | None, no_workdir: bool, queue: bool,
    detach: bool, yes: bool, gpus: str | None, **flags: Any,
) -> int:  # fmt: skip
    """Launch a run: a YAML file, or a command after --.

    \b
    cumulo launch task.yaml --gpus H100:8
    cumulo launch --gpus A100:2 -- python train.py
    cumulo launch --dev --gpus 24GB..

    What follows -- is run word for word; for shell syntax write -- bash -c '...'. The current folder travels with a
    command, without what .gitignore and .cumuloignore name. launch stays attached unless -d: the log, a progress bar,
    and at the end the run's own exit code. Ctrl-C leaves the run running.
    """
    ctx = click.get_current_context()
    argv = command_after_dashes(ctx)
    overrides = Overrides(command=None if argv is None else shlex.join(argv), gpus=gpus, **flags)
    if len(words) > 1:
        raise click.UsageError("a command goes after --: cumulo launch -- python train.py", ctx)
    drafted = _draft(words[0] if words else None, argv, overrides, workdir=workdir, no_workdir=no_workdir)
    if not yes and not is_terminal(sys.stdin):
        raise click.UsageError("launch shows a plan and asks, and there is no terminal to ask on: give -y", ctx)
    session.start_own()
    planned = _planned(session, drafted, queue=queue)
    if not session.as_json:
        note(plan.text(planned, drafted))
    if not yes:
        _ask(drafted)
    run = _submit(session, drafted, queue=queue)
    return _after(session, run, detach=detach, at_once=planned.starts_now)


def _draft(
    file: str | None, argv: list[str] | None, overrides: Overrides, *, workdir: str | None, no_workdir: bool
) -> Draft:
    """The run file of this launch, looked at but not uploaded."""
    if workdir and no_workdir:
        raise click.UsageError("--workdir and --no-workdir exclude each other")
    if file is None and argv is None and not overrides.dev:
        raise click.UsageError("name a run file, or a command after --: cumulo launch -- python train.py")
    if argv is not None and not argv:
        raise click.UsageError("nothing follows --")
    data: dict[str, Any] = {}
    folder = Path.cwd()
    point: Callable[[CumuloError], CumuloError] = lambda error: error  # noqa: E731
    if file is not None:
        data, point, folder = _read(file)
    data = overrides.over(data)
    data.setdefault("name", run_file.name_of_command(argv) if argv and not file else _name_of_file(file))
    if no_workdir:
        data.pop("workdir", None)
    elif workdir:
        data["workdir"] = str(Path(workdir).absolute())
    elif file is None and argv is not None:
        data["workdir"] = "."
    return run_file.draft(data, folder, point=point)


def _read(file: str) -> tuple[dict[str, Any], Callable[[CumuloError], CumuloError], Path]:
    """A run file's keys, what points errors at its lines, and the folder that its paths are relative to."""
    if file == "-":
        return *run_file.read("standard input", sys.stdin.buffer.read(1 << 21)), Path.cwd()
    path = Path(file)
    if not path.exists() and path.suffix not in (".yaml", ".yml"):
        raise click.UsageError(f"there is no file {phrases.clean(file)!r}; a command goes after --: cumulo launch -- …")
    data, point = run_file.read(path)
    return data, point, path.absolute().parent


def _name_of_file(file: str | None) -> str:
    if file is None:
        return "dev"
    return run_file.name_of_command([Path(file).stem if file != "-" else "run"])


def _planned(session: Session, drafted: Draft, *, queue: bool) -> Plan:
    try:
        planned = session.client.plan(drafted.data, queue=queue)
    except CumuloError as error:
        raise drafted.point(error) from None
    if not planned.satisfiable and not queue:
        hint = plan.suggestions(planned)
        raise CumuloError(
            "unsatisfiable",
            plan.problems(planned),
            hint=f"{hint}; or --queue to wait for such a node" if hint else "--queue waits for such a node",
        )
    return planned


def _ask(drafted: Draft) -> None:
    if drafted.is_large:
        click.confirm(f"{plan.files(drafted)}: that is a lot. Send it all?", abort=True, err=True)
    click.confirm("Launch?", default=True, abort=True, err=True)


def _submit(session: Session, drafted: Draft, *, queue: bool) -> Run:
    def sent(done: int, total: int) -> None:
        if total <= _SMALL_UPLOAD:
            return
        if is_terminal(sys.stderr):
            end = "\n" if done == total else ""
            print(f"\rsent {phrases.size(done)} of {phrases.size(total)}\x1b[K", end=end, file=sys.stderr, flush=True)
        elif done == total:
            note(f"sent {phrases.size(total)}")

    try:
        return session.client.submit(run_file.complete(session.client, drafted, on_progress=sent), queue=queue)
    except CumuloError as error:
        raise drafted.point(error) from None
    except KeyboardInterrupt:
        note("\ninterrupted before the server answered: `cumulo status` tells whether the run was accepted")
        raise


def _after(session: Session, run: Run, *, detach: bool, at_once: bool) -> int:
    """What follows once a run is accepted: stay with it, or say how to come back to it."""
    name = phrases.clean(run.name)
    if run.kind == "dev" and not detach:
        note(f"{name} ({run.id}) is accepted")
        run = session.client.wait(run.id, until=lambda row: row.ended or row.status in ("running", "stopped"))
        if run.ended:
            raise CumuloError("conflict", f"{name} {phrases.end_of(run)}", hint=f"cumulo why {run.id}")
        note(f"{name} is running. Work on it: cumulo ssh {name}   Stop it: cumulo stop {name}")
        detach = True
    elif detach and not session.as_json:
        click.echo(
            f"{name} ({run.id}) is accepted. Follow: cumulo logs -f {run.id}   Why it waits: cumulo why {run.id}"
        )
    else:
        note(f"{name} ({run.id}) is accepted")
    if not detach:
        return attach(session, run, at_once=at_once)
    if session.as_json:
        session.print_json(run_json(run))
    return 0
