"""Makes the catalogue's terms of purchase, src/cumulo/catalog/data/terms.csv, from its shipped price list.

    python tools/terms.py           # writes the file; --check only tells whether it is as it would be made

A kind's spot ratio is the median over clouds of each cloud's median of spot / on-demand over its rows, so that a cloud
with many regions speaks once. One cloud's discount is its policy and no market: a kind that fewer than two clouds list
as spot gets none of its own, and the row `*`, the median over the kinds that have one, speaks for it. The one-year
reserved ratio is the median over rows (they are all of one cloud), `*` that of all rows.
"""

import csv
import io
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from cumulo.catalog.kinds import all_kinds
from cumulo.catalog.prices import Rental, rentals

OUTPUT = Path(__file__).parents[1] / "src/cumulo/catalog/data/terms.csv"
COLUMNS = ("kind", "spot", "spot_least", "spot_most", "spot_clouds", "reserved_1y", "reserved_rows")
LEAST_CLOUDS = 2


def main(check: bool) -> int:
    text = made()
    if check:
        return int(OUTPUT.read_text(encoding="utf-8") != text)
    OUTPUT.write_text(text, encoding="utf-8")
    print(f"{text.count(chr(10)) - 1} rows in {OUTPUT}")
    return 0


def made() -> str:
    """The file's text."""
    spot = {kind.name: spot_of(rentals(kind.name)) for kind in all_kinds()}
    reserved = {kind.name: reserved_of(rentals(kind.name)) for kind in all_kinds()}
    spot = {kind: clouds for kind, clouds in spot.items() if len(clouds) >= LEAST_CLOUDS}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    every = [median(clouds.values()) for clouds in spot.values()]
    everywhere = [ratio for ratios in reserved.values() for ratio in ratios]
    writer.writerow(["*", *shown(every, len(every)), f"{median(everywhere):.3f}", len(everywhere)])
    for kind in sorted(spot.keys() | {kind for kind, ratios in reserved.items() if ratios}):
        clouds = list(spot.get(kind, {}).values())
        bought = f"{median(reserved[kind]):.3f}" if reserved[kind] else ""
        writer.writerow([kind, *shown(clouds, len(clouds)), bought, len(reserved[kind])])
    return out.getvalue()


def spot_of(listed: tuple[Rental, ...]) -> dict[str, float]:
    """Each cloud's median of spot / on-demand, where spot saves anything."""
    by_cloud: dict[str, list[float]] = defaultdict(list)
    for one in listed:
        if one.spot is not None and one.spot < one.on_demand:
            by_cloud[one.cloud].append(one.spot / one.on_demand)
    return {cloud: median(ratios) for cloud, ratios in by_cloud.items()}


def reserved_of(listed: tuple[Rental, ...]) -> list[float]:
    return [one.reserved_1y / one.on_demand for one in listed if one.reserved_1y is not None]


def shown(ratios: list[float], count: int) -> list[object]:
    if not ratios:
        return ["", "", "", 0]
    return [f"{median(ratios):.3f}", f"{min(ratios):.3f}", f"{max(ratios):.3f}", count]


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
