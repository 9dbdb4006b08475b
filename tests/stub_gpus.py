"""GPUs that a small library of ours claims to find, for what emulated ones lack: a price.

The library stands in for the driver's; what it says is in a file that the environment names.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "node/devices/stub/nvml_stub.c"
_A100 = """
device
name NVIDIA A100-SXM4-80GB
uuid GPU-{0}
pci 00000000:3{0}:00.0
minor {0}
total 85899345920
used 1048576
reserved 600000000
"""


def library(folder: Path) -> Path:
    """Compiles the library into a folder, which is returned. Skips the test where there is no compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run(["gcc", *options, "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)], check=True)
    return folder


def environment(libraries: Path, folder: Path, *, gpus: int) -> dict[str, str]:
    """What a server needs to find so many A100-80GB; what they say lies in `folder`."""
    driver = folder / "driver"
    driver.write_text("driver 580.95.05\ncuda 13000\n" + "".join(_A100.format(index) for index in range(gpus)))
    return {"LD_LIBRARY_PATH": str(libraries), "CUMULO_NVML_STUB": str(driver)}
