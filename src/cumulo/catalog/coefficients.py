"""The constants that the advisor's models were fitted to, in one versioned file.

`python -m bench.advisor fit` writes data/advisor.json, a section for each family of models; nobody edits it. A section
holds numbers, tables of numbers by name (`matmul` by board), and under `spread` factors for each target's 80 % range.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from cumulo.catalog.kinds import DATA

ADVISOR: Final = DATA / "advisor.json"
VERSION: Final = 1
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class Section:
    """The constants of one family of models."""

    values: Mapping[str, Any]

    def number(self, name: str) -> float:
        """Raises KeyError if the section holds no such number: the file and the code are of different versions."""
        return float(self.values[name])

    def table(self, name: str) -> Mapping[str, float]:
        table: Mapping[str, float] = self.values[name]
        return table

    def pick(self, name: str, *keys: str | None) -> float:
        """The number of a table for the first of `keys` that it has, else for `other`."""
        table = self.table(name)
        return float(next((table[key] for key in keys if key is not None and key in table), table.get(OTHER, 0.0)))

    def spread(self, target: str) -> tuple[float, float]:
        """Factors of the lower and upper bound of `target`'s 80 % range around what is expected."""
        low, high = self.values["spread"][target]
        return float(low), float(high)

    def with_values(self, **values: Any) -> "Section":
        return Section({**self.values, **values})


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """All sections. `sources` says of each section what it was fitted on, software generation included."""

    version: int
    sources: Mapping[str, str] = field(default_factory=dict)
    training: Section = Section({})
    memory: Section = Section({})
    serving: Section = Section({})
    laws: Section = Section({})

    def replaced(self, section: str, values: Mapping[str, Any]) -> "Coefficients":
        """With another set of constants in `section`, for fitting."""
        changed: dict[str, Any] = {section: Section(values)}
        return replace(self, **changed)


@cache
def coefficients(path: Path = ADVISOR) -> Coefficients:
    """The constants shipped with this version."""
    held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"version": VERSION}
    sections = {name: Section(held.get(name, {})) for name in ("training", "memory", "serving", "laws")}
    return Coefficients(version=held["version"], sources=held.get("sources", {}), **sections)
