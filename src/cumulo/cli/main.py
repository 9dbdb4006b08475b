"""The command line's front door: which commands there are, and what happens when one fails.

Commands are imported when they are run, so that `cumulo --version` costs what Click costs and no more.
"""

import gc
import importlib
import os
import sys
from typing import Any, NamedTuple

import click

from cumulo import __version__
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable

INTERRUPTED = 130


class Entry(NamedTuple):
    """Where a command is, and its line in `cumulo --help`."""

    module: str
    section: str
    help: str


_RUNS, _WORK, _CLOUD, _ADMIN = "Launch and watch", "Work on a run", "The cloud", "Run a cloud"

COMMANDS = {
    "launch": Entry("launch", _RUNS, "Launch a run: a YAML file, or a command after --."),
    "status": Entry("status", _RUNS, "List runs, or show one in full."),
    "queue": Entry("status", _RUNS, "List what waits, in order, and for what."),
    "logs": Entry("logs", _RUNS, "Print or follow a run's log."),
    "why": Entry("why", _RUNS, "Explain why a run waits, or why it ended."),
    "wait": Entry("actions", _RUNS, "Wait until a run has ended."),
    "cancel": Entry("actions", _RUNS, "Cancel runs."),
    "exec": Entry("shell", _WORK, "Run a command inside a run."),
    "ssh": Entry("shell", _WORK, "Open a terminal inside a run."),
    "cp": Entry("copy", _WORK, "Copy files from or to a run."),
    "stop": Entry("actions", _WORK, "Stop a dev run; it can start again."),
    "start": Entry("actions", _WORK, "Start a stopped dev run again."),
    "offers": Entry("cloud", _CLOUD, "List what GPUs can be launched, and at what price."),
    "reservations": Entry("reservations", _CLOUD, "List what is reserved; reserve GPUs, or give them back."),
    "gpus": Entry("gpus", _CLOUD, "Show what GPUs are capable of and rent for; compare them."),
    "advise": Entry("advise", _CLOUD, "Advise which GPU, how many, how long, how much."),
    "nodes": Entry("cloud", _CLOUD, "List nodes, and who holds which GPU."),
    "top": Entry("cloud", _CLOUD, "Show what devices and runs use now."),
    "usage": Entry("usage", _CLOUD, "Show what was used, and what it cost."),
    "events": Entry("events", _CLOUD, "List or follow what happened."),
    "up": Entry("up", _ADMIN, "Make this machine a cloud."),
    "down": Entry("down", _ADMIN, "Stop the server on this machine; runs go on."),
    "login": Entry("login", _ADMIN, "Log in to a server elsewhere."),
    "context": Entry("login", _ADMIN, "List the servers you are logged in to, and choose one."),
    "token": Entry("tokens", _ADMIN, "Create, list and revoke tokens."),
    "doctor": Entry("doctor", _ADMIN, "Check this cloud's health."),
    "df": Entry("storage", _ADMIN, "Show what is stored, and how much of it."),
    "sweep": Entry("storage", _ADMIN, "Remove what need no longer be kept."),
    "completion": Entry("completion", _ADMIN, "Print the completion script of a shell."),
}
ALIASES = {"ps": "status", "bill": "usage", "storage": "df"}


class Commands(click.Group):
    """The group of all commands, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        entry = COMMANDS.get(name)
        if entry is None:
            return None
        module = importlib.import_module(f"cumulo.cli.{entry.module}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and name not in ALIASES and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
            told = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {printable(name)!r}{told}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items() if entry.section == section])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="cumulo %(version)s")
def cumulo() -> None:
    """Cumulo turns GPU machines into a GPU cloud.

    \b
    cumulo launch --gpus A100:2 -- python train.py
    cumulo status
    cumulo logs -f train
    """


def main() -> None:
    """The `cumulo` program. Ends the process: no traceback reaches a person unless CUMULO_DEBUG is set."""
    code = run(sys.argv[1:])
    gc.freeze()  # at its end the interpreter would look through all there is for garbage, a seventh of a short command
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Runs one command; its exit code."""
    try:
        result: Any = cumulo.main(arguments, prog_name="cumulo", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        # Whoever read our output has gone: say nothing more, and let the interpreter find nothing to flush. (Click does
        # the same for what breaks inside a command.)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, click.Abort):
        print(file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        return fail(error)


def fail(error: Exception) -> int:
    """Tells a person what went wrong, in a line and a hint; the exit code."""
    if os.environ.get("CUMULO_DEBUG"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, CumuloError):
        _tell(error.message, error.hint)
        return error.kind.exit_code
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "cumulo"
        _tell(error.format_message(), f"see `{command} --help`")
        return error.exit_code
    if isinstance(error, click.ClickException):
        _tell(error.format_message(), "")
        return error.exit_code
    if isinstance(error, TimeoutError) and not error.errno:
        _tell(str(error), "")
        return 1
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        _tell(f"{where}{error.strerror or error}", "")
        return 1
    _tell(
        f"something went wrong inside Cumulo: {type(error).__name__}: {error}",
        "CUMULO_DEBUG=1 shows where; please report it",
    )
    return 1


def _tell(message: str, hint: str) -> None:
    print(f"error: {_lines(message)}", file=sys.stderr)
    if hint:
        print(f"hint: {_lines(hint)}", file=sys.stderr)


def _lines(text: str) -> str:
    return printable(" ".join(text.split()), 2000)


if __name__ == "__main__":
    main()
