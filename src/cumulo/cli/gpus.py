"""`gpus`: what GPUs are capable of and rent for, and two or more of them side by side.

Read from the catalogue that ships in the wheel, so it needs no server: these are facts about boards, not about a cloud.
What can be launched here, `cumulo offers` tells. Rates are dense, and what no source tells is `unknown`.
"""

from collections.abc import Sequence
from typing import Any, Final

import click

from cumulo.catalog.kinds import GpuKind
from cumulo.catalog.mig import mig_profiles
from cumulo.catalog.prices import PriceRange, price
from cumulo.catalog.variants import Variant
from cumulo.cli import phrases
from cumulo.cli.gpu_facts import UNKNOWN, boards_of, dates, prices, shown, spot, usual_boards
from cumulo.cli.gpus_compare import compare_command
from cumulo.cli.session import Session, with_session
from cumulo.cli.tables import Column, render
from cumulo.domain.quantities import GIB, NANO

_NOTE: Final = (
    "Dense rates in TFLOPS, of the usual board (SXM where there is one). FP16: or BF16, on tensor cores with FP32\n"
    "accumulation. LINK: both directions. Prices: list prices of clouds per GPU and hour, least to most."
)


class Gpus(click.Group):
    """`compare` is a command; anything else is the name of a GPU."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = [word for word in args if not word.startswith("-")]
        if not (names and names[0] in self.commands) and not {"-h", "--help"} & set(args):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("gpus", cls=Gpus)
def gpus_command() -> None:
    """Show what GPUs are capable of and rent for: all, or those named. Needs no server.

    \b
    cumulo gpus
    cumulo gpus A100 RTX4090
    cumulo gpus compare H100 A100-80GB L40S --for train

    What can be launched here, `cumulo offers` tells.
    """


@gpus_command.command("list")
@click.argument("names", nargs=-1, metavar="[GPU]...")
@with_session
def list_command(session: Session, names: tuple[str, ...]) -> None:
    """List the GPUs of the catalogue; of those named, every board."""
    boards = list(dict.fromkeys(board for name in names for board in boards_of(name))) if names else usual_boards()
    if session.as_json:
        session.print_json([as_data(kind, board) for kind, board in boards])
        return
    told = [(kind, board) for kind, board in boards if names or board is not None]
    click.echo(f"{table(told)}\n\n{_NOTE}")
    if names:
        for board in (board for _, board in told if board is not None and board.flags):
            click.echo(f"{board.name}: {board.flags}")
    else:
        bare = [kind.name for kind, board in boards if board is None]
        click.echo(f"Known by name, without a specification that has a source: {', '.join(bare)}.")


def table(boards: Sequence[tuple[GpuKind, Variant | None]]) -> str:
    columns = (
        Column("GPU"), Column("BOARD", shrinks=True), Column("MEMORY", right=True), Column("GB/S", right=True),
        Column("FP16", right=True), Column("FP8", right=True), Column("FP32", right=True), Column("FP64", right=True),
        Column("BF16"), Column("LINK GB/S", right=True), Column("PCIE"), Column("MIG", right=True),
        Column("PRICE/H", right=True), Column("SPOT", right=True), Column("LISTED"),
    )  # fmt: skip
    return render(columns, [_row(kind, board) for kind, board in boards])


def _row(kind: GpuKind, board: Variant | None) -> list[str]:
    listed = price(kind.name)
    return [
        kind.name, UNKNOWN if board is None else board.name, phrases.gib(kind.memory_bytes / GIB),
        *(shown(name, kind, board) for name in (
            "memory_bandwidth", "fp16_tensor_tflops", "fp8_tensor_tflops", "fp32_tflops", "fp64", "bf16",
            "fabric_bandwidth", "pcie", "mig",
        )),
        prices(listed), spot(listed), dates(listed),
    ]  # fmt: skip


def as_data(kind: GpuKind, board: Variant | None) -> dict[str, Any]:
    """For `--json`: every fact of the catalogue; null where unknown. Bandwidths in bytes a second, prices in USD."""
    listed = price(kind.name)
    return {
        "gpu": kind.name, "family": kind.family, "vendor": kind.vendor, "architecture": kind.architecture,
        "memory_bytes": kind.memory_bytes, "board": board,
        "mig_profiles": [profile.name for profile in mig_profiles(kind.name)],
        "price_usd_h": None if listed is None else {
            "on_demand": _amounts(listed.on_demand), "spot": listed.spot and _amounts(listed.spot),
            "clouds": listed.clouds, "oldest": listed.oldest, "newest": listed.newest, "bare": listed.bare,
        },
    }  # fmt: skip


def _amounts(amounts: PriceRange) -> dict[str, float]:
    return {name: getattr(amounts, name) / NANO for name in ("least", "median", "most")}


gpus_command.add_command(compare_command)
