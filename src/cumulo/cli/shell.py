"""`exec` and `ssh`: a command, or a terminal, inside a run that lives."""

import os
import signal
import sys

import click

from cumulo.cli.session import RUN, Session, TakesCommand, command_after_dashes, note, with_session
from cumulo.cli.tables import is_terminal

_unit = click.option("--unit", type=click.IntRange(min=0), metavar="INDEX", help="Of an array: this index.")
_rank = click.option("--rank", type=click.IntRange(min=0), help="Of a run on several nodes: this one (default 0).")


@click.command("exec", cls=TakesCommand)
@click.argument("run", type=RUN)
@click.argument("words", nargs=-1, metavar="-- COMMAND...")
@click.option("-t/-T", "--tty/--no-tty", default=None, help="Give it a terminal, or none (default: as we have one).")
@_unit
@_rank
@with_session
def exec_command(
    session: Session, run: str, words: tuple[str, ...], tty: bool | None, unit: int | None, rank: int | None
) -> int:
    """Run a command inside RUN, beside its own, and pass its exit code through.

    Without a terminal its input and output are byte for byte ours; its errors come with its output.
    """
    argv = [*words, *(command_after_dashes(click.get_current_context()) or [])]
    if not argv:
        raise click.UsageError("say what to run: cumulo exec RUN -- nvidia-smi")
    return _join(session, run, argv, tty=tty, unit=unit, rank=rank)


@click.command("ssh", cls=TakesCommand)
@click.argument("run", type=RUN)
@click.option(
    "-L", "forwards", multiple=True, metavar="[LOCAL:]PORT", help="Reach a port of the run at 127.0.0.1:LOCAL."
)
@click.option("-N", "only_forward", is_flag=True, help="No terminal: only forward ports, until Ctrl-C.")
@_unit
@_rank
@with_session
def ssh_command(
    session: Session, run: str, forwards: tuple[str, ...], only_forward: bool, unit: int | None, rank: int | None
) -> int:
    """Open a terminal inside RUN. What follows -- is run there instead of a shell.

    \b
    cumulo ssh box
    cumulo ssh box -L 8888       its Jupyter at http://127.0.0.1:8888
    cumulo ssh box -- htop

    It goes through the server: no open port, key or sshd is needed.
    """
    argv = command_after_dashes(click.get_current_context())
    if only_forward and not forwards:
        raise click.UsageError("-N needs a port to forward: -L PORT")
    if forwards:
        from cumulo.cli.forward import forwarding, parse

        ports = tuple(parse(text) for text in forwards)
        run = session.client.run(run).id
        with forwarding(ports, lambda port: session.client.port(run, port, unit=unit, rank=rank)):
            if only_forward:
                signal.pause()
            return _shell(session, run, argv, unit=unit, rank=rank)
    return _shell(session, run, argv, unit=unit, rank=rank)


def _shell(session: Session, run: str, argv: list[str] | None, *, unit: int | None, rank: int | None) -> int:
    if not argv and not is_terminal(sys.stdin):
        note("no terminal here: the shell reads commands from standard input")
    return _join(session, run, argv or ["/bin/bash", "-i"], tty=None, unit=unit, rank=rank)


def _join(session: Session, run: str, argv: list[str], *, tty: bool | None, unit: int | None, rank: int | None) -> int:
    from cumulo.cli import terminal

    raw = sys.stdin.isatty() and sys.stdout.isatty() if tty is None else tty
    env = {"TERM": os.environ.get("TERM", "xterm")} if raw else {}
    with session.client.exec(run, argv, env=env, tty=terminal.size() if raw else None, unit=unit, rank=rank) as channel:
        return terminal.join(channel, raw=raw and sys.stdin.isatty())
