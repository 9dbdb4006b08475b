"""Which vision networks people name, and how many operations one image costs each."""

import csv
import re
from dataclasses import dataclass
from functools import cache

from cumulo.catalog.kinds import DATA
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionNetwork:
    """`gflops` are of one forward pass over one image of `pixels` x `pixels`: 10**9 operations."""

    name: str
    gflops: float
    pixels: int


@cache
def vision_networks() -> dict[str, VisionNetwork]:
    """Every network of the table, by each key that its names reduce to."""
    found: dict[str, VisionNetwork] = {}
    with (DATA / "vision.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            network = VisionNetwork(name=row["name"], gflops=float(row["gflops"]), pixels=int(row["pixels"]))
            for spelling in (row["name"], *row["aliases"].split("|")):
                found.setdefault(_key(spelling), network)
    found.pop("", None)
    return found


def vision_network(name: str) -> VisionNetwork:
    """The network of that name, in any spelling. Raises CumuloError (invalid_request) with what may be meant."""
    import difflib  # costs 2 ms that only a misspelt name should pay

    networks = vision_networks()
    if network := networks.get(_key(name)):
        return network
    near = [networks[key].name for key in difflib.get_close_matches(_key(name), networks, n=3)]
    hint = f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
    known = ", ".join(dict.fromkeys(network.name for network in networks.values()))
    raise CumuloError(
        "invalid_request", f"no vision network {printable(repr(name), 80)} is known", hint=hint or f"known: {known}"
    )


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
