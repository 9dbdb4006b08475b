"""Aligned columns: cut to the width of a terminal, whole everywhere else; colour only where a person sees it."""

import os
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STATUS = {
    "running": "green", "succeeded": "green", "ready": "green", "ok": "green",
    "queued": "yellow", "starting": "cyan", "recovering": "yellow", "stopping": "yellow", "stopped": "dim",
    "failed": "red", "lost": "red", "cancelled": "dim", "unreachable": "red", "down": "red", "draining": "yellow",
    "warn": "yellow", "fail": "red", "quarantined": "red", "degraded": "yellow",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title; `right` aligns numbers, `shrinks` is cut first where the terminal is narrow."""

    title: str
    right: bool = False
    shrinks: bool = False


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colour(stream: TextIO) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def styled(text: str, style: str, *, stream: TextIO | None = None) -> str:
    """`text` in a style, where `stream` (stdout if none is given) shows it."""
    if style not in _STYLES or not has_colour(stream or sys.stdout):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def status_style(status: str) -> str:
    return _STATUS.get(status, "")


def render(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, status: str = "STATUS") -> str:
    """The table as text without a newline at its end. Cells of the column titled `status` carry its colour."""
    cells = [[column.title for column in columns], *[list(row) for row in rows]]
    widths = [max(width(row[place]) for row in cells) for place in range(len(columns))]
    if is_terminal(sys.stdout):
        widths = _fit(columns, widths, shutil.get_terminal_size().columns)
    lines = []
    for number, row in enumerate(cells):
        parts = []
        for place, column in enumerate(columns):
            text = cut(row[place], widths[place])
            space = " " * (widths[place] - width(text))
            if number == 0:
                text = styled(text, "bold")
            elif column.title == status:
                text = styled(text, status_style(row[place].split(" ")[0]))
            parts.append(space + text if column.right else text + space)
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def pairs(rows: Sequence[tuple[str, str]], *, indent: int = 2) -> str:
    """Names and what they are, aligned; rows without a value are left out."""
    shown = [(name, value) for name, value in rows if value]
    widest = max((width(name) for name, _ in shown), default=0)
    return "\n".join(f"{' ' * indent}{name}{' ' * (widest - width(name))}  {value}" for name, value in shown)


def _fit(columns: Sequence[Column], widths: list[int], limit: int) -> list[int]:
    """Takes from the widest column that shrinks until the line fits, leaving each at least 6."""
    widths = list(widths)
    over = sum(widths) + 2 * (len(widths) - 1) - limit
    while over > 0:
        able = [place for place, column in enumerate(columns) if column.shrinks and widths[place] > 6]
        if not able:
            break
        widest = max(able, key=lambda place: widths[place])
        widths[widest] -= 1
        over -= 1
    return widths


def width(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def cut(text: str, limit: int) -> str:
    """`text` in at most `limit` columns, with … where something was cut."""
    if width(text) <= limit:
        return text
    kept, used = [], 0
    for char in text:
        used += width(char)
        if used > limit - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"
