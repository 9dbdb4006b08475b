"""`cumulo advise SCRIPT.py --torch` and `cumulo advise --live RUN`: advice from what was measured, not from a model."""

from pathlib import Path

import click

from cumulo.cli.session import RUN, Session, TakesCommand, command_after_dashes, with_session
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import parse_duration


class _Duration(click.ParamType[float]):
    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = _Duration()


@click.command("script", cls=TakesCommand)
@click.argument("script", type=click.Path(path_type=Path), metavar="SCRIPT.py")
@click.option("--torch", "with_torch", is_flag=True, help="Run the script here, on fake tensors instead of a GPU.")
@click.option("--gpu", "gpus", multiple=True, metavar="NAME", help="Only this GPU (more than once: these).")
@click.option("--python", metavar="PATH", help="The Python that has PyTorch and the script's packages.")
@click.option("--limit", type=DURATION, default="5m", metavar="TIME", help="How long measuring may take (default 5m).")
@with_session
@click.pass_context
def script_command(
    ctx: click.Context, session: Session, script: Path, with_torch: bool, gpus: tuple[str, ...],
    python: str | None, limit: float,
) -> None:  # fmt: skip
    """Measure a training step of a PyTorch script on this machine, without a GPU; say which GPUs take it.

    \b
    cumulo advise train.py --torch
    cumulo advise train.py --torch --gpu L40S --gpu A100-80GB -- --batch-size 32

    What follows -- goes to the script, which runs until it has taken two steps. It can tell by CUMULO_MEASURES=1.
    """
    if not with_torch:
        raise CumuloError(
            "invalid_request", f"{script}: measuring runs the script on this machine",
            hint=f"if that is meant: cumulo advise {script} --torch",
        )  # fmt: skip
    from cumulo.cli.measuring.shown import advise_on_script

    arguments = command_after_dashes(ctx) or []
    advise_on_script(session, script, arguments, gpus=gpus, python=python, limit_s=limit)


@click.command("live")
@click.argument("run", type=RUN)
@click.option("--for", "watched", type=DURATION, default="10s", metavar="TIME", help="How long to look (default 10s).")
@with_session
def live_command(session: Session, run: str, watched: float) -> None:
    """Look at what a RUN uses of its GPUs; say whether another size would do, and which would be cheaper."""
    from cumulo.cli.measuring.live import advise_on_run

    advise_on_run(session, run, watched_s=watched)
