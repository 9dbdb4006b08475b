"""What public clouds' purchase options cost beside on-demand, per GPU kind: what a cloud's own terms default to.

Ratios in thousandths of the on-demand price, made from the price list by `tools/terms.py`.
"""

import csv
from dataclasses import dataclass
from functools import cache
from typing import Final

from cumulo.catalog.kinds import DATA

_FILE: Final = DATA / "terms.csv"
_EVERY_KIND: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTerms:
    """Ratios to on-demand, in thousandths. `spot_measured`: of the kind itself, and not of all that clouds list."""

    spot_milli: int
    reserved_1y_milli: int
    spot_measured: bool


def list_terms(kind: str) -> ListTerms:
    """The terms of a GPU kind (its exact name), known to the catalogue or not."""
    own, every = _rows().get(kind, {}), _rows()[_EVERY_KIND]
    return ListTerms(
        spot_milli=_milli(own.get("spot") or every["spot"]),
        reserved_1y_milli=_milli(own.get("reserved_1y") or every["reserved_1y"]),
        spot_measured=bool(own.get("spot")),
    )


def _milli(text: str) -> int:
    return round(float(text) * 1000)


@cache
def _rows() -> dict[str, dict[str, str]]:
    with _FILE.open(encoding="utf-8", newline="") as file:
        return {row["kind"]: row for row in csv.DictReader(file)}
