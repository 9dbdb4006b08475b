"""The nodes this engine serves: this machine with its GPUs, or the emulated ones that stand in for them.

All of them are this machine, so their addresses are one.
"""

import os
import pwd
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from cumulo.domain.instance import InstanceSpec
from cumulo.domain.node import DeviceReading, InstanceReading, Node
from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.node.devices.emulated import DeviceUse, EmulatedBackend, parse_emulation
from cumulo.node.devices.nvml import NvmlBackend
from cumulo.node.devices.protocol import DeviceBackend, DeviceProcess, DeviceTelemetry
from cumulo.node.host import read_host

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a living instance holds and uses now. `pids` are all its processes on this machine."""

    spec: InstanceSpec
    memory_bytes: int
    cpu_seconds: float
    pids: tuple[int, ...]
    started_at: float | None

    def reading(self, busy: float) -> InstanceReading:
        return InstanceReading(
            instance_id=self.spec.instance_id,
            memory_bytes=self.memory_bytes,
            cpu_seconds=self.cpu_seconds,
            cpus_busy=busy,
            processes=len(self.pids),
        )


class Hardware(Protocol):
    """Devices and nodes, real or not."""

    def nodes(self, ours: Callable[[], set[int]]) -> tuple[Node, ...]:
        """`ours` gives the pids of all instances: what else computes on a device is foreign."""
        ...

    def readings(self, held: Iterable[Held], busy: Mapping[str, float]) -> tuple[DeviceReading, ...]:
        """`busy` is how many CPUs each of `held` keeps busy, by instance id."""
        ...

    def device_files(self, uuids: tuple[str, ...]) -> tuple[str, ...]:
        """What must be opened to use these devices; nothing where none is held."""
        ...

    @property
    def backend(self) -> DeviceBackend:
        """For what is to be said about drivers."""
        ...

    def close(self) -> None: ...


class RealHardware:
    """This machine, and what NVML shows of it."""

    def __init__(self, backend: DeviceBackend | None = None) -> None:
        self.backend = backend or NvmlBackend()
        self._host = read_host()

    def nodes(self, ours: Callable[[], set[int]]) -> tuple[Node, ...]:
        telemetry = self.backend.telemetry()
        known = ours() if any(found.processes for found in telemetry.values()) else set()
        devices = tuple(
            replace(info.device, foreign=_foreign(telemetry.get(info.uuid), known)) for info in self.backend.devices()
        )
        return (
            Node(
                name=self._host.hostname,
                cpus_milli=self._host.cpus_milli,
                memory_bytes=_to_give(self._host.memory_bytes),
                devices=devices,
            ),
        )

    def readings(self, held: Iterable[Held], busy: Mapping[str, float]) -> tuple[DeviceReading, ...]:
        return tuple(found.reading for found in self.backend.telemetry().values())

    def device_files(self, uuids: tuple[str, ...]) -> tuple[str, ...]:
        if not uuids:
            return ()
        own = [file for info in self.backend.devices() if info.uuid in uuids for file in info.device_files]
        return (*own, *self.backend.shared_files())

    def close(self) -> None:
        self.backend.close()


def _to_give(memory_bytes: int) -> int:
    """Memory for instances: all but a twentieth (at least half a GiB, at most 4), which the machine itself needs."""
    return memory_bytes - min(4 * GIB, max(GIB // 2, memory_bytes // 20))


def _foreign(telemetry: DeviceTelemetry | None, ours: set[int]) -> str:
    """Who else computes on a device, in words. A display server is no work: it holds a little memory for good."""
    processes = telemetry.processes if telemetry else None
    others = [process for process in processes or () if process.kind == "compute" and process.pid not in ours]
    return ", ".join(_describe(process.pid) for process in others[:3]) + (" and others" if len(others) > 3 else "")


def _describe(pid: int) -> str:
    folder = Path("/proc") / str(pid)
    try:
        uid, name = folder.stat().st_uid, (folder / "comm").read_text().strip()
    except OSError:
        return f"pid {pid}"
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"uid {uid}"
    return f"pid {pid} ({user}): {name}"


class EmulatedHardware:
    """Nodes that are declared. Their devices do what the processes that hold them do on this machine.

    A device's memory is that of the instances that hold slices of it, each divided among its slices; its utilisation is
    the part of the CPUs that an instance asked for (at most those of this machine) that it keeps busy, times its share.
    """

    def __init__(self, emulation: str) -> None:
        """Raises EmulationError, which points at the wrong part."""
        self._nodes = parse_emulation(emulation)
        self._use: dict[str, DeviceUse] = {}
        self._backends = [EmulatedBackend(node, lambda: self._use) for node in self._nodes]
        self._cpus = len(os.sched_getaffinity(0))

    @property
    def backend(self) -> DeviceBackend:
        return self._backends[0]

    def nodes(self, ours: Callable[[], set[int]]) -> tuple[Node, ...]:
        return self._nodes

    def readings(self, held: Iterable[Held], busy: Mapping[str, float]) -> tuple[DeviceReading, ...]:
        self._use = self._uses(held, busy)
        return tuple(found.reading for backend in self._backends for found in backend.telemetry().values())

    def _uses(self, held: Iterable[Held], busy: Mapping[str, float]) -> dict[str, DeviceUse]:
        uses: dict[str, DeviceUse] = {}
        for each in held:
            cpus = min(self._cpus, max(0.001, each.spec.cpus_milli / 1000))
            fraction = min(1.0, busy.get(each.spec.instance_id, 0.0) / cpus)
            share = each.memory_bytes // max(1, len(each.spec.slices))
            processes = tuple(DeviceProcess(pid=pid, memory_bytes=None) for pid in each.pids)
            for part in each.spec.slices:
                other = uses.get(part.device_uuid, DeviceUse(memory_bytes=0, cpu_fraction=0.0))
                uses[part.device_uuid] = DeviceUse(
                    memory_bytes=other.memory_bytes + share,
                    cpu_fraction=other.cpu_fraction + fraction * part.milli / WHOLE_MILLI,
                    processes=tuple(dict.fromkeys((*other.processes, *processes))),
                )
        return uses

    def device_files(self, uuids: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        for backend in self._backends:
            backend.close()
