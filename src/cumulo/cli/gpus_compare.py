"""`gpus compare`: two or more GPUs side by side, by what matters for a kind of work, with what to beware of."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import click

from cumulo.catalog.kinds import GpuKind
from cumulo.catalog.prices import ListPrice, price
from cumulo.catalog.variants import Variant
from cumulo.cli import phrases
from cumulo.cli.gpu_facts import UNKNOWN, boards_of, dates, prices, shown, spot
from cumulo.cli.session import Session, with_session
from cumulo.cli.tables import Column, render
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import GIB, NANO


class Compared(NamedTuple):
    """One column: a board of a kind, and what the kind rents for."""

    kind: GpuKind
    board: Variant | None
    price: ListPrice | None


class Row(NamedTuple):
    """One line: how a fact is called, and its name in the catalogue."""

    title: str
    fact: str


_FACTS: Final = {
    "fp16": Row("FP16/BF16 tensor, TFLOPS", "fp16_tensor_tflops"),
    "bf16": Row("BF16", "bf16"),
    "fp8": Row("FP8 tensor, TFLOPS", "fp8_tensor_tflops"),
    "fp4": Row("FP4 tensor, TFLOPS", "fp4_tensor_tflops"),
    "int8": Row("INT8 tensor, TOPS", "int8_tensor_tops"),
    "tf32": Row("TF32 tensor, TFLOPS", "tf32_tensor_tflops"),
    "fp32": Row("FP32, TFLOPS", "fp32_tflops"),
    "fp64": Row("FP64, TFLOPS", "fp64"),
    "bandwidth": Row("memory bandwidth, GB/s", "memory_bandwidth"),
    "link": Row("link (both directions), GB/s", "fabric_bandwidth"),
    "pcie": Row("PCIe", "pcie"),
    "mig": Row("MIG instances", "mig"),
    "ecc": Row("ECC", "ecc"),
    "rt": Row("ray-tracing cores", "rt_cores"),
    "tdp": Row("power, W", "tdp_watts"),
}
_WORK: Final = {
    "train": ("fp16", "bf16", "fp8", "tf32", "bandwidth", "link", "pcie", "mig", "tdp"),
    "serve": ("fp16", "fp8", "fp4", "int8", "bandwidth", "link", "mig", "tdp"),
    "hpc": ("fp64", "fp32", "bandwidth", "link", "pcie", "ecc", "mig", "tdp"),
    "render": ("fp32", "rt", "bandwidth", "pcie", "tdp"),
}
# What a dollar buys: the rate that mostly decides how fast such work is.
_BOUGHT: Final[dict[str, tuple[str, str, Callable[[Variant], float | None]]]] = {
    "train": ("FP16/BF16 TFLOPS", "TFLOPS", lambda board: board.fp16_tensor_tflops),
    "serve": ("bandwidth", "GB/s", lambda board: board.memory_bandwidth and board.memory_bandwidth / 1e9),
    "hpc": ("FP64 TFLOPS", "TFLOPS", lambda board: board.fp64_tflops),
    "render": ("FP32 TFLOPS", "TFLOPS", lambda board: board.fp32_tflops),
}
_SLOW_FP64: Final = 2.0


@click.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="GPU GPU...")
@click.option("--for", "work", type=click.Choice(list(_WORK)), default="train", help="What counts (default train).")
@with_session
def compare_command(session: Session, names: tuple[str, ...], work: str) -> None:
    """Compare GPUs by what matters for a kind of work, and say what to beware of."""
    boards = list(dict.fromkeys(board for name in names for board in _columns(name)))
    if len(boards) < 2:
        raise CumuloError("invalid_request", "comparing takes two GPUs or more", hint="cumulo gpus compare H100 L40S")
    compared = [Compared(kind, board, price(kind.name)) for kind, board in boards]
    if session.as_json:
        session.print_json([_data(each, work) for each in compared])
    else:
        click.echo("\n\n".join([table(compared, work), "\n".join(remarks(compared, work))]))


def _columns(name: str) -> list[tuple[GpuKind, Variant | None]]:
    """The board that a name tells; of a kind or family, each kind by its usual board."""
    boards = boards_of(name)
    if len(boards) == 1:
        return boards
    return list(dict.fromkeys((kind, kind.typical) for kind, _ in boards))


def table(compared: Sequence[Compared], work: str) -> str:
    columns = (Column("FOR " + work.upper()), *(Column(each.kind.name, right=True) for each in compared))
    lines = [
        ["board", *(UNKNOWN if each.board is None else each.board.name for each in compared)],
        ["memory", *(phrases.gib(each.kind.memory_bytes / GIB) for each in compared)],
    ]
    for key in _WORK[work]:
        row = _FACTS[key]
        lines.append([row.title, *(shown(row.fact, each.kind, each.board) for each in compared)])
    lines.append(["on-demand price/h", *(prices(each.price) for each in compared)])
    median = [each.price and phrases.usd(each.price.on_demand.median / NANO) for each in compared]
    lines.append(["  median", *(each or UNKNOWN for each in median)])
    lines.append(["spot price/h", *(spot(each.price) for each in compared)])
    lines.append(["listed", *(dates(each.price) for each in compared)])
    title, unit, _ = _BOUGHT[work]
    bought = [bought_by_dollar(each, work) for each in compared]
    lines.append([f"{title} for $1/h", *(UNKNOWN if each is None else f"{each:,.3g} {unit}" for each in bought)])
    memory = [_memory_by_dollar(each) for each in compared]
    lines.append(["memory for $1/h", *(UNKNOWN if each is None else f"{each:,.0f}GB" for each in memory)])
    return render(columns, lines)


def bought_by_dollar(each: Compared, work: str) -> float | None:
    """The rate that a dollar an hour buys at the median list price; None where rate or price is unknown."""
    rate = None if each.board is None else _BOUGHT[work][2](each.board)
    return None if rate is None or each.price is None else rate / (each.price.on_demand.median / NANO)


def _memory_by_dollar(each: Compared) -> float | None:
    return None if each.price is None else each.kind.memory_bytes / GIB / (each.price.on_demand.median / NANO)


def remarks(compared: Sequence[Compared], work: str) -> list[str]:
    """What is most for the money, and what a person should know before taking one of them for such work."""
    title, _, _ = _BOUGHT[work]
    lines = []
    known = [(bought, each) for each in compared if (bought := bought_by_dollar(each, work)) is not None]
    if known:
        most, best = max(known, key=lambda pair: pair[0])
        least = min(bought for bought, _ in known)
        lines.append(f"most {title} for the money: {best.kind.name} ({most / least:.1f}x the least)")
    for each in compared:
        lines += [f"{each.kind.name}: {text}" for text in cautions(each, work)]
    lines.append("Dense rates; what no source tells is unknown. Money: median on-demand list price of clouds.")
    return lines


def cautions(each: Compared, work: str) -> list[str]:
    """Traps of a board for a kind of work, that its figures alone don't show."""
    board = each.board
    if board is None:
        return ["no specification with a source is known"]
    found = []
    if board.bf16 is False and work in ("train", "serve"):
        found.append("no BF16: FP16 with loss scaling, or FP32")
    if work in ("train", "serve") and not board.fabric_bandwidth:
        found.append("no link between GPUs is known: tensor parallelism over PCIe costs far more time")
    elif work in ("train", "serve") and board.form_factor and board.form_factor.startswith("PCIe"):
        found.append("its bridge joins two boards: beyond a pair, GPUs talk over PCIe")
    if work == "hpc" and (board.fp64_tflops or _SLOW_FP64) < _SLOW_FP64:
        found.append(f"FP64 at {board.fp64_tflops:.3g} TFLOPS: not for double precision")
    if work == "render" and board.rt_cores == 0:
        found.append("no ray-tracing cores: slower in Cycles and OptiX than its FP32 rate tells")
    if board.flags:
        found.append(board.flags)
    return found


def _data(each: Compared, work: str) -> dict[str, object]:
    return {
        "gpu": each.kind.name, "board": each.board, "memory_bytes": each.kind.memory_bytes,
        "per_usd_h": bought_by_dollar(each, work), "unit": _BOUGHT[work][1], "cautions": cautions(each, work),
    }  # fmt: skip
