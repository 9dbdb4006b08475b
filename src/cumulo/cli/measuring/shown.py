"""What a person sees of a measured training step: what it needs, which GPUs take it, and what to doubt."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from cumulo.advisor.estimate import Range
from cumulo.advisor.measured import MeasuredStep, Passed, Taker, advice_where_nothing_fits, takers
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import GpuKind, all_kinds
from cumulo.cli import phrases
from cumulo.cli.gpu_facts import kinds_of
from cumulo.cli.measuring.start import LIMIT_S, measure
from cumulo.cli.phrases import DASH
from cumulo.cli.session import Session, note
from cumulo.cli.tables import Column, pairs, render
from cumulo.domain.quantities import GIB, NANO

_ROWS: Final = 12
_LINES: Final = 3
_NAMES: Final = 8


def advise_on_script(
    session: Session,
    script: Path,
    arguments: Sequence[str] = (),
    *,
    gpus: Sequence[str] = (),
    python: str | None = None,
    limit_s: float = LIMIT_S,
) -> None:
    """Measures the script on this machine and prints which GPUs take it. `gpus` names those to be looked at; none: all.

    Raises CumuloError where the script can't be measured, or a GPU isn't known.
    """
    kinds = _kinds(gpus)
    if not session.as_json:
        note(f"Measuring {script} on this machine, without a GPU …")
    step = measure(script, arguments, python=python, limit_s=limit_s)
    found, passed = takers(step, kinds, coefficients())
    if session.as_json:
        session.print_json(as_data(step, found, passed))
    else:
        click.echo(text(script, step, found, passed))


def _kinds(names: Sequence[str]) -> Sequence[GpuKind]:
    if not names:
        return all_kinds()
    chosen: dict[str, GpuKind] = {}
    for name in names:
        chosen.update((kind.name, kind) for kind in kinds_of(name))
    return tuple(chosen.values())


def text(script: Path, step: MeasuredStep, found: Sequence[Taker], passed: Sequence[Passed]) -> str:
    parts = [f"One training step of {script.name}, measured on fake tensors (PyTorch {step.torch}); no GPU was used.\n"]
    parts[0] += pairs(_facts(step))
    parts += [table(found)] if found else [_none(step, passed)]
    parts += ["\n".join(_doubts(step, found, passed))]
    return "\n\n".join(parts)


def _facts(step: MeasuredStep) -> list[tuple[str, str]]:
    trained = "all trained" if step.trainable == step.parameters else f"{_count(step.trainable)} of them trained"
    shares = sorted(step.parts.items(), key=lambda part: -part[1])
    told = ", ".join(f"{name} {_size(amount)}" for name, amount in shares if amount)
    return [
        ("model", f"{', '.join(step.models)}: {_count(step.parameters)} parameters, {trained}"),
        ("input", ", ".join(step.inputs)),
        ("peak memory", f"{_size(step.peak_bytes)} ({told})"),
        ("arithmetic", f"{_count(step.flops)} operations in {', '.join(step.dtypes) or 'no products'}"),
    ]


def table(found: Sequence[Taker]) -> str:
    """The cheapest first; the fastest too, wherever it stands."""
    steps = _steps_worth_a_cent(found)
    columns = (
        Column("GPU"), Column("NEEDS", right=True), Column("HAS", right=True), Column("A STEP", right=True),
        Column("80 % RANGE", right=True), Column("PRICE/H", right=True), Column(f"{steps:,} STEPS", right=True),
        Column("80 % RANGE", right=True), Column("LIMITED BY"), Column("NOTE"),
    )  # fmt: skip
    fastest = min(found, key=lambda taker: taker.seconds.expected)
    shown = list(found[:_ROWS]) + ([fastest] if fastest not in found[:_ROWS] else [])
    rows = [
        [
            taker.kind.name, _size(taker.memory.expected), phrases.gib(taker.kind.memory_bytes / GIB),
            _seconds(taker.seconds.expected), f"{_seconds(taker.seconds.low)} to {_seconds(taker.seconds.high)}",
            DASH if taker.price is None else phrases.usd(taker.price.on_demand.median / NANO),
            *_usd(taker.cost(steps)), taker.limit,
            _marks(taker, found[0], fastest),
        ]
        for taker in shown
    ]  # fmt: skip
    return render(columns, rows)


def _marks(taker: Taker, cheapest: Taker, fastest: Taker) -> str:
    marks = ["cheapest"] if taker is cheapest and taker.price is not None else []
    marks += ["fastest"] if taker is fastest else []
    marks += ["memory is tight"] if taker.tight else []
    marks += ["no price is known"] if taker.price is None else []
    return ", ".join(marks)


def _none(step: MeasuredStep, passed: Sequence[Passed]) -> str:
    short = [each.kind for each in passed if each.reason == "memory"]
    if len(short) == len(passed) and short:
        return f"No GPU among these holds the step: {advice_where_nothing_fits(step, short)}."
    return "None of these GPUs takes the step."


def _doubts(step: MeasuredStep, found: Sequence[Taker], passed: Sequence[Passed]) -> list[str]:
    """What was left out, and what to know about the numbers."""
    lines = []
    reasons = (
        ("memory", "too little memory"), ("bf16", "no BF16, which the script uses"),
        ("unknown", "specifications unknown"),
    )  # fmt: skip
    for reason, told in reasons:
        names = [each.kind.name for each in passed if each.reason == reason]
        if names:
            more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
            lines.append(f"left out, {told}: {', '.join(names[:_NAMES])}{more}")
    for name, times in list(step.stand_ins.items())[:_LINES]:
        lines.append(
            f"made up: {name} read a value from the GPU {times}x and got 1; were a shape taken from it, it is wrong"
        )
    if len(step.stand_ins) > _LINES:
        lines.append(f"made up: the same at {len(step.stand_ins) - _LINES} more lines")
    lines += [f"note: {each}" for each in step.notes]
    dates = sorted(
        {date for taker in found if taker.price for date in (taker.price.oldest, taker.price.newest) if date}
    )
    if dates:
        lines.append(f"prices: median on-demand list prices of clouds, {dates[0]} to {dates[-1]}")
    lines.append(
        "times: a roofline of what was counted, one GPU, data always ready; ranges are of what was seen, widened"
    )
    return lines


def as_data(step: MeasuredStep, found: Sequence[Taker], passed: Sequence[Passed]) -> dict[str, Any]:
    """For `--json`: bytes, seconds, and USD."""
    return {
        "measured": {
            "torch": step.torch, "models": step.models, "inputs": step.inputs, "parameters": step.parameters,
            "trainable": step.trainable, "peak_bytes": step.peak_bytes, "parts": step.parts, "flops": step.flops,
            "dtypes": step.dtypes, "stand_ins": step.stand_ins, "notes": step.notes,
        },
        "gpus": [
            {
                "gpu": taker.kind.name, "memory_bytes": taker.kind.memory_bytes, "needs_bytes": _bounds(taker.memory),
                "tight": taker.tight, "step_seconds": _bounds(taker.seconds), "limit": taker.limit,
                "price_usd_h": taker.price and taker.price.on_demand.median / NANO,
                "usd_per_1000_steps": _bounds(cost.scaled(1 / NANO)) if (cost := taker.cost(1000)) else None,
            }
            for taker in found
        ],
        "left_out": [{"gpu": each.kind.name, "reason": each.reason} for each in passed],
    }  # fmt: skip


def _bounds(value: Range) -> dict[str, float]:
    return {"low": value.low, "expected": value.expected, "high": value.high}


def _size(amount: float) -> str:
    if amount >= GIB:
        return f"{amount / GIB:,.1f} GiB"
    return f"{amount / (1 << 20):,.1f} MiB" if amount >= 1 << 20 else f"{amount / 1024:,.0f} KiB"


def _count(amount: float) -> str:
    for scale, name in ((1e15, "e15"), (1e12, "T"), (1e9, "G" if amount > 1e12 else "B"), (1e6, "M"), (1e3, "k")):
        if amount >= scale:
            return f"{amount / scale:,.3g}{name}" if scale < 1e15 else f"{amount:.2e}"
    return f"{amount:g}"


def _seconds(amount: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if amount >= scale:
            return f"{amount / scale:,.3g} {unit}"
    return f"{amount * 1e6:,.3g} µs"


def _usd(cost: Range | None) -> tuple[str, str]:
    """What is expected, and the range."""
    if cost is None:
        return DASH, DASH
    low, expected, high = (phrases.usd(amount / NANO) for amount in cost)
    return expected, f"{low} to {high}"


def _steps_worth_a_cent(found: Sequence[Taker]) -> int:
    """A number of steps that costs money people have words for."""
    least = min((cost.expected for taker in found if (cost := taker.cost(1))), default=NANO)
    return next((steps for steps in (1_000, 1_000_000) if least * steps >= NANO // 100), 1_000_000_000)
