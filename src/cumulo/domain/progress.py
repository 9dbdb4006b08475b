"""Progress that a run tells of: a JSON line appended to $CUMULO_PROGRESS, or a match of a pattern in its log.

A line may also, or only, tell until when what was done is saved: `{"checkpoint": <epoch seconds>}`.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Protocol

from cumulo.domain.names import printable


class Match(Protocol):
    """What a regular expression found, whichever library looked."""

    def groupdict(self) -> dict[str, Any]: ...

    def groups(self) -> tuple[Any, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`done` of `total` (0 when unknown) in `unit`s, at epoch seconds `at`; metrics are numbers or short strings."""

    done: float
    total: float
    at: float
    unit: str = ""
    metrics: dict[str, float | str] = field(default_factory=dict)

    @property
    def fraction(self) -> float | None:
        return min(1.0, max(0.0, self.done / self.total)) if self.total > 0 else None


def parse_line(line: str, at: float) -> Progress | None:
    """Reads one JSON line; None when it is not one, since a run may write anything."""
    try:
        data = json.loads(line)
        done, total = float(data["done"]), float(data.get("total") or 0)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    if not (abs(done) < 1e18 and abs(total) < 1e18):  # also refuses NaN and infinities
        return None
    return Progress(
        done=done,
        total=total,
        at=at,
        unit=printable(str(data.get("unit") or ""), 24),
        metrics=_metrics(data),
    )


def parse_checkpoint(line: str, at: float) -> float | None:
    """Until when work is saved, in epoch seconds, by a line seen at `at`; None when the line does not tell."""
    try:
        told = json.loads(line)["checkpoint"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_time = isinstance(told, int | float) and not isinstance(told, bool) and 0 < told < 1e18
    return min(at, float(told)) if is_time else None


def _metrics(data: dict[str, Any]) -> dict[str, float | str]:
    raw = data.get("metrics")
    if not isinstance(raw, dict):
        return {}
    kept: dict[str, float | str] = {}
    for name, value in list(raw.items())[:16]:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18:
            kept[printable(str(name), 32)] = float(value)
        elif isinstance(value, str):
            kept[printable(str(name), 32)] = printable(value, 64)
    return kept


def parse_match(match: Match, at: float) -> Progress | None:
    """Progress from a match with groups `done` and `total` by name, or first and second by position."""
    named = match.groupdict()
    found = (named["done"], named.get("total")) if "done" in named else (*match.groups(), None, None)[:2]
    try:
        done, total = float(found[0] or ""), float(found[1] or 0)
    except ValueError:
        return None
    return Progress(done=done, total=total, at=at)


def remaining_s(first: Progress, last: Progress) -> float | None:
    """Seconds left by the mean rate between two readings; None when it can't be told."""
    elapsed, gained = last.at - first.at, last.done - first.done
    if last.total <= 0 or elapsed <= 0 or gained <= 0:
        return None
    return max(0.0, (last.total - last.done) * elapsed / gained)
