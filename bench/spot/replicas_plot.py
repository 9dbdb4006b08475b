"""The frontier of a service on spot: what it costs against how often too few replicas are ready."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_INCHES: Final = (7.6, 4.4)
_DOTS: Final = 110
_MEASURES: Final = (("ready", "time with too few ready, %"), ("none_ready", "time with none ready, %"))


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Writes a PNG, one panel a measure. The same rows give the same bytes: no date, no name of the program."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot, ticker

    figure, panels = pyplot.subplots(1, 2, figsize=_INCHES, dpi=_DOTS, layout="constrained")
    for axes, (measure, label) in zip(panels, _MEASURES, strict=True):
        for number, row in enumerate(row for row in rows if "missing_price" not in row):
            name = row["policy"].partition(" (")[0]
            axes.scatter(
                row["cost"], _short(row, measure), s=34, marker="D", color=f"C{number + 2}", label=name, zorder=3
            )
        for outage, name in ((False, "cumulo"), (True, "cumulo, an outage at twice")):
            own = [row for row in rows if "missing_price" in row and bool(row["outage_price"]) == outage]
            own.sort(key=lambda row: float(row["cost"]))
            points = [float(row["cost"]) for row in own], [_short(row, measure) for row in own]
            axes.plot(*points, marker="o", markersize=4, linewidth=1.2, label=name)
        axes.set(xlabel="cost, on-demand alone being 1", ylabel=label, yscale="log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        axes.grid(alpha=0.2, which="both")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


def _short(row: dict[str, Any], measure: str) -> float:
    share = 1 - row[measure] if measure == "ready" else row[measure]
    return max(100 * float(share), 0.01)
