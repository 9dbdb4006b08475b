from pathlib import Path

import pytest

from cumulo.node.devices.pci import PciGpu, numa_node, nvidia_gpus, sysfs_bus_id


def add(sysfs: Path, bus_id: str, *, vendor: str = "0x10de", kind: str = "0x030200") -> Path:
    folder = sysfs / "bus/pci/devices" / bus_id
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "class").write_text(kind + "\n")
    return folder


def test_gpus_are_told_from_everything_else_on_the_bus(tmp_path: Path) -> None:
    add(tmp_path, "0000:af:00.0")
    add(tmp_path, "0000:3b:00.0", kind="0x030000")  # a display card
    add(tmp_path, "0000:3b:00.1", kind="0x040300")  # its sound
    add(tmp_path, "0000:05:00.0", kind="0x068000")  # an NVSwitch
    add(tmp_path, "0000:00:02.0", vendor="0x8086", kind="0x030000")
    (tmp_path / "bus/pci/devices/0000:af:00.0/driver").symlink_to("../../../bus/pci/drivers/nvidia")
    assert nvidia_gpus(tmp_path) == (PciGpu("0000:3b:00.0", None), PciGpu("0000:af:00.0", "nvidia"))


def test_no_bus_no_gpus(tmp_path: Path) -> None:
    assert nvidia_gpus(tmp_path) == ()


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("0", 0), ("-1\n", None), ("", None)])
def test_numa_node(tmp_path: Path, text: str, node: int | None) -> None:
    (add(tmp_path, "0000:3b:00.0") / "numa_node").write_text(text)
    assert numa_node(tmp_path, "0000:3b:00.0") == node


def test_numa_node_of_a_device_that_is_not_there(tmp_path: Path) -> None:
    assert numa_node(tmp_path, "0000:3b:00.0") is None


def test_bus_ids_are_written_in_two_ways() -> None:
    assert sysfs_bus_id("00000000:3B:00.0") == "0000:3b:00.0"
    assert sysfs_bus_id("0001A000:01:00.0") == "a000:01:00.0"
