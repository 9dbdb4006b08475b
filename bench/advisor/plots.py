"""Plots of what was predicted against what was measured, each with its range, one colour a family of GPUs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.advisor.score import Row, gpu_family, grouped

_INCHES: Final = (6.4, 5.6)
_DOTS: Final = 110
_MOST_COLOURS: Final = 9


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """Writes a PNG. The same rows give the same bytes: no date, no name of the program."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=_INCHES, dpi=_DOTS, layout="constrained")
    values = [value for row in rows for value in (row.actual, row.estimate.expected) if value > 0]
    low, high = min(values) / 1.5, max(values) * 1.5
    line = (low, high)
    axes.plot(line, line, color="0.35", linewidth=1, zorder=1)
    for factor in (0.8, 1.25):
        axes.plot(line, (low * factor, high * factor), color="0.75", linewidth=0.8, linestyle="--", zorder=1)
    families = sorted(grouped(rows, lambda row: gpu_family(row.gpu)).items(), key=lambda item: -len(item[1]))
    for number, (family, own) in enumerate(families):
        colour = f"C{number}" if number < _MOST_COLOURS else "0.6"
        actual, expected = [row.actual for row in own], [row.estimate.expected for row in own]
        below = [row.estimate.expected - row.estimate.low for row in own]
        above = [row.estimate.high - row.estimate.expected for row in own]
        axes.errorbar(actual, expected, yerr=(below, above), fmt="none", ecolor=colour, alpha=0.25, linewidth=0.8)
        axes.scatter(actual, expected, s=12, color=colour, label=f"{family} ({len(own)})", zorder=3)
    axes.set(xscale="log", yscale="log", xlim=line, ylim=line, xlabel="measured", ylabel="predicted, with its range")
    axes.set_title(title, fontsize=11)
    axes.legend(fontsize=8, loc="upper left", framealpha=0.9, ncols=1 + len(families) // 9)
    axes.grid(alpha=0.2)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
