"""NVIDIA GPUs as the PCI bus shows them, whether a driver works or not.

A GPU that the driver does not show is otherwise silently missing: comparing both tells which one, and why.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NVIDIA: Final = "0x10de"
_GPU_CLASSES: Final = ("0x0300", "0x0302")  # VGA controllers and 3D controllers


@dataclass(frozen=True, slots=True)
class PciGpu:
    """A GPU on the bus: `bus_id` as in sysfs (`0000:3b:00.0`), and the kernel driver that holds it."""

    bus_id: str
    driver: str | None


def nvidia_gpus(sysfs: Path) -> tuple[PciGpu, ...]:
    """The NVIDIA GPUs of the bus, in its order. Empty where there is no PCI bus to read."""
    try:
        folders = sorted((sysfs / "bus/pci/devices").iterdir())
    except OSError:
        return ()
    return tuple(
        PciGpu(folder.name, _driver(folder))
        for folder in folders
        if _read(folder / "vendor") == _NVIDIA and _read(folder / "class").startswith(_GPU_CLASSES)
    )


def sysfs_bus_id(nvml_bus_id: str) -> str:
    """`0000:3b:00.0` from NVML's `00000000:3B:00.0`."""
    domain, _, rest = nvml_bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def numa_node(sysfs: Path, bus_id: str) -> int | None:
    """The NUMA node whose CPUs are near the device; None where the firmware does not say (many VMs)."""
    text = _read(sysfs / "bus/pci/devices" / bus_id / "numa_node")
    return int(text) if text.isdecimal() else None


def _driver(folder: Path) -> str | None:
    try:
        return (folder / "driver").readlink().name
    except OSError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
