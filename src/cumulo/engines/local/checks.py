"""What works on this machine, what does not, and how to get it: the node's part of `cumulo doctor`."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from cumulo.domain.check import Check
from cumulo.engines.local.interpreter import Interpreter
from cumulo.engines.local.layout import Layout
from cumulo.node.cgroups import Cgroups
from cumulo.node.devices.protocol import DeviceBackend
from cumulo.node.runtimes import Runtime

GIB: Final = 1 << 30
_LITTLE_DISK: Final = 5 * GIB
_BUILT: Final = datetime(2025, 6, 1, tzinfo=UTC).timestamp()  # no correct clock shows an earlier time


def examine(
    *,
    layout: Layout,
    cgroups: Cgroups,
    runtimes: Mapping[str, Runtime],
    backend: DeviceBackend,
    base: Interpreter,
) -> tuple[Check, ...]:
    """Looks at everything that a run on this node may need. Starts a few short processes."""
    return (
        *_runtimes(runtimes),
        *_limits(cgroups),
        *_devices(backend),
        _venv(base),
        _disk(layout),
        _clock(),
        _account(),
    )


def _runtimes(runtimes: Mapping[str, Runtime]) -> Iterator[Check]:
    for name, runtime in runtimes.items():
        reason = runtime.available()
        if reason is None:
            yield Check(name=f"runtime {name}", status="ok", text=runtime.isolation)
        else:
            hint = "until then runs that name no runtime are not isolated from one another"
            yield Check(name=f"runtime {name}", status="warn", text=reason, hint=hint)


def _limits(cgroups: Cgroups) -> Iterator[Check]:
    for each in cgroups.report:
        if each.enforced:
            yield Check(name=f"limit {each.limit}", status="ok", text=f"enforced ({each.remark})")
        else:
            text = f"not enforced: a run may use more {each.limit} than it asked for"
            yield Check(name=f"limit {each.limit}", status="warn", text=text, hint=each.remark)


def _devices(backend: DeviceBackend) -> Iterator[Check]:
    name = "GPUs"
    if backend.name == "emulated":
        yield Check(name=name, status="info", text="emulated: nothing computes on them")
        return
    if reason := backend.unavailable():
        hint = "for a try without GPUs: cumulo up --emulate A100-80GB:8"
        yield Check(name=name, status="info", text=reason, hint=hint)
        return
    found, driver = backend.devices(), backend.driver()
    version = driver.driver_version if driver else None
    yield Check(name=name, status="ok", text=f"{len(found)} found, driver {version or 'unknown'}")
    for info in found:
        if info.device.health_reason:
            yield Check(name=f"GPU {info.device.index}", status="fail", text=info.device.health_reason)
    for warning in backend.warnings():
        yield Check(name=name, status="warn", text=warning)


def _venv(base: Interpreter) -> Check:
    """Environments of runs are made with the venv module, which Debian ships apart."""
    program = "import ensurepip, venv, sys; print(sys.version.split()[0])"
    done = subprocess.run(
        [base.executable, "-I", "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    if done.returncode == 0:
        return Check(name="python venv", status="ok", text=f"Python {done.stdout.strip()} at {base.executable}")
    text = f"{base.executable} can't make virtual environments, so runs with setup or requirements will fail"
    return Check(name="python venv", status="fail", text=text, hint="on Debian and Ubuntu: apt install python3-venv")


def _disk(layout: Layout) -> Check:
    usage = shutil.disk_usage(layout.root)
    text = f"{usage.free / GIB:.1f} of {usage.total / GIB:.1f} GiB free at {layout.root}"
    if usage.free < _LITTLE_DISK:
        return Check(
            name="disk", status="warn", text=text, hint="cumulo df shows what takes the room, cumulo sweep frees it"
        )
    return Check(name="disk", status="ok", text=text)


def _clock() -> Check:
    now = time.time()
    if now < _BUILT:
        text = f"the clock says {datetime.fromtimestamp(now, UTC):%Y-%m-%d}, which has been"
        return Check(name="clock", status="fail", text=text, hint="set it, for example with timedatectl set-ntp true")
    return Check(name="clock", status="ok", text=f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC")


def _account() -> Check:
    if os.geteuid() == 0:
        return Check(name="users", status="ok", text="started by root: each person's runs have their own uid")
    text = f"started by uid {os.geteuid()}: all runs have this uid, whoever launches them"
    return Check(name="users", status="info", text=text, hint="for a box that several people share, start it as root")
