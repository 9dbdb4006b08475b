"""What the node needs to know of devices, whoever tells it: NVML, or an emulation.

A backend never raises. What can't be read is None; a device that answers with an error is there,
quarantined, with the reason in words; a backend that can't work at all says so in `unavailable()`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from cumulo.domain.node import Device, DeviceHealth, DeviceReading


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device as it was found: what the rest of Cumulo knows of it, and what only its node needs.

    `raw_name` is what the driver calls it; `device_files` are what a process must be able to open to use it alone
    (`/dev/nvidia0`); `mig_enabled` is None where the device has no MIG.
    """

    device: Device
    raw_name: str
    pci_bus_id: str | None = None
    device_files: tuple[str, ...] = ()
    mig_enabled: bool | None = None

    @property
    def uuid(self) -> str:
        return self.device.uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process that holds memory of a device. The pid is the host's; a display server is `graphics`."""

    pid: int
    memory_bytes: int | None
    kind: Literal["compute", "graphics"] = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTelemetry:
    """How a device is doing now. `processes` None means unknown, which is not the same as none."""

    reading: DeviceReading
    processes: tuple[DeviceProcess, ...] | None = None
    emulated: bool = False
    trouble: str = ""


def health_of(trouble: str) -> DeviceHealth:
    """A device in trouble is kept from new work; empty words mean that it is well."""
    return DeviceHealth.QUARANTINED if trouble else DeviceHealth.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverInfo:
    """Versions, as `580.95.05` and `13.0`; None where they can't be read."""

    driver_version: str | None
    cuda_version: str | None
    library_version: str | None = None


class DeviceBackend(Protocol):
    """The devices of one node. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """`nvml` or `emulated`."""
        ...

    def unavailable(self) -> str | None:
        """Why no device can be seen and what to do about it, in one line; None when the backend works."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """What a person should know although the backend works, as a GPU that the driver does not show."""
        ...

    def devices(self) -> tuple[DeviceInfo, ...]:
        """The devices, by index, unhealthy ones included. Empty when unavailable."""
        ...

    def telemetry(self) -> Mapping[str, DeviceTelemetry]:
        """By uuid. Devices that could not be identified are left out."""
        ...

    def driver(self) -> DriverInfo | None:
        """None where there is no driver."""
        ...

    def shared_files(self) -> tuple[str, ...]:
        """Device files that a process needs whichever device it holds, as `/dev/nvidiactl`."""
        ...

    def close(self) -> None:
        """Lets the driver go. The backend is unavailable afterwards."""
        ...
