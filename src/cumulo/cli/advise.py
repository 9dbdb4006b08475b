"""`advise`: which GPU, how many, how long, how much; for a kind of work, a run file, a script or a run."""

from pathlib import Path

import click

from cumulo.cli.advise_work import WORK
from cumulo.cli.measuring.command import live_command, script_command
from cumulo.domain.names import printable


class Advisor(click.Group):
    """Kinds of work, or a file: a run file is asked about as `run`, a script as `script`. `--live` is `live`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["live", *args[1:]] if args[:1] == ["--live"] else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "-" or Path(args[0]).suffix in (".yaml", ".yml"):
            args = ["run", *args]
        elif Path(args[0]).suffix == ".py":
            args = ["script", *args]
        elif args[0] not in self.commands and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], self.commands, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(self.commands)}, or a file"
            raise click.UsageError(f"there is no advice on {printable(args[0], 60)!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group("advise", cls=Advisor, commands=WORK)
def advise_command() -> None:
    """Advise which GPU to take, how many, how long it takes and what it costs.

    \b
    cumulo advise train --model llama-3.1-8b --method lora --tokens 2B --deadline 24h
    cumulo advise serve --model qwen3-32b --context 8k --users 40 --ttft 500ms --tpot 40ms
    cumulo advise task.yaml
    cumulo advise train.py --torch
    cumulo advise --live RUN

    This cloud's GPUs come first, list prices of public clouds beside them. Every number is a range.
    """


advise_command.add_command(script_command)
advise_command.add_command(live_command)
