"""Reading one device through NVML, field by field, so that one refused field costs that field alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from cumulo.catalog.kinds import from_nvml_name
from cumulo.domain.node import Device, DeviceReading
from cumulo.domain.sharing import SharingMode
from cumulo.node.devices import pci
from cumulo.node.devices.nvml_errors import HARMLESS, recovery_sentence, sentence
from cumulo.node.devices.protocol import DeviceInfo, DeviceProcess, DeviceTelemetry, health_of

T = TypeVar("T")
_NUMA_WORDS = 4  # of 64 nodes each


@dataclass(slots=True)
class Reading:
    """Reads of one device. The first failure that is more than a missing feature is kept as its trouble."""

    nvml: Any
    trouble: str = ""
    code: int = 0

    def read(self, question: Callable[[], T]) -> T | None:
        """The answer, or None if there is none."""
        try:
            return question()
        except self.nvml.NVMLError as error:
            if error.value not in HARMLESS:
                self._note(error.value, sentence(error.value))
        except (self.nvml.NVMLLibraryMismatchError, UnicodeDecodeError):
            pass  # a function of another version, or a name in no known encoding: unknown, not broken
        return None

    def identify(self, index: int) -> tuple[Any, str]:
        """The device's handle and uuid; no uuid is "". Whatever keeps them from us is trouble, permission included."""
        try:
            handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
            return handle, self.nvml.nvmlDeviceGetUUID(handle)
        except self.nvml.NVMLError as error:
            self._note(error.value, sentence(error.value))
            return None, ""

    def _note(self, code: int, trouble: str) -> None:
        if not self.trouble:
            self.trouble, self.code = trouble, code


def read_device(reading: Reading, index: int, *, sysfs: Path, dev: Path) -> DeviceInfo | None:
    """Who the device at `index` is; None if it won't even tell its uuid."""
    nvml, read = reading.nvml, reading.read
    handle, uuid = reading.identify(index)
    if not uuid:
        return None
    raw_name = read(lambda: nvml.nvmlDeviceGetName(handle)) or ""
    memory = read(lambda: _memory(nvml, handle))
    mig = read(lambda: nvml.nvmlDeviceGetMigMode(handle))
    minor = read(lambda: nvml.nvmlDeviceGetMinorNumber(handle))
    bus_id = read(lambda: pci.sysfs_bus_id(nvml.nvmlDeviceGetPciInfo(handle).busId))
    kind = from_nvml_name(raw_name, memory.total if memory else 0)
    near = pci.numa_node(sysfs, bus_id) if bus_id else None
    near = near if near is not None else read(lambda: _affine_node(nvml, handle))
    asked_for = _recovery(reading, handle)
    trouble = reading.trouble or asked_for
    device = Device(
        uuid=uuid,
        index=index,
        model=kind.name,
        memory_bytes=memory.total if memory else kind.memory_bytes,
        numa_node=near,
        health=health_of(trouble),
        health_reason=trouble,
        modes=_modes(mig_on=mig is not None and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE),
    )
    return DeviceInfo(
        device=device,
        raw_name=raw_name or "unknown GPU",
        pci_bus_id=bus_id,
        device_files=(str(dev / f"nvidia{minor}"),) if minor is not None else (),
        mig_enabled=None if mig is None else mig[0] == nvml.NVML_DEVICE_MIG_ENABLE,
    )


def _modes(*, mig_on: bool) -> tuple[SharingMode, ...]:
    """What can be had on a real device so far: all of it, or turns, which is what a driver does by itself.

    One that is in MIG mode has no turns to give: what computes there must name a MIG instance.
    """
    return (SharingMode.EXCLUSIVE,) if mig_on else (SharingMode.EXCLUSIVE, SharingMode.TIMESLICE)


def read_telemetry(reading: Reading, index: int) -> DeviceTelemetry | None:
    """How the device at `index` is doing; None if it won't even tell its uuid."""
    nvml, read = reading.nvml, reading.read
    handle, uuid = reading.identify(index)
    if not uuid:
        return None
    memory = read(lambda: _memory(nvml, handle))
    rates = read(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    celsius = read(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    milliwatts = read(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    processes = _processes(reading, handle)
    asked_for = _recovery(reading, handle)
    figures = DeviceReading(
        uuid=uuid,
        memory_used_bytes=memory.used if memory else None,
        utilisation=rates.gpu / 100 if rates else None,
        temperature_c=None if celsius is None else float(celsius),
        power_w=None if milliwatts is None else milliwatts / 1000,
    )
    return DeviceTelemetry(reading=figures, processes=processes, trouble=reading.trouble or asked_for)


def _memory(nvml: Any, handle: Any) -> Any:
    """Version 2 counts what the driver keeps for itself apart, so that an idle device shows about 0 used."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    except nvml.NVMLError_FunctionNotFound:
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _affine_node(nvml: Any, handle: Any) -> int | None:
    """The one NUMA node near the device. (nvmlDeviceGetNumaNodeId is another thing: the device as a node.)"""
    words = nvml.nvmlDeviceGetMemoryAffinity(handle, _NUMA_WORDS, nvml.NVML_AFFINITY_SCOPE_NODE)
    mask = sum(word << (64 * position) for position, word in enumerate(words))
    return mask.bit_length() - 1 if mask.bit_count() == 1 else None


def _recovery(reading: Reading, handle: Any) -> str:
    nvml = reading.nvml
    field = nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    values = reading.read(lambda: nvml.nvmlDeviceGetFieldValues(handle, [field]))
    if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:
        return ""
    return recovery_sentence(values[0].value.uiVal)


def _processes(reading: Reading, handle: Any) -> tuple[DeviceProcess, ...] | None:
    """Everything that holds the device. Clients of MPS and graphics are listed apart by NVML."""
    nvml, read = reading.nvml, reading.read
    compute = read(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    if compute is None:
        return None
    clients = read(lambda: nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)) or []
    graphics = read(lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)) or []
    found: dict[int, DeviceProcess] = {}
    for process in (*_as_kind(graphics, "graphics"), *_as_kind([*compute, *clients], "compute")):
        earlier = found.get(process.pid)
        if earlier is None or earlier.memory_bytes is None or earlier.kind != process.kind:
            found[process.pid] = process
    return tuple(found[pid] for pid in sorted(found))


def _as_kind(processes: Sequence[Any], kind: Literal["compute", "graphics"]) -> list[DeviceProcess]:
    return [DeviceProcess(pid=each.pid, memory_bytes=each.usedGpuMemory, kind=kind) for each in processes]
