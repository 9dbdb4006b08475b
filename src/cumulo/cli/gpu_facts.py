"""Facts about GPUs as people read them: what no source tells is `unknown`, and nothing is left to guess."""

from typing import Final

from cumulo.catalog.kinds import GpuKind, all_kinds, find, unknown_gpu
from cumulo.catalog.mig import mig_profiles
from cumulo.catalog.naming import reduce_name
from cumulo.catalog.prices import ListPrice
from cumulo.catalog.variants import Variant
from cumulo.cli import phrases
from cumulo.domain.quantities import NANO

UNKNOWN: Final = "unknown"


def usual_boards() -> list[tuple[GpuKind, Variant | None]]:
    return [(kind, kind.typical) for kind in all_kinds()]


def boards_of(name: str) -> list[tuple[GpuKind, Variant | None]]:
    """Every board that a name means; a board's own name means it alone. Raises CumuloError (`unknown_gpu`)."""
    kinds = kinds_of(name)
    key = reduce_name(name).key
    found: list[tuple[GpuKind, Variant | None]] = []
    exact: list[tuple[GpuKind, Variant | None]] = []
    for kind in kinds:
        for board in kind.variants or (None,):
            found.append((kind, board))
            if board is not None and reduce_name(board.name).key == key:
                exact.append((kind, board))
    return exact or found


def kinds_of(name: str) -> tuple[GpuKind, ...]:
    """The kinds that a name means. Raises CumuloError (`unknown_gpu`)."""
    if kinds := find(name):
        return kinds
    raise unknown_gpu(name)


def shown(name: str, kind: GpuKind, board: Variant | None) -> str:
    """A fact as people read it; `unknown` without a source, also where one might guess that there is none."""
    if name == "mig":
        return mig(kind, board)
    if board is None:
        return UNKNOWN
    if name == "fp64":
        return fp64(board)
    value = getattr(board, name)
    if value is None:
        return UNKNOWN
    if name.endswith("_bandwidth"):
        return f"{value / 1e9:,.0f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def fp64(board: Variant) -> str:
    """`9.7`, or `9.7, tensor 19.5` where tensor cores do it too."""
    plain = UNKNOWN if board.fp64_tflops is None else f"{board.fp64_tflops:.3g}"
    return plain if board.fp64_tensor_tflops is None else f"{plain}, tensor {board.fp64_tensor_tflops:.3g}"


def mig(kind: GpuKind, board: Variant | None) -> str:
    """At most how many instances, where it can be cut at all."""
    if board is not None and board.mig_max_instances is not None:
        return str(board.mig_max_instances) if board.mig_max_instances else "none"
    profiles = mig_profiles(kind.name)
    return str(max(profile.max_instances for profile in profiles)) if profiles else UNKNOWN


def prices(listed: ListPrice | None) -> str:
    if listed is None:
        return UNKNOWN
    low, high = (phrases.usd(amount / NANO) for amount in (listed.on_demand.least, listed.on_demand.most))
    return low if low == high else f"{low} to {high}"


def spot(listed: ListPrice | None) -> str:
    if listed is None or listed.spot is None:
        return UNKNOWN
    low, high = (phrases.usd(amount / NANO) for amount in (listed.spot.least, listed.spot.most))
    return low if low == high else f"{low} to {high}"


def dates(listed: ListPrice | None) -> str:
    if listed is None:
        return UNKNOWN
    found = list(dict.fromkeys(date for date in (listed.oldest, listed.newest) if date))
    return " to ".join(found) or "without a date"
