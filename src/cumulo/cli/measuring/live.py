"""Watches a running run for some seconds through the server's telemetry, and says what other GPUs would do for it."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from cumulo.advisor.resize import Choice, Observed, choices, needed_bytes, verdicts
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import all_kinds, find
from cumulo.cli import phrases
from cumulo.cli.phrases import clean
from cumulo.cli.session import Session, note
from cumulo.cli.tables import Column, render
from cumulo.client.answers.cloud import DeviceReading, Telemetry
from cumulo.client.answers.runs import Run
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import GIB, NANO
from cumulo.domain.sharing import WHOLE_MILLI

_ROWS: Final = 8
_EVERY_S: Final = 1.0


def advise_on_run(
    session: Session, name: str, *, watched_s: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Prints what the run uses and what would do instead. Raises CumuloError where there is nothing to watch."""
    run = session.client.run(name)
    if run.status != "running":
        raise CumuloError(
            "conflict", f"{clean(run.name)} is {run.status}: only a running run shows what it uses",
            hint=f"cumulo why {clean(run.name)}",
        )  # fmt: skip
    if not session.as_json:
        note(f"Watching {clean(run.name)} for {watched_s:g} s …")
    samples = [session.client.telemetry()]
    for _ in range(max(1, round(watched_s / _EVERY_S))):
        sleep(_EVERY_S)
        samples.append(session.client.telemetry())
    seen = observed(run, samples)
    found = choices(seen, all_kinds(), coefficients())
    here = {offer.gpu for offer in session.client.offers(None) if offer.free}
    emulated = any(device.emulated for device in _held(run.id, samples[-1]))
    if session.as_json:
        session.print_json(as_data(seen, found, here, emulated=emulated))
    else:
        click.echo(text(run, seen, found, here, emulated=emulated))


def observed(run: Run, samples: Sequence[Telemetry]) -> Observed:
    """What the samples say of the run, per GPU. Raises CumuloError (`conflict`) where they say too little."""
    devices = [device for sample in samples for device in _held(run.id, sample)]
    used = [device.memory_used_bytes for device in devices if device.memory_used_bytes is not None]
    busy = [device.utilisation for device in devices if device.utilisation is not None]
    if not devices:
        raise CumuloError("conflict", f"{clean(run.name)} holds no GPU", hint="cumulo top shows what it uses of CPUs")
    if not used or not busy:
        raise CumuloError(
            "conflict", f"the GPUs of {clean(run.name)} don't tell how much they are used",
            hint="cumulo doctor says what drivers tell",
        )  # fmt: skip
    kinds = find(devices[0].model)
    if not kinds:
        raise CumuloError("unknown_gpu", f"the catalogue has no {clean(devices[0].model)} to compare with")
    holder = next(each for each in devices[0].holders if each.run == run.id)
    cpus = [instance.cpu for instance in samples[-1].instances if instance.run == run.id and instance.cpu is not None]
    return Observed(
        kind=kinds[0],
        gpus=len({device.uuid for device in _held(run.id, samples[-1])}) or 1,
        share=holder.milli / WHOLE_MILLI,
        there_bytes=holder.memory_bytes or devices[0].memory_bytes,
        peak_bytes=max(used),
        busy=sum(busy) / len(busy),
        cpus_used=sum(cpus) if cpus else None,
    )


def _held(run_id: str, sample: Telemetry) -> list[DeviceReading]:
    return [device for device in sample.devices if any(holder.run == run_id for holder in device.holders)]


def text(run: Run, seen: Observed, found: Sequence[Choice], here: set[str], *, emulated: bool) -> str:
    share = f"{seen.share:g} of " if seen.share < 1 else ""
    parts = ["\n".join([f"{clean(run.name)} holds {seen.gpus} x {share}{seen.kind.name}", *verdicts(seen)])]
    cheaper = [choice for choice in found if choice.cost.expected < 1]
    faster = [choice for choice in found if choice.time.high < 1]
    fastest = [min(faster, key=lambda choice: choice.time.expected)] if faster else []
    parts_of_same = [choice for choice in found if choice.share < 1]  # the least change: the same code on less of it
    free = [choice for choice in cheaper if choice.kind.name in here]
    shown = list(dict.fromkeys([*parts_of_same, *free, *cheaper[:_ROWS], *fastest]))
    if shown:
        parts.append(table(shown, here))
    if not cheaper:
        parts.append(f"Nothing listed with {needed_bytes(seen) / GIB:,.1f} GiB or more would be cheaper: keep it.")
    lines = ["times and costs are multiples of now's, for the same work; list prices, median of clouds"]
    if emulated:
        lines.insert(0, "EMULATED: the devices show what the run's processes use of this machine, not of a GPU")
    return "\n\n".join([*parts, "\n".join(lines)])


def table(found: Sequence[Choice], here: set[str]) -> str:
    columns = (
        Column("GPU"), Column("HAS", right=True), Column("TIME", right=True), Column("PRICE/H", right=True),
        Column("COST", right=True), Column("NOTE"),
    )  # fmt: skip
    rows = [
        [
            choice.kind.name + (f" {choice.share:g}" if choice.share < 1 else ""),
            phrases.gib(choice.memory_bytes / GIB), _times(choice.time), phrases.usd(choice.nano_h / NANO),
            _times(choice.cost), ", ".join(_marks(choice, here)),
        ]
        for choice in found
    ]  # fmt: skip
    return render(columns, rows)


def _marks(choice: Choice, here: set[str]) -> list[str]:
    marks = ["free here"] if choice.kind.name in here else []
    if choice.cost.high < 1:
        marks.append("cheaper")
    elif choice.cost.expected < 1:
        marks.append("perhaps cheaper")
    return marks + (["faster"] if choice.time.high < 1 else [])


def _times(value: Any) -> str:
    return f"{value.low:.2f} to {value.high:.2f}x"


def as_data(seen: Observed, found: Sequence[Choice], here: set[str], *, emulated: bool) -> dict[str, Any]:
    """For `--json`: bytes, USD, and multiples of now's time and cost."""
    return {
        "gpu": seen.kind.name, "gpus": seen.gpus, "share": seen.share, "memory_bytes": seen.there_bytes,
        "peak_bytes": seen.peak_bytes, "busy": round(seen.busy, 3), "emulated": emulated, "verdicts": verdicts(seen),
        "choices": [
            {
                "gpu": choice.kind.name, "share": choice.share, "memory_bytes": choice.memory_bytes,
                "time": choice.time._asdict(), "cost": choice.cost._asdict(),
                "price_usd_h": choice.nano_h / NANO, "free_here": choice.kind.name in here,
            }
            for choice in found
        ],
    }  # fmt: skip
