"""`python -m bench.spot.replicas_report DIR`: writes docs/spot-replicas.md's tables and its plot.

DIR holds the folders of traces named in `PLACES` and `SAVES`. What stands between `<!-- measured: NAME -->` and
`<!-- /measured -->` is written here, all around it by hand.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from bench.advisor.report import DOCS, fill
from bench.spot import checkpoint, replicas
from bench.spot.replicas_plot import draw
from bench.spot.traces import BadTrace

ONE_NODE: Final = "spot-traces/availability/1-node"
NINE_ZONES: Final = f"{ONE_NODE}/aws-02-15-2023"
PLACES: Final = {
    "nine zones, V100, 2023": (NINE_ZONES, 3),
    "two zones, four kinds, October 2022": (f"{ONE_NODE}/aws-10-26-2022", 2),
    "the same, November 2022": ("aws-extra-2022", 2),
    "three zones, 16 nodes, 2023": ("spot-traces/availability/16-node", 2),
    "four zones, kept alive, 2023": ("spot-traces/preemption/1-node/aws-04-22-2023", 2),
}
"""Folder, and into how many periods it is cut, of which each is held out in turn."""
SAVES: Final = {
    "October 2022, then November": (f"{ONE_NODE}/aws-10-26-2022", "aws-extra-2022", None),
    "2023, days 0 to 15, then the rest": (NINE_ZONES, NINE_ZONES, 15.0),
    "2023, then October 2022": (NINE_ZONES, f"{ONE_NODE}/aws-10-26-2022", None),
    "October 2022, then kept alive 2023": (f"{ONE_NODE}/aws-10-26-2022", "spot-traces/preemption/1-node", None),
}
_ELSEWHERE: Final = (10.0, 50.0)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spot.replicas_report", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="folders of traces of spot availability")
    parser.add_argument("--docs", metavar="DIR", type=Path, default=DOCS, help="where spot-replicas.md is")
    options = parser.parse_args(words)
    try:
        write(options.folder, options.docs)
    except BadTrace as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def write(folder: Path, docs: Path) -> None:
    """Fills the document and draws the plot."""
    nine = _replicas(str(folder / NINE_ZONES))
    elsewhere = [
        (place, row)
        for place, (where, periods) in PLACES.items()
        for row in _replicas(
            str(folder / where), "--periods", str(periods), "--missing", *(f"{times:g}" for times in _ELSEWHERE)
        )
        if row["period"] == "mean" and row["policy"].startswith(("SpotHedge", "cumulo"))
    ]
    saves = [
        (name, row)
        for name, (learnt, tested, split) in SAVES.items()
        for row in _saves(folder / learnt, folder / tested, split)
    ]
    plots = docs / "spot-replicas"
    plots.mkdir(exist_ok=True)
    draw([row for row in nine if row["period"] == "held out"], plots / "frontier.png")
    path = docs / "spot-replicas.md"
    made = {"replicas": list(_frontier(nine)), "elsewhere": list(_places(elsewhere)), "saves": list(_wastes(saves))}
    path.write_text(fill(path.read_text(), made))
    print(f"wrote {path} and {plots / 'frontier.png'}")


def _replicas(*words: str) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser()
    replicas.add_arguments(parser)
    return replicas.run(parser.parse_args(words))


def _saves(learnt: Path, tested: Path, split: float | None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser()
    checkpoint.add_arguments(parser)
    days = [] if split is None else ["--split-day", f"{split:g}"]
    return checkpoint.run(parser.parse_args(["--learn", str(learnt), "--test", str(tested), *days]))


def _shares(row: dict[str, Any]) -> str:
    ready, missing, none = (f"{100 * row[name]:.2f} %" for name in ("ready", "missing", "none_ready"))
    return f"{ready} | {row['cost']:.3f} | {missing} | {none}"


def _frontier(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    yield "| period | policy | enough ready | cost | missing | none ready | launches |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        yield f"| {row['period']} | {row['policy']} | {_shares(row)} | {row['launches']} |"


def _places(rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterable[str]:
    yield "| traces | policy | enough ready | cost | missing | none ready |"
    yield "|---|---|---|---|---|---|"
    for place, row in rows:
        yield f"| {place} | {row['policy']} | {_shares(row)} |"


def _wastes(rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterable[str]:
    """One line a cost of a save: what each policy wastes, and the age-based one against the best fixed interval."""
    cells: dict[tuple[str, float], list[str]] = {}
    for name, row in rows:
        cells.setdefault((name, row["save_s"]), []).append(f"{100 * row['waste']:.1f} %")
        if row["policy"] == checkpoint.BY_AGE:
            cells[name, row["save_s"]].append(f"{100 * (row['to_best_fixed'] - 1):+.0f} %")
    yield f"| learnt, then tested | a save takes | {' | '.join(checkpoint.POLICIES)} | to the best fixed |"
    yield "|---|---|" + "---|" * (len(checkpoint.POLICIES) + 1)
    for (name, cost), shares in cells.items():
        yield f"| {name} | {cost:.0f} s | {' | '.join(shares)} |"


if __name__ == "__main__":
    sys.exit(main())
