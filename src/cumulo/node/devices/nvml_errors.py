"""What NVML's return codes mean to a person, and what to do about each.

NVML answers every failure with a number. Some only say that a device lacks a feature; the rest end as one of
the sentences below, in front of somebody who wants the GPU back.
"""

from enum import IntEnum
from typing import Final


class Code(IntEnum):
    """NVML_ERROR_*, as in nvml.h."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    ALREADY_INITIALIZED = 5
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    INSUFFICIENT_POWER = 8
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    IRQ_ISSUE = 11
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    CORRUPTED_INFOROM = 14
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    NO_DATA = 21
    VGPU_ECC_NOT_SUPPORTED = 22
    INSUFFICIENT_RESOURCES = 23
    FREQ_NOT_SUPPORTED = 24
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    INVALID_STATE = 29
    RESET_TYPE_NOT_SUPPORTED = 30
    UNKNOWN = 999


# The device or the library lacks the feature, or won't tell: one figure is unknown and nothing is broken.
HARMLESS: Final = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.NOT_SUPPORTED,
        Code.NO_PERMISSION,
        Code.NOT_FOUND,
        Code.INSUFFICIENT_SIZE,
        Code.FUNCTION_NOT_FOUND,
        Code.NO_DATA,
        Code.VGPU_ECC_NOT_SUPPORTED,
        Code.FREQ_NOT_SUPPORTED,
        Code.ARGUMENT_VERSION_MISMATCH,
        Code.DEPRECATED,
        Code.RESET_TYPE_NOT_SUPPORTED,
    }
)
# The driver went away beneath us (unloaded, upgraded): NVML must be opened anew.
CONTACT_LOST: Final = frozenset({Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH})

_REBOOT = "reboot, or stop everything that uses GPUs and reload the nvidia modules"
_RESET = "reset it with `nvidia-smi -r -i INDEX` once nothing uses it, or reboot"
_LOGS = "look at `dmesg` for NVRM and Xid lines"

_SENTENCES: Final[dict[int, tuple[str, str]]] = {
    Code.UNINITIALIZED: ("NVML is not initialised", "restart Cumulo"),
    Code.INVALID_ARGUMENT: ("NVML did not accept an argument", "update the NVIDIA driver or Cumulo"),
    Code.NOT_SUPPORTED: ("the device does not support this", "nothing is broken"),
    Code.NO_PERMISSION: (
        "no permission to use the GPU",
        "check the rights of /dev/nvidia*, or that the container was given the device",
    ),
    Code.ALREADY_INITIALIZED: ("NVML was initialised twice", "restart Cumulo"),
    Code.NOT_FOUND: ("the driver can't find the GPU", _LOGS),
    Code.INSUFFICIENT_SIZE: ("NVML's answer did not fit", "update the NVIDIA driver or Cumulo"),
    Code.INSUFFICIENT_POWER: ("the GPU's external power cable is not connected", "connect it and reboot"),
    Code.DRIVER_NOT_LOADED: (
        "the NVIDIA kernel driver is not loaded",
        "`modprobe nvidia`, or install the driver; " + _LOGS,
    ),
    Code.TIMEOUT: ("the GPU did not answer in time", _RESET),
    Code.IRQ_ISSUE: ("the GPU's interrupts do not arrive", "check its seat and the PCI settings of the BIOS; " + _LOGS),
    Code.LIBRARY_NOT_FOUND: (
        "the NVIDIA library libnvidia-ml.so.1 is not installed",
        "install the driver's user-space part",
    ),
    Code.FUNCTION_NOT_FOUND: ("the NVIDIA driver is too old for this question", "update the driver"),
    Code.CORRUPTED_INFOROM: ("the GPU's infoROM is corrupted", "have the board repaired or replaced"),
    Code.GPU_IS_LOST: (
        "the GPU is lost: it fell off the bus",
        "reboot; if it happens again, check power, heat and its seat",
    ),
    Code.RESET_REQUIRED: ("the GPU must be reset before it works again", _RESET),
    Code.OPERATING_SYSTEM: (
        "the operating system refused access to the GPU",
        "check cgroup and container device rules",
    ),
    Code.LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA library and the loaded kernel driver differ: the driver was upgraded since boot",
        _REBOOT,
    ),
    Code.IN_USE: ("the GPU is in use", "wait for, or stop, what uses it"),
    Code.MEMORY: ("the driver ran out of memory", "free memory of this machine"),
    Code.NO_DATA: ("the driver has no data", "nothing is broken"),
    Code.VGPU_ECC_NOT_SUPPORTED: ("ECC can't be read under vGPU", "nothing is broken"),
    Code.INSUFFICIENT_RESOURCES: ("the GPU lacks resources for this", "wait for, or stop, what uses it"),
    Code.FREQ_NOT_SUPPORTED: ("the GPU does not support that frequency", "nothing is broken"),
    Code.ARGUMENT_VERSION_MISMATCH: ("the driver's structure differs in version", "update the NVIDIA driver or Cumulo"),
    Code.DEPRECATED: ("the driver no longer answers this question", "nothing is broken"),
    Code.NOT_READY: ("the GPU is not ready yet", "wait a moment; if it stays so, reboot"),
    Code.GPU_NOT_FOUND: ("the driver sees no such GPU any more", _LOGS),
    Code.INVALID_STATE: ("the GPU is in a state that does not allow this", _RESET),
    Code.RESET_TYPE_NOT_SUPPORTED: ("the GPU can't be reset in this way", "reboot"),
    Code.UNKNOWN: ("the driver failed without saying why", f"{_LOGS}; if it stays so, reboot"),
}

# NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: what the driver itself asks for after an error. 0 is nothing.
_RECOVERY: Final = {
    1: f"the driver asks for a reset of this GPU; {_RESET}",
    2: "the driver asks for a reboot of this machine",
    3: "the driver asks for peer-to-peer traffic of this GPU to be drained; stop what uses it",
    4: f"the driver asks for this GPU to be drained and reset; stop what uses it, then {_RESET}",
    5: "the driver asks for its IMEX domain to be recovered; restart nvidia-imex on the domain's nodes",
    6: "the driver asks for a reset of this GPU's bus; reboot this machine",
    7: "the driver asks for a restart of the whole system",
}


def sentence(code: int) -> str:
    """One line for a person: what is wrong and what to do, with NVML's code for the search engine."""
    what, then = _SENTENCES.get(code, ("the driver failed in a way this version does not know", _LOGS))
    return f"{what} (NVML error {code}); {then}"


def recovery_sentence(action: int) -> str:
    """What the driver asks for after an error of the device; empty if for nothing."""
    if action == 0:
        return ""
    return _RECOVERY.get(action, f"the driver asks for recovery action {action}; {_LOGS}")
