"""The real binding against a small library of ours, which answers whatever a test writes into its file."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from cumulo.domain.node import DeviceHealth
from cumulo.domain.sharing import SharingMode
from cumulo.node.devices.nvml import NvmlBackend
from cumulo.node.devices.nvml_errors import HARMLESS, Code
from cumulo.node.devices.protocol import DeviceBackend, DeviceProcess, DriverInfo

SOURCE = Path(__file__).parent / "stub" / "nvml_stub.c"

A100: Final = """
device
name NVIDIA A100-SXM4-80GB
uuid GPU-aaaa
pci 00000000:3B:00.0
minor 3
total 85899345920
used 1048576
reserved 600000000
utilisation 42
temperature 33
power 61234
mig 0
numa 1
recovery 0
compute 1234 1000000
"""
T4: Final = """
device
name Tesla T4
uuid GPU-bbbb
pci 00000000:AF:00.0
minor 0
total 16106127360
used 0
"""
SYSTEM: Final = "driver 580.95.05\ncuda 13000\n"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run(["gcc", *options, "-o", str(path), str(SOURCE)], check=True)
    return str(path)


Says = Callable[[str], None]


@pytest.fixture
def driver_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    file = tmp_path / "driver"
    monkeypatch.setenv("CUMULO_NVML_STUB", str(file))

    def write(text: str) -> None:
        file.write_text(SYSTEM + text)

    return write


@pytest.fixture
def backend(library: str, tmp_path: Path) -> Iterator[DeviceBackend]:
    (tmp_path / "dev").mkdir()
    made = NvmlBackend(library=library, sysfs=tmp_path / "sys", dev=tmp_path / "dev")
    yield made
    made.close()


def add_to_bus(root: Path, bus_id: str, *, vendor: str = "0x10de", numa: int = -1, driver: str | None = None) -> None:
    folder = root / "sys/bus/pci/devices" / bus_id
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "class").write_text("0x030200\n")
    (folder / "numa_node").write_text(f"{numa}\n")
    if driver:
        (folder / "driver").symlink_to(f"../../drivers/{driver}")


def test_devices(backend: DeviceBackend, driver_says: Says, tmp_path: Path) -> None:
    driver_says(A100 + T4)
    a100, t4 = backend.devices()
    device = a100.device
    assert (device.index, device.uuid, device.model, a100.raw_name) == (
        0, "GPU-aaaa", "A100-80GB", "NVIDIA A100-SXM4-80GB",
    )  # fmt: skip
    assert (device.memory_bytes, device.numa_node, device.emulated) == (85899345920, 1, False)
    assert (a100.pci_bus_id, a100.mig_enabled) == ("0000:3b:00.0", False)
    assert a100.device_files == (str(tmp_path / "dev/nvidia3"),)
    assert (device.health, device.health_reason) == (DeviceHealth.OK, "")
    assert (t4.device.index, t4.device.model, t4.device.numa_node, t4.mig_enabled) == (1, "T4", None, None)
    assert (backend.name, backend.unavailable()) == ("nvml", None)


def test_telemetry(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(A100 + T4)
    telemetry = backend.telemetry()
    a100, t4 = telemetry["GPU-aaaa"], telemetry["GPU-bbbb"]
    assert a100.reading.memory_used_bytes == 1048576  # what the driver reserves is not used by anybody
    assert (a100.reading.utilisation, a100.reading.temperature_c, a100.reading.power_w) == (0.42, 33.0, 61.234)
    assert a100.processes == (DeviceProcess(pid=1234, memory_bytes=1000000),)
    assert (t4.reading.memory_used_bytes, t4.reading.utilisation) == (0, None)
    assert (t4.reading.temperature_c, t4.reading.power_w, t4.processes) == (None, None, ())
    assert (a100.trouble, t4.trouble, a100.emulated) == ("", "", False)


def test_driver_versions(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says("")
    assert backend.driver() == DriverInfo(
        driver_version="580.95.05", cuda_version="13.0", library_version="13.580.95.05"
    )
    driver_says("fail nvmlSystemGetCudaDriverVersion_v2 999\nfail nvmlSystemGetDriverVersion 1\n")
    assert backend.driver() == DriverInfo(driver_version=None, cuda_version=None, library_version="13.580.95.05")


def test_an_old_driver_that_counts_memory_its_own_way(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(A100 + "fail nvmlDeviceGetMemoryInfo_v2 13\n")
    assert backend.telemetry()["GPU-aaaa"].reading.memory_used_bytes == 1048576 + 600000000
    assert backend.devices()[0].device.memory_bytes == 85899345920


def test_processes_of_every_sort_are_counted_once(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(T4 + "compute 7 -1\nmps 8 100\ngraphics 9 50\ngraphics 7 60\ncompute 8 100\n")
    assert backend.telemetry()["GPU-bbbb"].processes == (
        DeviceProcess(pid=7, memory_bytes=None),
        DeviceProcess(pid=8, memory_bytes=100),
        DeviceProcess(pid=9, memory_bytes=50, kind="graphics"),
    )


def test_unknown_processes_are_not_no_processes(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(T4 + "fail nvmlDeviceGetComputeRunningProcesses_v3 4\n")
    telemetry = backend.telemetry()["GPU-bbbb"]
    assert (telemetry.processes, telemetry.trouble) == (None, "")


def test_numa_of_the_bus_comes_first(backend: DeviceBackend, driver_says: Says, tmp_path: Path) -> None:
    add_to_bus(tmp_path, "0000:3b:00.0", numa=0)
    add_to_bus(tmp_path, "0000:af:00.0", numa=-1)
    driver_says(A100 + T4)
    assert [info.device.numa_node for info in backend.devices()] == [0, None]


def test_mig_mode(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(A100.replace("mig 0", "mig 1") + T4)
    assert backend.devices()[0].mig_enabled is True
    assert backend.devices()[0].device.modes == (SharingMode.EXCLUSIVE,)
    assert backend.devices()[1].device.modes == (SharingMode.EXCLUSIVE, SharingMode.TIMESLICE)


def test_a_gpu_that_the_catalogue_lacks(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(T4.replace("Tesla T4", "NVIDIA X900 Wunder"))
    assert backend.devices()[0].device.model == "X900-Wunder-15GB"


def test_shared_files_are_those_that_exist(backend: DeviceBackend, tmp_path: Path) -> None:
    (tmp_path / "dev/nvidiactl").touch()
    (tmp_path / "dev/nvidia-uvm").touch()
    assert backend.shared_files() == (str(tmp_path / "dev/nvidiactl"), str(tmp_path / "dev/nvidia-uvm"))


# Failures. Whatever the driver answers, a person gets a sentence and nobody an exception.

SYSTEM_CALLS = (
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount_v2",
)
DEVICE_CALLS = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
)
CODES = [*Code, 555]
IDENTITY = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID")


def is_a_sentence(text: str) -> bool:
    return len(text) > 20 and "\n" not in text and ";" in text and "Traceback" not in text


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", SYSTEM_CALLS)
def test_any_error_of_the_library(call: str, code: int, backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(f"fail {call} {code}\n{T4}")
    reason, devices = backend.unavailable(), backend.devices()
    backend.telemetry()
    backend.driver()
    if call in ("nvmlInitWithFlags", "nvmlDeviceGetCount_v2"):
        assert devices == ()
        assert reason is not None
        assert is_a_sentence(reason)
        assert f"NVML error {int(code)}" in reason
    else:
        assert reason is None
        assert [info.device.model for info in devices] == ["T4"]
    backend.close()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", DEVICE_CALLS)
def test_any_error_of_a_device(call: str, code: int, backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(T4 + A100 + f"fail {call} {code}\n")
    good, bad = backend.devices()
    backend.telemetry()
    assert (good.device.model, good.device.health) == ("T4", DeviceHealth.OK)
    if code in HARMLESS and call not in IDENTITY:
        assert bad.device.health is DeviceHealth.OK
        assert bad.device.model == ("GPU-80GB" if call == "nvmlDeviceGetName" else "A100-80GB")
    troubles = [bad.device.health_reason, *(each.trouble for each in backend.telemetry().values())]
    for trouble in filter(None, troubles):
        assert is_a_sentence(trouble)
    if call in IDENTITY:
        assert bad.device.health is DeviceHealth.QUARANTINED
        assert (bad.device.uuid, bad.device.memory_bytes) == ("GPU-UNKNOWN-1", 0)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4, "no permission to use the GPU"),
        (9, "the NVIDIA kernel driver is not loaded"),
        (15, "the GPU is lost: it fell off the bus"),
        (18, "the NVIDIA library and the loaded kernel driver differ: the driver was upgraded since boot"),
    ],
)
def test_the_errors_that_people_meet(code: int, words: str, backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(f"fail nvmlInitWithFlags {code}")
    assert (backend.unavailable() or "").startswith(words)


def test_a_device_that_is_lost_keeps_its_identity(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(A100 + T4)
    before = backend.devices()
    driver_says(A100 + "fail nvmlDeviceGetHandleByIndex_v2 15\n" + T4)
    lost, t4 = backend.devices()
    assert (lost.uuid, lost.device.model, lost.device.health) == ("GPU-aaaa", "A100-80GB", DeviceHealth.QUARANTINED)
    assert "lost" in lost.device.health_reason
    assert t4 == before[1]
    telemetry = backend.telemetry()
    assert "lost" in telemetry["GPU-aaaa"].trouble
    assert telemetry["GPU-aaaa"].processes is None
    driver_says(A100 + T4)
    assert backend.devices() == before


def test_what_the_driver_asks_for_after_an_error(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(A100.replace("recovery 0", "recovery 2"))
    (info,) = backend.devices()
    assert info.device.health is DeviceHealth.QUARANTINED
    assert info.device.health_reason == "the driver asks for a reboot of this machine"
    assert backend.telemetry()["GPU-aaaa"].trouble == info.device.health_reason


def test_a_driver_that_goes_and_comes_back(backend: DeviceBackend, driver_says: Says, tmp_path: Path) -> None:
    assert "not loaded" in (backend.unavailable() or "")
    driver_says(T4)
    assert backend.unavailable() is None
    (tmp_path / "driver").unlink()
    assert backend.devices() == ()
    assert "not loaded" in (backend.unavailable() or "")
    driver_says(T4)
    assert [info.uuid for info in backend.devices()] == ["GPU-bbbb"]


def test_nvml_is_opened_anew_when_a_device_says_that_contact_is_lost(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(A100 + T4)
    before = backend.devices()
    driver_says(A100 + "fail nvmlDeviceGetHandleByIndex_v2 1\n" + T4)
    during = backend.devices()
    assert [info.uuid for info in during] == [info.uuid for info in before]
    assert {info.device.health for info in during} == {DeviceHealth.QUARANTINED}
    driver_says("fail nvmlInitWithFlags 18\n" + A100 + T4)
    assert (backend.unavailable() or "").startswith("the NVIDIA library and the loaded kernel driver differ")
    driver_says(A100 + T4)
    assert backend.devices() == before


def test_a_driver_without_gpus(backend: DeviceBackend, driver_says: Says, tmp_path: Path) -> None:
    driver_says("")
    assert backend.unavailable() == "the NVIDIA driver works but shows no GPU; none is on the PCI bus either"
    add_to_bus(tmp_path, "0000:3b:00.0")
    assert backend.unavailable() == "the NVIDIA driver works but shows no GPU; on the PCI bus: 0000:3b:00.0"


def test_a_gpu_that_the_driver_hides_is_told(backend: DeviceBackend, driver_says: Says, tmp_path: Path) -> None:
    add_to_bus(tmp_path, "0000:3b:00.0", driver="nvidia")
    add_to_bus(tmp_path, "0000:5e:00.0", driver="vfio-pci")
    add_to_bus(tmp_path, "0000:5f:00.0")
    add_to_bus(tmp_path, "0000:60:00.0", driver="nvidia")
    add_to_bus(tmp_path, "0000:61:00.0", vendor="0x8086")
    driver_says(A100)
    passed_through, unclaimed, failed = backend.warnings()
    assert passed_through.endswith("0000:5e:00.0 is not shown by the driver: the kernel driver vfio-pci holds it")
    assert "0000:5f:00.0" in unclaimed
    assert "no kernel driver holds it" in unclaimed
    assert "0000:60:00.0" in failed
    assert "Xid" in failed


def test_a_closed_backend_answers_and_sees_nothing(backend: DeviceBackend, driver_says: Says) -> None:
    driver_says(T4)
    assert len(backend.devices()) == 1
    backend.close()
    backend.close()
    assert (backend.devices(), backend.telemetry(), backend.driver()) == ((), {}, None)
    assert backend.unavailable() == "the device backend was closed"


# The library itself may be missing or broken. No compiler is needed for these.


def without_library(tmp_path: Path, library: str = "/nowhere/libnvidia-ml.so.1") -> DeviceBackend:
    return NvmlBackend(library=library, sysfs=tmp_path / "sys", dev=tmp_path)


def test_no_library_and_no_gpu(tmp_path: Path) -> None:
    backend = without_library(tmp_path)
    assert backend.unavailable() == (
        "no NVIDIA GPU: none is on the PCI bus and /nowhere/libnvidia-ml.so.1 is not installed"
    )
    assert (backend.devices(), backend.telemetry(), backend.driver(), backend.warnings()) == ((), {}, None, ())


def test_a_gpu_without_a_driver(tmp_path: Path) -> None:
    add_to_bus(tmp_path, "0000:3b:00.0", driver="nouveau")
    reason = without_library(tmp_path).unavailable()
    assert (
        reason
        == "an NVIDIA GPU is on the PCI bus but no driver is installed; install the NVIDIA driver, then try again"
    )


def test_a_driver_without_its_library(tmp_path: Path) -> None:
    add_to_bus(tmp_path, "0000:3b:00.0", driver="nvidia")
    add_to_bus(tmp_path, "0000:3c:00.0", driver="nvidia")
    reason = without_library(tmp_path).unavailable() or ""
    assert reason.startswith("2 NVIDIA GPUs are there and the kernel driver is loaded, but")
    assert "libnvidia-ml1" in reason


def test_a_library_that_is_none(tmp_path: Path) -> None:
    broken = tmp_path / "libnvidia-ml.so.1"
    broken.write_bytes(b"not an ELF file")
    reason = without_library(tmp_path, str(broken)).unavailable() or ""
    assert reason.startswith("the NVIDIA library can't be loaded: ")


def test_a_machine_without_the_library_does_not_pay_for_the_binding(tmp_path: Path) -> None:
    script = (
        "import sys; from cumulo.node.devices.nvml import NvmlBackend;"
        "NvmlBackend(library='/nowhere.so').devices(); print('pynvml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_library_is_found_by_its_name_as_users_have_it(library: str, driver_says: Says) -> None:
    driver_says(T4)
    script = (
        "from cumulo.node.devices.nvml import NvmlBackend;"
        "print(*(info.device.model for info in NvmlBackend().devices()))"
    )
    environment = os.environ | {"LD_LIBRARY_PATH": str(Path(library).parent)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "T4"
