"""Rows of results and how they are shown: for people as one table, for programs as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

HEAD = ("budget", "at most", "measured", "bare limit", "verdict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One budget and what was measured. `measured` None: it could not be, and `note` says why.

    `bare` is the least that the same thing costs without Cumulo, in the same unit, and `bare_of` says what that is.
    """

    name: str
    what: str
    unit: str
    budget: float
    measured: float | None
    at_least: bool = False
    bare: float | None = None
    bare_of: str = ""
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        held = self.measured >= self.budget if self.at_least else self.measured <= self.budget
        return "held" if held else "MISSED"


def as_json(rows: Sequence[Row], facts: dict[str, Any]) -> str:
    """The rows with their verdicts, and the facts about the machine."""
    return json.dumps({"rows": [asdict(row) | {"verdict": row.verdict} for row in rows], **facts}, indent=2)


def as_text(rows: Sequence[Row]) -> str:
    """One table, a line a row; notes stand below it."""
    cells = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(HEAD))]
    lines = [_line(cells[0], widths), "  ".join("-" * width for width in widths)]
    lines += [_line(line, widths) for line in cells[1:]]
    lines += [f"{row.name}: {row.note}" for row in rows if row.note]
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    budget = f"{'≥ ' if row.at_least else ''}{_figure(row.budget)} {row.unit}"
    measured = "-" if row.measured is None else f"{_figure(row.measured)} {row.unit}"
    bare = f"{_figure(row.bare)} {row.unit}: {row.bare_of}" if row.bare is not None else row.bare_of or "-"
    return row.what, budget, measured, bare, row.verdict


def _figure(value: float) -> str:
    """Three figures are all that a measurement here is good for."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _line(cells: Iterable[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
