"""Which GPUs exist, what each is, and which of them a name means.

A **kind** is what people ask for and price lists tell apart: model and memory (`A100-80GB`). Boards of one
kind that differ in form, clock or bandwidth (SXM and PCIe) are its **variants**. A family (`A100`) is every
kind of that model. Unknown facts are None. Sources and licences: data/SOURCES.md.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from cumulo.catalog.naming import informative_words, reduce_name
from cumulo.catalog.variants import Variant, load_variants
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable
from cumulo.domain.quantities import GIB

DATA: Final = Path(__file__).with_name("data")

# A driver reports less than the nominal memory (a T4 with ECC: 15.0 of 16 GiB), or a little more.
_MEMORY_TOLERANCE: Final = 0.12


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """One kind of GPU. `memory_bytes` is nominal; what a device really has, its backend tells."""

    name: str
    family: str
    vendor: str
    architecture: str | None
    memory_bytes: int
    compute_target: str | None = None
    variants: tuple[Variant, ...] = ()
    mig_layout: str | None = None
    aliases: tuple[str, ...] = ()
    listed: bool = True

    @property
    def typical(self) -> Variant | None:
        """The variant that clouds mostly rent (SXM where there is one); None if no specification is known."""
        return self.variants[0] if self.variants else None


@cache
def all_kinds() -> tuple[GpuKind, ...]:
    """Every kind of the catalogue, oldest architecture first within a vendor."""
    variants = load_variants(DATA / "gpu_specs.csv")
    with (DATA / "kinds.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            GpuKind(
                name=row["kind"],
                family=row["family"],
                vendor=row["vendor"],
                architecture=row["architecture"],
                memory_bytes=int(row["memory_gb"]) * GIB,
                compute_target=row["compute_target"] or None,
                variants=tuple(variants[name] for name in row["boards"].split("|") if name),
                mig_layout=row["mig"] or None,
                aliases=tuple(alias for alias in row["aliases"].split("|") if alias),
            )
            for row in csv.DictReader(file)
        )


@lru_cache(maxsize=4096)
def find(name: str) -> tuple[GpuKind, ...]:
    """The kinds that a name means, in any spelling: one if exact, all of a family if not, none if unknown."""
    reduced = reduce_name(name)
    index = _index()
    if exact := index.get(reduced.key):
        return exact
    family = index.get(reduced.stem, ())
    if reduced.memory_gib is None:
        return family
    return tuple(kind for kind in family if kind.memory_bytes == reduced.memory_gib * GIB)


def known(name: str) -> bool:
    """Whether the catalogue has a kind or family of that name."""
    return bool(find(name))


def resolve(name: str, *, present: Iterable[str] = ()) -> frozenset[str]:
    """Names of the kinds that will do for a name in an ask; empty if unknown.

    `present` are kinds of devices that are there: one that the catalogue lacks can thus be asked for.
    """
    reduced = reduce_name(name)
    unlisted = (kind for kind in present if not find(kind))
    here = {kind for kind in unlisted if reduced.key in (reduce_name(kind).key, reduce_name(kind).stem)}
    return frozenset(here.union(kind.name for kind in find(name)))


def suggest(name: str, *, limit: int = 3) -> list[str]:
    """Names of kinds or families that look like `name`, best first, for "did you mean"."""
    import difflib  # costs 2 ms that only a misspelt name should pay

    if family := _index().get(reduce_name(name).stem):
        return [kind.name for kind in family[:limit]]
    spelled = _spellings()
    close = difflib.get_close_matches(reduce_name(name).key, spelled, n=2 * limit, cutoff=0.6)
    return list(dict.fromkeys(spelled[key] for key in close))[:limit]


def unknown_gpu(name: str) -> CumuloError:
    """What to tell somebody who named a GPU that nobody knows."""
    near = suggest(name)
    hint = f"did you mean {' or '.join(near)}?" if near else "`cumulo gpus` lists what is known"
    return CumuloError("unknown_gpu", f"no GPU {printable(name, 60)!r} is known", hint=hint)


def from_nvml_name(name: str, memory_bytes: int) -> GpuKind:
    """The kind of a device by the name and memory its driver reports. An unknown GPU gets its own kind."""
    candidates = find(name)
    if memory_bytes <= 0:
        return candidates[0] if len(candidates) == 1 else _unlisted(name, 0)
    # The memory that a name tells (GH200 480GB: the CPU's) is less certain than the one measured.
    family = _index().get(reduce_name(name).stem, ())
    for kinds in (candidates, family):
        near = [kind for kind in kinds if _memory_distance(kind, memory_bytes) <= _MEMORY_TOLERANCE]
        if near:
            return min(near, key=lambda kind: _memory_distance(kind, memory_bytes))
    return _unlisted(name, memory_bytes)


def _memory_distance(kind: GpuKind, memory_bytes: int) -> float:
    return abs(kind.memory_bytes - memory_bytes) / kind.memory_bytes


def _unlisted(name: str, memory_bytes: int) -> GpuKind:
    words = informative_words(name) or ["GPU"]
    # A name that began with a digit would read as a count in an ask.
    family = "-".join(words if words[0][0].isalpha() else ["GPU", *words])
    gib = round(memory_bytes / GIB)
    suffix = "" if reduce_name(name).memory_gib is not None or not gib else f"-{gib}GB"
    vendor = next((maker for maker in ("AMD", "Intel") if maker.lower() in name.lower()), "NVIDIA")
    return GpuKind(
        name=family + suffix,
        family=family,
        vendor=vendor,
        architecture=None,
        memory_bytes=memory_bytes,
        listed=False,
    )


@cache
def _index() -> dict[str, tuple[GpuKind, ...]]:
    """From every key a name may reduce to, to the kinds it means. Exact names win over families."""
    exact: dict[str, tuple[GpuKind, ...]] = {}
    families: dict[str, tuple[GpuKind, ...]] = {}
    for kind in all_kinds():
        key = reduce_name(kind.family).key
        families[key] = (*families.get(key, ()), kind)
        for spelling in (kind.name, *kind.aliases, *(variant.name for variant in kind.variants)):
            exact.setdefault(reduce_name(spelling).key, (kind,))
    return exact | families


@cache
def _spellings() -> dict[str, str]:
    """From a key to the name it is shown as: a family's if it has several kinds, else the kind's."""
    return {key: kinds[0].name if len(kinds) == 1 else kinds[0].family for key, kinds in _index().items()}
