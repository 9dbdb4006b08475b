"""Makes the catalogue's shipped price list from the collected price lists of clouds.

    python tools/catalog.py FOLDER     # a folder with aws_gpu_ondemand_reserved.csv.gz, azure_gpu.csv.gz, ...

Run when new lists were collected; what it writes, src/cumulo/catalog/data/prices.csv, is committed. One row is one way
to rent whole GPUs: the cheapest zone of an instance type in a region. Every GPU name is resolved to a kind by hand-made
rules below, since clouds write "A100" for either memory; rows whose kind can't be told are left out and counted.
"""

import csv
import gzip
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cumulo.catalog.kinds import find

OUTPUT = Path(__file__).parents[1] / "src/cumulo/catalog/data/prices.csv"
COLUMNS = (
    *("cloud", "region", "instance_type", "kind", "gpus", "cpus", "memory_gib"),
    *("on_demand", "spot", "reserved_1y", "bare"),
)

# Names that a cloud uses for one kind of several, by the start of the instance type ("" is any).
MEANT = {
    ("aws", "NVIDIA A100"): {"p4d.": "A100-40GB", "p4de.": "A100-80GB"},
    ("aws", "A100"): {"p4d.": "A100-40GB"},
    ("aws", "NVIDIA H100"): {"p5.": "H100-80GB"},
    ("aws", "H100"): {"p5.": "H100-80GB"},
    ("aws", "NVIDIA B200 Blackwell"): {"p6-b200.": "B200-180GB"},
    ("aws", "NVIDIA B300 Blackwell"): {"p6-b300.": "B300-270GB"},
    ("aws", "NVIDIA V100"): {"p3.": "V100-16GB", "p3dn.": "V100-32GB"},
    ("azure", "A100"): {"Standard_ND96asr_v4": "A100-40GB"},
    ("azure", "H100"): {"Standard_NC": "H100-94GB", "Standard_ND": "H100-80GB"},
    ("azure", "V100"): {"Standard_NC": "V100-16GB"},
    ("gcp", "A100"): {"": "A100-40GB"},
    ("gcp", "H100"): {"": "H100-80GB"},
    ("gcp", "P100"): {"": "P100-16GB"},
    ("gcp", "V100"): {"": "V100-16GB"},
    ("lambda", "A100"): {"": "A100-40GB"},
    ("lambda", "GH200"): {"": "GH200-96GB"},
    ("lambda", "H100"): {"": "H100-80GB"},
    ("lambda", "V100"): {"": "V100-16GB"},
    ("nebius", "H100"): {"gpu-h100-sxm": "H100-80GB"},
    ("vast", "H100"): {"H100_SXM": "H100-80GB", "H100_NVL": "H100-94GB"},
    ("verda", "H100"): {"1H100.80S": "H100-80GB"},
    ("verda", "V100"): {"": "V100-16GB"},
}
# Not whole GPUs, or not GPUs of the name they bear: Azure's MI25 sizes below NV32as are parts of one card.
NOT_WHOLE = ("Standard_NV4as_v4", "Standard_NV8as_v4", "Standard_NV16as_v4")


class Row(NamedTuple):
    """One way to rent, as in COLUMNS. Prices are USD per hour of the whole instance."""

    cloud: str
    region: str
    instance_type: str
    kind: str
    gpus: int
    cpus: float | None
    memory_gib: float | None
    on_demand: float | None
    spot: float | None
    reserved_1y: float | None
    bare: bool


def main(folder: Path) -> None:
    dropped: Counter[str] = Counter()
    cheapest: dict[tuple[str, str, str, int], Row] = {}
    for row in rows(folder, dropped):
        key = (row.cloud, row.region, row.instance_type or row.kind, row.gpus)
        cheapest[key] = cheaper(cheapest.get(key, row), row)
    with OUTPUT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for _, row in sorted(cheapest.items()):
            writer.writerow([shown(value) for value in row])
    print(f"{len(cheapest)} rows, {OUTPUT.stat().st_size} bytes, in {OUTPUT}")
    for reason, count in sorted(dropped.items()):
        print(f"left out: {count} rows, {reason}")


def rows(folder: Path, dropped: Counter[str]) -> Iterator[Row]:
    for path in (*sorted(folder.glob("*_gpu*.csv.gz")), folder / "aws_p_family_spot.csv.gz"):
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            for raw in csv.DictReader(file):
                # The raw list holds what gcp_gpu lists with its host, and GPUs that attach to any host: no type.
                if path.name == "gcp_gpu_raw.csv.gz" and (
                    raw["instance_type"] or raw["gpu"] not in ("P4", "P100", "T4", "V100")
                ):
                    continue
                row = read(raw, raw.get("cloud") or "gcp")
                if isinstance(row, Row):
                    yield row
                else:
                    dropped[row] += 1


def read(raw: dict[str, str], cloud: str) -> Row | str:
    """The row, or why it is left out."""
    gpus = float(raw["gpu_count"])
    instance_type = raw["instance_type"]
    if gpus != int(gpus) or gpus < 1 or instance_type in NOT_WHOLE:
        return f"{cloud} {raw['gpu']}: a part of a GPU"
    kind = kind_of(cloud, raw["gpu"], instance_type)
    if kind is None:
        return f"{cloud} {raw['gpu']}: not a GPU of the catalogue, or of unknown memory"
    on_demand, spot = price(raw["price_usd_h"]), price(raw.get("spot_price_usd_h", ""))
    if on_demand is None:
        return f"{cloud} {raw['gpu']}: no price"
    return Row(
        cloud=cloud,
        region=region_of(cloud, raw["region"]),
        instance_type=instance_type,
        kind=kind,
        gpus=int(gpus),
        cpus=price(raw["vcpus"]),
        memory_gib=price(raw["memory_gib"]),
        on_demand=on_demand,
        spot=None if spot is not None and spot > on_demand else spot,
        reserved_1y=price(raw.get("reserved_usd_h", "")),
        bare=not instance_type,
    )


def kind_of(cloud: str, gpu: str, instance_type: str) -> str | None:
    # vast: `2x-RTX_3060_Ti-32-65536` tells the model that its GPU column cuts to RTX3060.
    board = instance_type.split("-")[1] if cloud == "vast" else instance_type
    if meant := MEANT.get((cloud, gpu)):
        return next((kind for start, kind in meant.items() if board.startswith(start)), None)
    kinds = find(board if cloud == "vast" else gpu)
    return kinds[0].name if len(kinds) == 1 else None


def region_of(cloud: str, text: str) -> str:
    """vast names places: `Florida, US, NA` is US."""
    return text if cloud != "vast" else text.split(",")[-2].strip() if text.count(",") > 1 else ""


def price(text: str) -> float | None:
    """None for an empty field and for 0, which some lists write for unknown."""
    return float(text) or None if text else None


def cheaper(one: Row, other: Row) -> Row:
    """The same instance type in two zones, or two lists: each price the lower known one."""
    return one._replace(
        on_demand=lower(one.on_demand, other.on_demand),
        spot=lower(one.spot, other.spot),
        reserved_1y=lower(one.reserved_1y, other.reserved_1y),
    )


def lower(one: float | None, other: float | None) -> float | None:
    return min((value for value in (one, other) if value is not None), default=None)


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else ""
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
