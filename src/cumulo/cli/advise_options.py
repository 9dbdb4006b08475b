"""What every kind of work has in common at the command line: limits, models, the answer, and the file that is written.

Everything is asked of the server; nothing is worked out here.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cumulo.cli.advise_amounts import AMOUNT, TIME, WHOLE
from cumulo.cli.session import Session, note, with_session
from cumulo.client.answers.advice import Advice
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable

F = TypeVar("F", bound=Callable[..., Any])
_LARGEST_CONFIG = 1 << 20
_LIMITS = ("deadline", "budget", "gpu", "max_gpus", "cloud", "region", "purchase", "own")


def with_limits(function: F) -> F:
    """Options that every kind of work has; the command returns what is asked, and is shown the advice on it."""

    @click.option("--deadline", type=TIME, metavar="TIME", help="It must be done within: 24h, 3d.")
    @click.option("--budget", type=AMOUNT, metavar="USD", help="It may cost at most; a service, an hour.")
    @click.option("--gpu", metavar="ASK", help="Only these: A100,H100 or 24GB.. or 80GB.")
    @click.option("--max-gpus", type=click.IntRange(1, 16_384), metavar="N", help="At most so many.")
    @click.option("--cloud", multiple=True, metavar="NAME", help="Only this cloud's prices: aws, gcp, lambda…")
    @click.option("--region", multiple=True, metavar="NAME", help="Only this region's prices.")
    @click.option("--purchase", multiple=True, type=click.Choice(["on-demand", "spot", "reserved"]), help="Only so.")
    @click.option("--own", type=click.Choice(["first", "only", "none"]), default="first", help="This cloud's GPUs.")
    @click.option(
        "--limit", type=click.IntRange(1, 100), default=6, metavar="N", help="Plans to show beside the marked ones."
    )
    @click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write a run file for it.")
    @with_session
    @functools.wraps(function)
    def wrapped(session: Session, *args: Any, limit: int, output: Path | None, **options: Any) -> int:
        limits = {name: options.pop(name) for name in _LIMITS}
        question = {**function(*args, **options), "limits": _limits(limits), "limit": limit}
        session.start_own()
        return show(session, session.client.advise(question), output)

    return wrapped  # type: ignore[return-value]


def _limits(given: dict[str, Any]) -> dict[str, Any]:
    """As the API has them; what was not given is left out."""
    named = {
        "deadline_s": given["deadline"], "budget_usd": given["budget"], "gpu": given["gpu"],
        "max_gpus": given["max_gpus"], "clouds": list(given["cloud"]), "regions": list(given["region"]),
        "purchases": list(given["purchase"]), "own": given["own"],
    }  # fmt: skip
    return {name: value for name, value in named.items() if value not in (None, [])}


def show(session: Session, advice: Advice, output: Path | None) -> int:
    """Prints the advice, and writes the run file. Raises CumuloError (unsatisfiable) where nothing fits."""
    from cumulo.cli import advise_table

    if session.as_json:
        session.print_json(advice)
    else:
        click.echo(advise_table.text(advice))
    if output is not None:
        write(advice, output)
    if not advice.plans:
        raise CumuloError("unsatisfiable", "nothing fits", hint="; ".join(advice.suggestions[:1]))
    return 0


def write(advice: Advice, output: Path) -> None:
    """A run file for what is recommended, with what it is for as its first lines."""
    import yaml

    place = advice.rented if advice.own is None else advice.own
    if advice.launch is None or place is None:
        raise CumuloError("unsatisfiable", f"no plan to write to {output}", hint="loosen the limits")
    plan = advice.plans[place]
    lines = [f"# {printable(line, 400)}" for line in (advice.asked, f"{plan.gpus} x {plan.gpu}: {plan.layout}")]
    if not plan.own:
        lines.append("# This cloud has no such GPUs: launch it on one that has, or with --queue.")
    body = yaml.safe_dump(advice.launch, sort_keys=False, default_flow_style=False, width=200)
    output.write_text("\n".join([*lines, body]))
    note(f"wrote {output}: cumulo launch {output}")


def with_model(function: F) -> F:
    """Options that say which language model is meant."""

    @click.option("--model", metavar="NAME|FILE", help="A model's name, or its config.json.")
    @click.option("--shape", metavar="NUMBERS", help="layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256")
    @functools.wraps(function)
    def wrapped(*args: Any, model: str | None, shape: str | None, **options: Any) -> dict[str, Any]:
        if (model is None) == (shape is None):
            raise click.UsageError("say which model: --model NAME, --model config.json, or --shape NUMBERS")
        which = _model(model) if model is not None else {"shape": _shape(shape or "")}
        question: dict[str, Any] = function(*args, which=which, **options)
        return question

    return wrapped  # type: ignore[return-value]


def _model(given: str) -> dict[str, Any]:
    path = Path(given)
    if path.suffix != ".json":
        return {"model": given}
    with path.open("rb") as file:
        text = file.read(_LARGEST_CONFIG)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{printable(given)}: not valid JSON: {printable(str(error), 120)}") from None
    if not isinstance(config, dict):
        raise click.UsageError(f"{printable(given)}: a config.json is a mapping of keys to values")
    return {"config": config}


def _shape(text: str) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise click.UsageError(f"--shape: {printable(part, 60)!r} is not NAME=NUMBER")
        flag = {"true": True, "false": False}.get(value.strip().lower())
        numbers[name.strip()] = WHOLE.convert(value, None, None) if flag is None else flag
    return numbers


def given(**values: Any) -> dict[str, Any]:
    """What was given: a client sends no defaults of its own."""
    return {name: value for name, value in values.items() if value is not None}
