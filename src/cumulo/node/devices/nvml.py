"""The NVIDIA devices of this machine, through the driver's own library.

The binding (nvidia-ml-py) is imported, and the library loaded, only when first asked, and asked again after a
failure: a driver installed or repaired while the server runs is found without a restart. A device that no
longer answers stays listed, with its trouble, as long as the driver counts it.
"""

import ctypes
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cumulo.domain.node import Device, DeviceReading
from cumulo.node.devices import pci
from cumulo.node.devices.nvml_errors import CONTACT_LOST, Code, sentence
from cumulo.node.devices.nvml_reading import Reading, read_device, read_telemetry
from cumulo.node.devices.protocol import DeviceInfo, DeviceTelemetry, DriverInfo, health_of

LIBRARY: Final = "libnvidia-ml.so.1"
_SHARED: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


class NvmlBackend:
    """See DeviceBackend. `library` may be a path; `sysfs` and `dev` are where /sys and /dev are."""

    def __init__(self, *, library: str = LIBRARY, sysfs: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self._library, self._sysfs, self._dev = library, sysfs, dev
        self._lock = threading.RLock()
        self._nvml: Any = None
        self._reason: str | None = None
        self._closed = False
        self._seen: dict[int, DeviceInfo] = {}

    @property
    def name(self) -> str:
        return "nvml"

    def unavailable(self) -> str | None:
        with self._lock:
            self._indices()
            return self._reason

    def warnings(self) -> tuple[str, ...]:
        with self._lock:
            shown = {device.pci_bus_id for device in self.devices()}
            return tuple(
                f"the NVIDIA GPU at PCI {gpu.bus_id} is not shown by the driver: {_why_hidden(gpu)}"
                for gpu in pci.nvidia_gpus(self._sysfs)
                if gpu.bus_id not in shown and self._reason is None
            )

    def devices(self) -> tuple[DeviceInfo, ...]:
        with self._lock:
            return tuple(self._device(index) for index in self._indices())

    def telemetry(self) -> dict[str, DeviceTelemetry]:
        with self._lock:
            return {found.reading.uuid: found for index in self._indices() if (found := self._telemetry(index))}

    def driver(self) -> DriverInfo | None:
        with self._lock:
            if not self._open():
                return None
            reading, nvml = Reading(self._nvml), self._nvml
            cuda = reading.read(nvml.nvmlSystemGetCudaDriverVersion_v2)
            return DriverInfo(
                driver_version=reading.read(nvml.nvmlSystemGetDriverVersion),
                cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
                library_version=reading.read(nvml.nvmlSystemGetNVMLVersion),
            )

    def shared_files(self) -> tuple[str, ...]:
        return tuple(str(path) for name in _SHARED if (path := self._dev / name).exists())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._let_go()

    def _open(self) -> bool:
        """Whether NVML answers. If not, `_reason` tells why."""
        if self._nvml is not None:
            return True
        self._reason = "the device backend was closed" if self._closed else self._load()
        return self._reason is None

    def _load(self) -> str | None:
        try:
            # Loaded first by path: the binding only knows the library's name, and then finds this very one.
            ctypes.CDLL(self._library)
        except OSError as error:
            return _why_no_library(str(error), self._library, pci.nvidia_gpus(self._sysfs))
        import pynvml  # 0.2 s, which a machine without a driver need not pay

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return sentence(error.value)
        self._nvml = pynvml
        return None

    def _let_go(self) -> None:
        if self._nvml is not None:
            Reading(self._nvml).read(self._nvml.nvmlShutdown)
        self._nvml = None

    def _indices(self) -> range:
        if not self._open():
            return range(0)
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            self._reason = sentence(error.value)
            self._let_go()
            return range(0)
        self._reason = None if count else "the NVIDIA driver works but shows no GPU; " + _see_bus(self._sysfs)
        return range(count)

    def _device(self, index: int) -> DeviceInfo:
        if self._nvml is None:
            return self._last_known(index, sentence(Code.DRIVER_NOT_LOADED))
        reading = Reading(self._nvml)
        found = read_device(reading, index, sysfs=self._sysfs, dev=self._dev)
        self._after(reading)
        if found is None:
            return self._last_known(index, reading.trouble or sentence(Code.NOT_READY))
        self._seen[index] = found
        return found

    def _telemetry(self, index: int) -> DeviceTelemetry | None:
        if self._nvml is None:
            return None
        reading = Reading(self._nvml)
        found = read_telemetry(reading, index)
        self._after(reading)
        if found is None and index in self._seen:
            return DeviceTelemetry(reading=DeviceReading(uuid=self._seen[index].uuid), trouble=reading.trouble)
        return found

    def _after(self, reading: Reading) -> None:
        if reading.code in CONTACT_LOST:
            self._let_go()

    def _last_known(self, index: int, trouble: str) -> DeviceInfo:
        """A device that does not answer keeps its identity, so that what ran on it is not forgotten."""
        unknown = Device(uuid=f"GPU-UNKNOWN-{index}", index=index, model="GPU", memory_bytes=0)
        info = self._seen.get(index, DeviceInfo(device=unknown, raw_name="unknown GPU"))
        return replace(info, device=replace(info.device, health=health_of(trouble), health_reason=trouble))


def _why_no_library(error: str, library: str, gpus: tuple[pci.PciGpu, ...]) -> str:
    if "No such file" not in error:
        return f"the NVIDIA library can't be loaded: {error}; reinstall the driver's user-space part"
    if not gpus:
        return f"no NVIDIA GPU: none is on the PCI bus and {library} is not installed"
    count = "an NVIDIA GPU is" if len(gpus) == 1 else f"{len(gpus)} NVIDIA GPUs are"
    if any(gpu.driver == "nvidia" for gpu in gpus):
        return (
            f"{count} there and the kernel driver is loaded, but {library} is not installed; install the"
            " driver's user-space part (Debian: libnvidia-ml1), or give the container the GPU"
        )
    return f"{count} on the PCI bus but no driver is installed; install the NVIDIA driver, then try again"


def _why_hidden(gpu: pci.PciGpu) -> str:
    if gpu.driver is None:
        return "no kernel driver holds it; look at `dmesg` for NVRM lines"
    if gpu.driver != "nvidia":
        return f"the kernel driver {gpu.driver} holds it"
    return "it may have failed or be hidden from this container; look at `dmesg` for NVRM and Xid lines"


def _see_bus(sysfs: Path) -> str:
    gpus = pci.nvidia_gpus(sysfs)
    return f"on the PCI bus: {', '.join(gpu.bus_id for gpu in gpus)}" if gpus else "none is on the PCI bus either"
