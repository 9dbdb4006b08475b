"""Which board of the catalogue a published result means, in the many ways that results spell it."""

import re
from collections.abc import Iterator
from dataclasses import replace

from bench.advisor.data import board
from bench.advisor.fit import BadData
from cumulo.catalog.kinds import GpuKind
from cumulo.catalog.variants import Variant

_SAID_BESIDE = re.compile(
    r"\(R\)|Tensor Core GPU|AI Accelerator|Grace Hopper Superchip|\bBlackwell GPU\b|\bDLC\b", re.IGNORECASE
)
_BRACKETED = re.compile(r"\(([^()]*)\)")


def named_board(name: str) -> tuple[Variant, GpuKind] | None:
    """The board that a result ran on; None where the catalogue has none (a CPU, a GPU without specifications)."""
    for spelling in _spellings(name):
        try:
            variant, kind = board(spelling)
        except BadData:
            continue
        return _of_form(name, variant, kind), kind
    return None


def _spellings(name: str) -> Iterator[str]:
    """As given, without what is said beside the name, and what stands in brackets."""
    yield name
    plain = _SAID_BESIDE.sub(" ", name)
    yield " ".join(_BRACKETED.sub(" ", plain).split())
    yield from (inside.strip() for inside in _BRACKETED.findall(plain))


def _of_form(name: str, variant: Variant, kind: GpuKind) -> Variant:
    """Kinds have an NVL board beside another: the name tells which."""
    if all(variant.name != each.name for each in kind.variants) and kind.typical:
        variant = replace(variant, name=kind.typical.name)  # named for its power: the catalogue finds it by its own
    if "NVL" not in name.upper().replace("NVLINK", "") or "NVL" in variant.name:
        return variant
    return next((each for each in kind.variants if "NVL" in each.name), variant)
