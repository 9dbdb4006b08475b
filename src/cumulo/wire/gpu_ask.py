"""GPUs as a run file asks for them: the ask itself, and what its other keys say of a part of a GPU.

Each key is fine by itself; what is checked here is whether together they mean something.
"""

from dataclasses import replace
from typing import Final

from cumulo.catalog.kinds import find
from cumulo.catalog.mig import MigLayout, MigProfile, mig_layout
from cumulo.domain.ask import GpuAsk
from cumulo.domain.sharing import WHOLE_MILLI, Isolation, SharingMode

Keys = tuple[str, ...]
GPU_MEMORY: Final = ("resources", "gpu_memory")
SHARING: Final = ("resources", "sharing")
ISOLATION: Final = ("resources", "isolation")


class Contradiction(ValueError):
    """What is wrong, and the keys of the run file that it stands under."""

    def __init__(self, path: Keys, message: str) -> None:
        super().__init__(message)
        self.path, self.message = path, message


def complete(
    gpu: GpuAsk | None,
    *,
    path: Keys,
    memory: int | None,
    sharing: SharingMode | None,
    isolation: Isolation,
) -> GpuAsk | None:
    """The ask with all that was said of it; `path` is the key that it stands under. Raises Contradiction."""
    if memory is not None:
        gpu = _by_memory(gpu or GpuAsk(), memory)
    if sharing is not None:
        if gpu is None or not gpu.fraction:
            raise Contradiction(SHARING, "says how a fraction of a GPU is shared; ask for one, such as H100:0.5")
        gpu = replace(gpu, sharing=sharing)
    if gpu is not None and gpu.fraction and isolation is Isolation.HARD:
        raise Contradiction(ISOLATION, f"hard needs a GPU or a MIG slice of one's own: {_instead(gpu)}")
    if gpu is not None and gpu.mig_profile:
        _check_profile(gpu, gpu.mig_profile, path)
    return gpu


def _by_memory(gpu: GpuAsk, memory: int) -> GpuAsk:
    if gpu.milli is not None:
        raise Contradiction(GPU_MEMORY, "says how much of a GPU is asked for, and so does the fraction; give one")
    if gpu.mig_profile:
        raise Contradiction(GPU_MEMORY, f"a MIG slice has the memory of its profile, {gpu.mig_profile}; give one")
    if (gpu.count_min, gpu.count_max) != (1, 1):
        raise Contradiction(GPU_MEMORY, "asks for a part of one GPU: give no count with it")
    return replace(gpu, slice_memory=memory)


def _layouts(gpu: GpuAsk) -> list[MigLayout | None]:
    """Of every kind that an ask names, in the catalogue's order; of what the catalogue lacks nothing is known."""
    return [mig_layout(kind.name) for name in gpu.names for kind in find(name)]


def _instead(gpu: GpuAsk) -> str:
    """The smallest MIG profile that is at least the fraction, where a kind asked for has one."""
    fitting = [
        (profile.memory_slices / layout.grid_size, profile.compute_slices, profile.name)
        for layout in _layouts(gpu)
        for profile in (layout.profiles if layout else ())
        if layout and _enough(layout, profile, gpu)
    ]
    if fitting:
        return f"write {','.join(gpu.names)}:mig-{min(fitting)[2]}, or ask for a whole GPU"
    return "ask for a whole GPU" if gpu.names else "ask for a whole GPU, or for a MIG slice such as H100:mig-1g.20gb"


def _enough(layout: MigLayout, profile: MigProfile, gpu: GpuAsk) -> bool:
    if gpu.slice_memory is not None:
        return (profile.memory_bytes or 0) >= gpu.slice_memory
    return profile.memory_slices * WHOLE_MILLI >= (gpu.milli or 0) * layout.grid_size


def _check_profile(gpu: GpuAsk, profile: str, path: Keys) -> None:
    """Refuses a profile that no kind asked for has, as far as the catalogue can tell for sure."""
    layouts = _layouts(gpu)
    if not layouts:
        return
    with_mig = [layout for layout in layouts if layout is not None]
    if not with_mig:
        raise Contradiction(
            path, f"{' or '.join(gpu.names)} has no MIG; ask for a fraction, such as {gpu.names[0]}:0.25"
        )
    if not any(layout.inferred or layout.profile(profile) for layout in with_mig):
        listed = "; ".join(f"{layout.kind}: {', '.join(each.name for each in layout.profiles)}" for layout in with_mig)
        raise Contradiction(path, f"no MIG profile {profile} on {' or '.join(gpu.names)}; there are {listed}")
