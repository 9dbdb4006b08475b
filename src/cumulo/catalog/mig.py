"""How a GPU may be cut into MIG instances: profiles, and where on the GPU each may lie.

On a real node the driver is the authority (names, memory and placements differ by board and driver); this table is
for emulated devices, for prices and for plans made without a node.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from cumulo.catalog.kinds import DATA, all_kinds
from cumulo.domain.quantities import GIB


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an instance lies: memory slices `start` to `start + size - 1` of the GPU's grid."""

    start: int
    size: int

    def overlaps(self, other: "Placement") -> bool:
        return self.start < other.start + other.size and other.start < self.start + self.size


class Engines(NamedTuple):
    """Media engines: what an instance takes of them, or how many a GPU has. A budget like the compute slices."""

    decoders: int
    encoders: int
    jpeg: int
    ofa: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One size of instance. `memory_bytes` and `sms` are None where no source was seen."""

    name: str
    nvml_id: int | None
    compute_slices: int
    memory_slices: int
    max_instances: int
    memory_bytes: int | None
    sms: int | None
    placements: tuple[Placement, ...]
    engines: Engines
    media_extensions: bool
    graphics: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MigLayout:
    """What one kind of GPU allows. Instances may not overlap on a grid of `grid_size` memory slices.

    `inferred` means that the placements were taken over from the A100's and not seen on this GPU.
    """

    kind: str
    grid_size: int
    compute_slices: int
    engines: Engines
    profiles: tuple[MigProfile, ...]
    inferred: bool
    note: str | None

    def profile(self, name: str) -> MigProfile | None:
        """The profile of that name (`1g.10gb`), or None."""
        return next((profile for profile in self.profiles if profile.name == name.lower()), None)


def mig_layout(kind: str) -> MigLayout | None:
    """The layout of a kind (its exact name); None if it has no MIG."""
    return _layouts().get(kind)


def mig_profiles(kind: str) -> tuple[MigProfile, ...]:
    """The profiles of a kind (its exact name), smallest first; none if it has no MIG."""
    layout = mig_layout(kind)
    return layout.profiles if layout else ()


@cache
def _layouts() -> dict[str, MigLayout]:
    gpus = json.loads((DATA / "mig_profiles.json").read_text(encoding="utf-8"))["gpus"]
    by_model = {gpu["model"]: gpu for gpu in gpus}
    return {kind.name: _layout(kind.name, by_model[kind.mig_layout]) for kind in all_kinds() if kind.mig_layout}


def _layout(kind: str, gpu: dict[str, Any]) -> MigLayout:
    return MigLayout(
        kind=kind,
        grid_size=gpu["grid_size"],
        compute_slices=gpu["compute_slices"],
        engines=_engines(gpu["engine_totals"]),
        profiles=tuple(_profile(profile) for profile in gpu["profiles"]),
        inferred=gpu.get("placements_source") == "inf",
        note=gpu.get("note"),
    )


def _profile(profile: dict[str, Any]) -> MigProfile:
    memory = profile["memory_gib"]
    return MigProfile(
        name=profile["name"],
        nvml_id=profile["nvidia_smi_id"],
        compute_slices=profile["compute_slices"],
        memory_slices=profile["memory_slices"],
        max_instances=profile["max_instances"],
        memory_bytes=None if memory is None else round(memory * GIB),
        sms=profile["sm"],
        placements=tuple(Placement(each["start"], each["size"]) for each in profile["placements"]),
        engines=_engines(profile),
        media_extensions=profile["media_extensions"],
        graphics=profile["graphics"],
    )


def _engines(counts: dict[str, Any]) -> Engines:
    return Engines(*(counts[name] for name in Engines._fields))
