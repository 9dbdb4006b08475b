"""Nodes and devices that this machine does not have, so that everything else can be tried without a GPU.

`A100-80GB:8` is one node with eight devices; `2x H100-80GB:8,T4:1` two such nodes and a third;
`A100-80GB:4+T4:2` one node with both; `2x cpu` two nodes with none. Sizes of nodes are declared: accounted
for, not enforced. Devices say that they are emulated wherever they are shown, and know no temperature and no
power. Their uuids are no real ones, so that CUDA finds nothing under them on a machine that does have GPUs.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cumulo.catalog.kinds import GpuKind, find, suggest
from cumulo.domain.ask import AskError
from cumulo.domain.node import Device, DeviceReading, Node
from cumulo.domain.quantities import GIB
from cumulo.domain.sharing import SharingMode
from cumulo.node.devices.protocol import DeviceInfo, DeviceProcess, DeviceTelemetry, DriverInfo

CPUS_PER_GPU: Final = 16
MEMORY_PER_GPU: Final = 128 * GIB
MAX_NODES: Final = 1000
MAX_DEVICES: Final = 64

_TIMES = re.compile(r"\s*([0-9]{1,9})\s*[xX*]\s*")
_NUMBER = re.compile(r"[0-9]{1,9}")
_NO_GPU: Final = frozenset({"cpu", "none"})


class EmulationError(AskError):
    """An emulation that can't be read; like every AskError it knows which part is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What the processes that hold an emulated device really use of this machine.

    `cpu_fraction` is of the CPUs they were given, 0 to 1; it stands for the device's utilisation.
    """

    memory_bytes: int
    cpu_fraction: float
    processes: tuple[DeviceProcess, ...] = ()


def parse_emulation(spec: str, *, called: str = "emulated", most: int = MAX_NODES) -> tuple[Node, ...]:
    """The nodes that `spec` describes, at most `most`, `called` emulated-0 and so on. Raises EmulationError."""
    shapes: list[list[GpuKind]] = []
    for start, end in _parts(spec, 0, len(spec), ","):
        times, shape_start = 1, start
        if match := _TIMES.match(spec, start, end):
            times, shape_start = int(match[1]), match.end()
            _check(spec, match.span(1), times, most=most, what="nodes")
        shapes += [_shape(spec, shape_start, end)] * times
        if len(shapes) > most:
            raise EmulationError(spec, start, end, f"more than {most} {called} nodes in all")
    return tuple(_node(f"{called}-{number}", kinds) for number, kinds in enumerate(shapes))


def _parts(spec: str, start: int, end: int, separator: str) -> list[tuple[int, int]]:
    """Where the separated parts begin and end, spaces around them left out."""
    spans = []
    for raw in spec[start:end].split(separator):
        left = start + len(raw) - len(raw.lstrip())
        spans.append((left, max(left, start + len(raw.rstrip()))))
        start += len(raw) + 1
    return spans


def _shape(spec: str, start: int, end: int) -> list[GpuKind]:
    """The kinds of one node's devices, in order of index."""
    if spec[start:end].lower() in _NO_GPU:
        return []
    kinds: list[GpuKind] = []
    for item_start, item_end in _parts(spec, start, end, "+"):
        spans = _parts(spec, item_start, item_end, ":")
        if len(spans) > 2:
            raise EmulationError(spec, spans[2][0], item_end, "write GPU:COUNT, for example A100-80GB:8")
        kinds += [_kind(spec, *spans[0])] * (_count(spec, *spans[1]) if len(spans) == 2 else 1)
        if len(kinds) > MAX_DEVICES:
            raise EmulationError(spec, item_start, item_end, f"more than {MAX_DEVICES} GPUs in one node")
    return kinds


def _kind(spec: str, start: int, end: int) -> GpuKind:
    name = spec[start:end]
    if not name:
        raise EmulationError(spec, start, end, "a GPU is missing here; write for example A100-80GB:8, or cpu")
    if name.lower() in _NO_GPU:
        raise EmulationError(spec, start, end, f"{name!r} is a node without GPUs: it stands alone and takes no count")
    kinds = find(name)
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        which = " or ".join(kind.name for kind in kinds)
        raise EmulationError(spec, start, end, f"{name} comes in several sizes; write {which}")
    if name.isdigit():
        raise EmulationError(spec, start, end, "a count needs a GPU before it; write for example A100-80GB:8")
    close = suggest(name)
    hint = f"; did you mean {' or '.join(close)}?" if close else "; `cumulo gpus` lists what is known"
    raise EmulationError(spec, start, end, f"no GPU {name!r} is known{hint}")


def _count(spec: str, start: int, end: int) -> int:
    text = spec[start:end]
    if not _NUMBER.fullmatch(text):
        raise EmulationError(spec, start, end, "the count must be a whole number, as in A100-80GB:8")
    count = int(text)
    _check(spec, (start, end), count, most=MAX_DEVICES, what="GPUs in one node")
    return count


def _check(spec: str, span: tuple[int, int], number: int, *, most: int, what: str) -> None:
    if not 1 <= number <= most:
        raise EmulationError(spec, *span, f"{number} {what}: must be 1 to {most}")


def _node(name: str, kinds: list[GpuKind]) -> Node:
    size = max(1, len(kinds))
    return Node(
        name=name,
        cpus_milli=1000 * CPUS_PER_GPU * size,
        memory_bytes=MEMORY_PER_GPU * size,
        devices=tuple(_device(name, index, kind) for index, kind in enumerate(kinds)),
        emulated=True,
    )


def _device(node: str, index: int, kind: GpuKind) -> Device:
    # The kind is part of the identity: another GPU in the same place is another device.
    digest = hashlib.sha256(f"{node}/{index}/{kind.name}".encode()).hexdigest()
    return Device(
        uuid=f"GPU-EMULATED-{digest[:12]}",
        index=index,
        model=kind.name,
        memory_bytes=kind.memory_bytes,
        emulated=True,
        modes=_modes(kind),
    )


def _modes(kind: GpuKind) -> tuple[SharingMode, ...]:
    """All that a GPU of that kind can do: MIG where it has a layout, MPS where it is NVIDIA's."""
    possible = {
        SharingMode.MIG: kind.mig_layout is not None,
        SharingMode.MPS: kind.vendor == "NVIDIA",
    }
    return tuple(mode for mode in SharingMode if possible.get(mode, True))


class EmulatedBackend:
    """The devices of one emulated node, whose telemetry follows what their holders really use.

    `usage` is asked at each reading and answers by uuid; a device it leaves out is idle.
    """

    def __init__(self, node: Node, usage: Callable[[], Mapping[str, DeviceUse]] = dict) -> None:
        self._node = node
        self._usage = usage

    @property
    def name(self) -> str:
        return "emulated"

    def unavailable(self) -> str | None:
        return None

    def warnings(self) -> tuple[str, ...]:
        return ()

    def devices(self) -> tuple[DeviceInfo, ...]:
        return tuple(_info(device) for device in self._node.devices)

    def telemetry(self) -> dict[str, DeviceTelemetry]:
        usage = self._usage()
        return {device.uuid: _telemetry(device.uuid, usage.get(device.uuid)) for device in self._node.devices}

    def driver(self) -> DriverInfo | None:
        return None

    def shared_files(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        """Holds nothing that could be let go."""


def _info(device: Device) -> DeviceInfo:
    has_mig = any(kind.mig_layout for kind in find(device.model))
    return DeviceInfo(device=device, raw_name=f"emulated {device.model}", mig_enabled=False if has_mig else None)


def _telemetry(uuid: str, use: DeviceUse | None) -> DeviceTelemetry:
    """Memory is shown as it is even past the size of the device: nothing but the holder limits it."""
    use = use or DeviceUse(memory_bytes=0, cpu_fraction=0.0)
    reading = DeviceReading(
        uuid=uuid,
        memory_used_bytes=use.memory_bytes,
        utilisation=min(1.0, max(0.0, use.cpu_fraction)),
    )
    return DeviceTelemetry(reading=reading, processes=use.processes, emulated=True)
