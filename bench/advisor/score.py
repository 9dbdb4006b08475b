"""Rows of estimates beside what was measured, and what they come to for each target."""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cumulo.advisor.estimate import Range
from cumulo.catalog.kinds import find


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published result and what is estimated for it, in the same unit.

    `baselines` are what simpler rules say. `refused` is set where the row also tells that something ran: whether the
    estimate would have called it impossible.
    """

    estimate: Range
    actual: float
    gpu: str
    model: str = ""
    source: str = ""
    baselines: Mapping[str, float] = field(default_factory=dict)
    refused: bool | None = None

    @property
    def error(self) -> float:
        """Signed, as a fraction of what was measured."""
        return self.estimate.expected / self.actual - 1


class Target(NamedTuple):
    """What is scored as one; `dropped` counts the rows that the data itself calls bad.

    A `check` is shown but sets no bar: too few rows, or too far from what the advisor is asked.
    """

    rows: Sequence[Row]
    dropped: int = 0
    check: bool = False


def score(rows: Sequence[Row], dropped: int = 0) -> dict[str, Any]:
    """Errors as fractions. `bias` is the mean signed error, `range_ratio` the median of high/low."""
    errors = [abs(row.error) for row in rows]
    scored = {
        "n": len(rows),
        "dropped": dropped,
        "mape": statistics.fmean(errors),
        "median_ape": statistics.median(errors),
        "p90_ape": quantile(errors, 0.9),
        "bias": statistics.fmean(row.error for row in rows),
        "inside_80": statistics.fmean(row.estimate.holds(row.actual) for row in rows),
        "range_ratio": statistics.median(row.estimate.ratio for row in rows),
    }
    refused = [row.refused for row in rows if row.refused is not None]
    return scored | ({"refused": statistics.fmean(refused)} if refused else {})


def quantile(values: Iterable[float], share: float) -> float:
    """Linear between the neighbours, as NumPy does it."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def baseline_scores(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """The same errors for each simple rule, over the rows that it says something about."""
    names = sorted({name for row in rows for name in row.baselines})
    found = {}
    for name in names:
        errors = [row.baselines[name] / row.actual - 1 for row in rows if name in row.baselines]
        found[name] = {
            "n": len(errors),
            "mape": statistics.fmean(map(abs, errors)),
            "median_ape": statistics.median(map(abs, errors)),
            "bias": statistics.fmean(errors),
        }
    return found


def gpu_family(gpu: str) -> str:
    """The family that the catalogue puts a GPU in (`A100`), or the name as given."""
    kinds = find(gpu)
    return kinds[0].family if kinds else gpu


def grouped(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return dict(sorted(groups.items()))


def report(targets: Mapping[str, Target]) -> dict[str, Any]:
    """For `--json`: each target, the same per GPU family and per source, and the simple rules beside it."""
    kept = {name: target for name, target in sorted(targets.items()) if target.rows}
    scored = {name: score(target.rows, target.dropped) for name, target in kept.items()}
    return {
        "targets": {name: each for name, each in scored.items() if not kept[name].check},
        "checks": {name: each for name, each in scored.items() if kept[name].check},
        "families": {name: _by(target.rows, lambda row: gpu_family(row.gpu)) for name, target in kept.items()},
        "sources": {name: _by(target.rows, lambda row: row.source) for name, target in kept.items()},
        "baselines": {name: baseline_scores(target.rows) for name, target in kept.items()},
    }


def _by(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, dict[str, Any]]:
    return {name: score(group) for name, group in grouped(rows, key).items()}


def as_json(found: Mapping[str, Any]) -> str:
    return json.dumps(found, indent=1)


def as_text(found: Mapping[str, Any]) -> str:
    """One table: targets, below each its GPU families and the simple rules."""
    lines = [_line("target", "rows", "dropped", "mean", "median", "p90", "bias", "in 80 %", "high/low")]
    for name, target in {**found["targets"], **found["checks"]}.items():
        lines.append(_scored(f"{name} (check)" if name in found["checks"] else name, target))
        lines += [_scored(f"  {family}", scored) for family, scored in found["families"][name].items()]
        for rule, scored in found["baselines"][name].items():
            mean, median, bias = (f"{100 * scored[key]:.1f} %" for key in ("mape", "median_ape", "bias"))
            lines.append(_line(f"  rule: {rule}", str(scored["n"]), "", mean, median, "", bias, "", ""))
        if "refused" in target:
            lines.append(f"  ran, but called impossible: {100 * target['refused']:.1f} %")
    for name, order in found.get("ranking", {}).items():
        lines.append(f"{name + ': order of GPUs':<38}{order['pairs']:>10}{'':>10}   Kendall's tau {order['tau']:.2f}")
    return "\n".join(lines)


def _scored(name: str, scored: Mapping[str, Any]) -> str:
    errors = [f"{100 * scored[key]:.1f} %" for key in ("mape", "median_ape", "p90_ape", "bias", "inside_80")]
    return _line(name, str(scored["n"]), str(scored["dropped"]), *errors, f"{scored['range_ratio']:.2f}")


def _line(name: str, *cells: str) -> str:
    return f"{name:<38}" + "".join(f"{cell:>10}" for cell in cells)
