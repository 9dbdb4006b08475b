"""Reading published results: rows of CSVs as plans and clusters that the advisor knows."""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from bench.advisor.fit import BadData
from cumulo.advisor.topology import Cluster, typical_cluster
from cumulo.catalog.kinds import GpuKind, all_kinds, find
from cumulo.catalog.models import ModelShape, find_model
from cumulo.catalog.variants import Variant
from cumulo.domain.quantities import GIB

Cells = Mapping[str, str]
T = TypeVar("T")

_WATTS = re.compile(r"(\d+)W\b")
_MEMORY = re.compile(r"-(HBM\d?e?)\b")
_NODE_NETWORK = re.compile(r"(\d+) Gbps node-node")
_TRUE = {"true", "yes", "1"}
# What was sold where links had to be slower, otherwise the same.
_LIMITED = {"A800": "A100", "H800": "H100"}
_LIMITED_FABRIC = 400 * 10**9
# Hybrids that the table of models leaves out: as transformers of their width whose other layers look back one token.
_HYBRIDS = {
    "nemotron-3-nano": {
        "layers": "52",
        "hidden": "2688",
        "heads": "32",
        "kv_heads": "2",
        "vocab": "131072",
        "moe_active": "3.6e9",
        "attention_layers": "6",
    },
}


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of `name`.csv; none where the folder lacks it."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(row: Cells, name: str, default: float = 0.0) -> float:
    """The number in a cell, or `default` where it is empty or missing. Raises BadData for anything else."""
    text = (row.get(name) or "").strip()
    if not text:
        return default
    try:
        return float(text)
    except ValueError:
        raise BadData(f"{row.get('source', 'a row')}: {name} should be a number, not {text!r}") from None


def whole(row: Cells, name: str, default: int = 0) -> int:
    return round(number(row, name, default))


def true(row: Cells, name: str) -> bool:
    return (row.get(name) or "").strip().lower() in _TRUE


def board(name: str) -> tuple[Variant, GpuKind]:
    """The board of the catalogue that a result names, held to the power that the name tells (`…-500W`).

    Raises BadData where the catalogue lacks it.
    """
    name = re.sub(r"^\d+ ?x ?", "", name.strip())
    for kind in all_kinds():
        for variant in kind.variants:
            if variant.name == name:
                return variant, kind
    if limited := next((each for each in _LIMITED if name.startswith(each)), None):
        variant, kind = board(name.replace(limited, _LIMITED[limited]))
        return replace(variant, fabric_bandwidth=_LIMITED_FABRIC), kind
    kinds = find(name) or find(re.sub(r"[- ]?\d+ ?GB.*", "", name)) or find(name.split("-")[0])
    known = next((kind for kind in kinds if kind.typical), None)
    if known is None or known.typical is None:
        raise BadData(f"the catalogue has no GPU {name!r}")
    form = "PCIe" if "PCIe" in name else "SXM" if "SXM" in name else ""
    fitting = [each for kind in kinds for each in kind.variants if form in (each.form_factor or "")]
    variant = fitting[0] if fitting else known.typical
    if watts := _WATTS.search(name):
        variant = replace(variant, name=name, tdp_watts=float(watts[1]))
    return _with_memory_of(variant, name, kinds), known


def _with_memory_of(variant: Variant, name: str, kinds: Sequence[GpuKind]) -> Variant:
    """A board that a maker sold with older memory has the bandwidth of a sibling with that memory, stack for stack."""
    told = _MEMORY.search(name)
    if told is None or variant.memory_type == told[1]:
        return variant
    siblings = [(each, kind) for kind in kinds for each in kind.variants if each.memory_type == told[1]]
    if not siblings or not siblings[0][0].memory_bandwidth or not (size := re.search(r"(\d+)GB", name)):
        return variant
    sibling, kind = siblings[0]
    stacks = int(size[1]) * GIB / kind.memory_bytes
    return replace(variant, memory_type=told[1], memory_bandwidth=round((sibling.memory_bandwidth or 0) * stacks))


def cluster(name: str, gpus: int, notes: str = "") -> Cluster:
    """The GPUs of a result, wired as such GPUs mostly are, or as its notes say."""
    variant, kind = board(name)
    memory = kind.memory_bytes
    if (told := re.search(r"(\d+) ?GB", name)) and int(told[1]) > 4:
        memory = int(told[1]) * GIB
    found = typical_cluster(variant, kind.architecture, memory_bytes=memory, gpus=gpus)
    if network := _NODE_NETWORK.search(notes):
        return replace(found, nic_bytes_s=float(network[1]) * 1e9 / 8 / found.gpus_per_node)
    return found


def shape(row: Cells) -> ModelShape:
    """The model of a row: its own numbers, completed by the table of models, else by what its parameters leave."""
    known = find_model(row.get("model", ""))
    if not row.get("layers") or not row.get("hidden"):
        hybrid = _HYBRIDS.get(row.get("model", "").lower())
        if known is None and hybrid:
            return _hybrid({**row, **hybrid})
        return known or _by_parameters(row)
    layers, hidden, vocab = whole(row, "layers"), whole(row, "hidden"), whole(row, "vocab", 51200)
    if known and (known.layers, known.hidden) == (layers, hidden):
        return known
    heads = whole(row, "heads", max(hidden // 128, 1))
    kv_heads = whole(row, "kv_heads", heads)
    parameters = number(row, "moe_active") or number(row, "params")
    head_dim = max(hidden // heads, 1)
    attention = 2 * hidden * hidden + 2 * hidden * kv_heads * head_dim
    left = (parameters - 2 * vocab * hidden) / layers - attention if parameters else 0.0
    tied = left < 7 * hidden * hidden
    ffn = 4 * hidden if tied else round(left / (3 * hidden))
    return ModelShape(
        name=row.get("model") or f"{layers}x{hidden}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        vocab=vocab,
        gated=not tied,
        tied=tied,
        **_experts(row, ffn, layers, hidden),
    )


def _experts(row: Cells, ffn: int, layers: int, hidden: int) -> dict[str, Any]:
    """A mixture of which only the totals are told: eight active experts that fill what is active."""
    active, parameters = number(row, "moe_active"), number(row, "params")
    if not active or active >= parameters:
        return {}
    expert = max(ffn // 8, 1)
    others = round((parameters - active) / (layers * 3 * hidden * expert))
    return {"experts": 8 + others, "active_experts": 8, "expert_ffn": expert}


def _hybrid(row: Cells) -> ModelShape:
    whole_model = shape(row)
    looking_back = whole(row, "attention_layers")
    return replace(whole_model, window=1, window_layers=whole_model.layers - looking_back)


def _by_parameters(row: Cells) -> ModelShape:
    """Of a model of which only sizes are told: as wide and deep as others of what a token passes."""
    total = number(row, "params")
    active = number(row, "moe_active") or _active_of_name(row.get("model", "")) or total
    if not total:
        raise BadData(f"{row.get('source', 'a row')}: neither layers nor params of {row.get('model')!r}")
    hidden = max(round((active * 128 / 12) ** (1 / 3) / 128) * 128, 512)  # 128 times as wide as deep
    layers = max(round(active / (12 * hidden * hidden)), 1)
    told = {**row, "layers": str(layers), "hidden": str(hidden), "moe_active": str(active if active < total else "")}
    return shape({**told, "vocab": row.get("vocab") or "128000", "model": f"{row.get('model')} by size"})


def _active_of_name(name: str) -> float:
    found = re.search(r"-A(\d+(?:\.\d+)?)B", name, re.IGNORECASE)
    return float(found[1]) * 1e9 if found else 0.0


def built(rows_of_file: Iterable[dict[str, str]], build: Callable[[dict[str, str]], T | None]) -> list[T]:
    """What `build` makes of each row. A row that can't be read is told of and left out, so that others still count."""
    found = []
    for row in rows_of_file:
        try:
            made = build(row)
        except (BadData, KeyError) as error:
            told = error if isinstance(error, BadData) else f"a row lacks the column {error}"
            print(f"left out: {told}", file=sys.stderr)
            continue
        if made is not None:
            found.append(made)
    return found


def readable(folder: Path, name: str) -> Iterator[dict[str, str]]:
    """The rows of a file that it does not call bad itself."""
    return (row for row in rows(folder, name) if not (row.get("suspect") or "").strip())


def suspects(folder: Path, name: str) -> int:
    return sum(bool((row.get("suspect") or "").strip()) for row in rows(folder, name))
