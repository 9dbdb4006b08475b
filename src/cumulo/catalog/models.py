"""Which models people name, and the shape of each: from their public configurations, under any spelling.

The table keeps each model's published number of parameters beside its shape; a test holds the two together, so that a
mistyped width can't stay. Models whose layers differ among themselves (hybrids, pruned searches) are left out.
"""

import csv
import re
from functools import cache
from typing import Final

from cumulo.catalog.kinds import DATA
from cumulo.catalog.shapes import ModelShape, check_shape, shape_from_config
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable

__all__ = [
    "ModelShape",
    "all_models",
    "check_shape",
    "find_model",
    "named_model",
    "published_parameters",
    "shape_from_config",
    "suggest_models",
]

# What people append to a model's name that changes nothing of its shape. `base` does in BERT's: exact names come first.
_FILLER: Final = frozenset(
    {"instruct", "chat", "it", "hf", "base", "preview", "thinking", "bf16", "fp8", "awq", "gptq"}
)
_WORD = re.compile(r"[a-z]+|\d+|\+")
_FLAGS: Final = ("gated", "tied")
_OPTIONAL: Final = ("max_context", "window")


@cache
def all_models() -> tuple[ModelShape, ...]:
    """Every model of the table, families together."""
    return tuple(shape for shape, _ in _table().values())


def find_model(name: str) -> ModelShape | None:
    """The model that a name means, in any case and punctuation, with an owner (`meta-llama/…`) or without."""
    names = _index()
    for key in (_key(name), _bare(name)):
        if key in names:
            return names[key]
    return None


def named_model(name: str) -> ModelShape:
    """The model of that name. Raises CumuloError (invalid_request) that tells which may have been meant."""
    if shape := find_model(name):
        return shape
    near = suggest_models(name)
    hint = f"did you mean {' or '.join(near)}? Else give" if near else "give"
    raise CumuloError(
        "invalid_request",
        f"no model {printable(repr(name), 80)} is known",
        hint=f"{hint} its config.json, or its layers, hidden, heads, kv heads, ffn and vocab",
        details={"suggestions": near},
    )


def suggest_models(name: str, *, limit: int = 3) -> list[str]:
    """Names that look like `name`, best first, for "did you mean"."""
    import difflib  # costs 2 ms that only a misspelt name should pay

    key = _bare(name)
    if not key:
        return []
    spelled = {known: shape.name for known, shape in _index().items()}
    begin = [shown for known, shown in spelled.items() if known.startswith(key)]
    close = difflib.get_close_matches(key, spelled, n=2 * limit, cutoff=0.6)
    return list(dict.fromkeys([*begin, *(spelled[one] for one in close)]))[:limit]


def published_parameters() -> dict[str, int]:
    """What the makers say each model of the table has, by name."""
    return {name: published for name, (_, published) in _table().items()}


@cache
def _table() -> dict[str, tuple[ModelShape, int]]:
    with (DATA / "models.csv").open(encoding="utf-8", newline="") as file:
        return {row["name"]: (_shape(row), int(row["published"])) for row in csv.DictReader(file)}


def _shape(row: dict[str, str]) -> ModelShape:
    numbers = {
        name: int(text)
        for name, text in row.items()
        if text and name not in ("name", "aliases", "published", *_FLAGS, *_OPTIONAL)
    }
    optional = {name: int(row[name]) if row[name] else None for name in _OPTIONAL}
    flags = {name: row[name] == "1" for name in _FLAGS}
    return ModelShape(name=row["name"], **flags, **optional, **numbers)  # type: ignore[arg-type]


@cache
def _index() -> dict[str, ModelShape]:
    """From every key a name may reduce to, to its model. Names win over aliases, and both over names without filler."""
    with (DATA / "models.csv").open(encoding="utf-8", newline="") as file:
        aliases = {row["name"]: row["aliases"].split("|") if row["aliases"] else [] for row in csv.DictReader(file)}
    index: dict[str, ModelShape] = {}
    for shape in all_models():
        index.setdefault(_key(shape.name), shape)
    for shape in all_models():
        for alias in aliases[shape.name]:
            index.setdefault(_key(alias), shape)
    return index


def _key(name: str) -> str:
    return "-".join(_words(name))


def _bare(name: str) -> str:
    return "-".join(word for word in _words(name) if word not in _FILLER)


def _words(name: str) -> list[str]:
    """`meta-llama/Llama-2-7b-hf`, `Llama 2 7 B` and `llama2-7b` begin alike: llama, 2, 7, b."""
    return _WORD.findall(name.rpartition("/")[2].lower().replace("_", "-"))
