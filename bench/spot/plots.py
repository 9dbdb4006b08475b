"""Cost against deadline for each policy, one plot a changeover."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_COLOURS: Final = {
    "greedy": "C7",
    "time-sliced": "C4",
    "uniform-progress": "C0",
    "cumulo": "C3",
    "optimum": "0.15",
}


def draw(rows: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Writes a PNG. The same rows give the same bytes: no date, no name of the program."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    overheads = sorted({row["overhead_h"] for row in rows})
    figure, all_axes = pyplot.subplots(
        1,
        len(overheads),
        figsize=(3.1 * len(overheads), 3.6),
        dpi=110,
        layout="constrained",
        sharey=True,
        squeeze=False,
    )
    for axes, overhead in zip(all_axes[0], overheads, strict=True):
        for policy, colour in _COLOURS.items():
            own = sorted(
                (row["deadline_h"], row["cost_ratio"])
                for row in rows
                if row["policy"] == policy and row["overhead_h"] == overhead
            )
            axes.plot(*zip(*own, strict=True), color=colour, marker="o", markersize=3, label=policy)
        axes.set_title(f"changeover {overhead:g} h", fontsize=10)
        axes.set_xlabel("deadline, hours (48 h of work)")
        axes.grid(alpha=0.2)
    all_axes[0][0].set_ylabel("cost, on-demand = 1")
    all_axes[0][-1].legend(fontsize=8)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
