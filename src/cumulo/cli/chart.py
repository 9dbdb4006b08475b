"""A chart of steps in text: what something was over time, one column of characters for each piece of it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"


class Step(NamedTuple):
    """A value from `at` (epoch seconds) until the next step."""

    at: float
    value: float


def columns(steps: Sequence[Step], *, since: float, until: float, width: int) -> list[float | None]:
    """The mean over time in each of `width` pieces of a time; None where nothing is known yet. Steps are in order."""
    length = (until - since) / width
    return [_mean(steps, since + place * length, since + (place + 1) * length) for place in range(width)]


def _mean(steps: Sequence[Step], since: float, until: float) -> float | None:
    area = known = 0.0
    for step, after in zip(steps, [*(step.at for step in steps[1:]), float("inf")], strict=False):
        seconds = min(until, after) - max(since, step.at)
        if seconds > 0:
            area, known = area + seconds * step.value, known + seconds
    return area / known if known else None


def drawn(values: Sequence[float | None], *, top: float, height: int = 5, label: str = "{:.2f}") -> str:
    """The columns with an axis on their left, from 0 to `top`."""
    lines = []
    widest = len(label.format(top))
    for row in range(height, 0, -1):
        cells = "".join(_cell(value, top, row, height) for value in values)
        mark = label.format(top * row / height) if row == height or row == 1 else ""
        lines.append(f"{mark:>{widest}} ┤{cells}".rstrip())
    lines.append(f"{label.format(0.0):>{widest}} └{'─' * len(values)}")
    return "\n".join(lines)


def _cell(value: float | None, top: float, row: int, height: int) -> str:
    if value is None or top <= 0:
        return " "
    filled = round(value / top * height * 8) - (row - 1) * 8
    return _EIGHTHS[max(0, min(8, filled))]
