"""Traces of spot availability: gzip or plain JSON, `{"metadata": {"gap_seconds": G}, "data": [n0, n1, ...]}`.

`data[i]` is how many spot instances could be had in tick i. The data is for research and not shipped: the benches read
it from the folder that they are given.
"""

import gzip
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cumulo.market.hazards import Spell, spells

HOUR = 3600.0
DAY = 24 * HOUR


class BadTrace(ValueError):
    """A folder or a file that can't be used, and why."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One pool: how many instances could be had every `gap_s` seconds, and how many make it available."""

    name: str
    folder: str
    gap_s: float
    counts: NDArray[np.int64]
    needs: int

    @property
    def available(self) -> NDArray[np.bool_]:
        there: NDArray[np.bool_] = self.counts >= self.needs
        return there

    @property
    def seconds(self) -> float:
        return len(self.counts) * self.gap_s

    def since(self, day: float) -> "Trace":
        """What was recorded from that day on."""
        return replace(self, counts=self.counts[math.ceil(day * DAY / self.gap_s) :])

    def spells(self, *, until_s: float = math.inf) -> tuple[Spell, ...]:
        """The spells seen in the part of the trace before `until_s`."""
        ticks = min(len(self.counts), int(until_s // self.gap_s) if until_s < math.inf else len(self.counts))
        return spells(self.available[:ticks], self.gap_s)


def load(folder: Path) -> tuple[Trace, ...]:
    """Every trace below `folder`, by path. Raises BadTrace if there is none, or for a file that is no trace."""
    if not folder.is_dir():
        raise BadTrace(f"{folder} is no folder")
    paths = sorted(path for path in folder.rglob("*") if path.name.endswith((".json", ".json.gz")))
    if not paths:
        raise BadTrace(f"{folder} holds no *.json or *.json.gz")
    return tuple(read(path, path.relative_to(folder).parent.as_posix()) for path in paths)


def read(path: Path, folder: str = ".") -> Trace:
    """One file. Raises BadTrace if it is none."""
    try:
        text = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
        held: dict[str, Any] = json.loads(text)
        metadata = held.get("metadata", {})
        counts = np.asarray(held["data"], dtype=np.int64)
        gap = float(metadata["gap_seconds"])
        needs = max(1, int(metadata.get("num_nodes", metadata.get("instances_needed", 0)) or _needs(counts)))
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadTrace(f"{path}: no trace of spot availability ({type(error).__name__}: {error})") from None
    if gap <= 0 or counts.ndim != 1:
        raise BadTrace(f"{path}: gap_seconds must be over 0 and data a list of numbers")
    return Trace(path.name.partition(".json")[0], folder, gap, counts, needs)


def _needs(counts: NDArray[np.int64]) -> int:
    """A job takes all the instances that were probed for: a file of 0..4 is about jobs of 4 nodes."""
    return int(counts.max(initial=1))
