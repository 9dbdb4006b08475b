"""The engine's node: devices and their use, what is foreign, what is kept, and what is to be said about it."""

import math
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import InstanceState
from cumulo.domain.node import Device, DeviceReading
from cumulo.domain.sharing import SharingMode, Slice, whole_devices
from cumulo.engines.local.hardware import EmulatedHardware, Held, RealHardware
from cumulo.engines.local.pace import Pace
from cumulo.node.devices.protocol import DeviceInfo, DeviceProcess, DeviceTelemetry
from tests.engines.conftest import Bench, needs_root

GIB = 1 << 30
BUSY = "import time\nwhile True: pass"


def test_emulated_nodes_have_what_was_asked_for(bench):
    first, second = bench.engine.nodes()
    assert [device.model for device in first.devices] == ["A100-80GB", "A100-80GB"]
    assert [device.model for device in second.devices] == ["T4"]
    assert all(device.emulated for node in (first, second) for device in node.devices)
    assert (first.emulated, first.address, first.cpus_milli) == (True, "127.0.0.1", 32_000)
    assert bench.engine.pools() == ()


def test_emulated_devices_do_what_their_holders_do(bench):
    uuids = tuple(device.uuid for device in bench.engine.nodes()[0].devices)
    name = bench.start("busy", f"python3 -c '{BUSY}'", slices=whole_devices(uuids))
    bench.until(name, InstanceState.RUNNING)
    deadline = time.monotonic() + 20
    while True:
        told = bench.engine.telemetry()
        (instance,) = told.instances
        readings = {reading.uuid: reading for reading in told.devices}
        if readings[uuids[0]].utilisation > 0.1 or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert instance.instance_id == name
    assert (instance.memory_bytes > 0, instance.processes >= 1, instance.cpu_seconds > 0) == (True, True, True)
    assert readings[uuids[0]].memory_used_bytes == instance.memory_bytes // 2
    assert readings[uuids[0]].utilisation > 0.1
    assert len(readings) == 3
    idle = next(reading for uuid, reading in readings.items() if uuid not in uuids)
    assert (idle.memory_used_bytes, idle.utilisation) == (0, 0.0)
    bench.engine.stop(name, 0.0, 1)
    bench.end(name)
    assert bench.engine.telemetry().instances == ()


def test_utilisation_is_of_the_cpus_asked_for(bench):
    hardware = EmulatedHardware("T4:1")
    ((device,),) = (node.devices for node in hardware.nodes(set))
    cpus = len(os.sched_getaffinity(0))
    held = Held(
        spec=bench.spec("x", "", slices=whole_devices([device.uuid]), cpus_milli=1000 * cpus),
        memory_bytes=GIB,
        cpu_seconds=0.0,
        pids=(),
        started_at=None,
    )
    uses = hardware._uses((held,), {held.spec.instance_id: cpus / 4})
    assert uses[device.uuid].cpu_fraction == pytest.approx(0.25)


def test_a_shared_emulated_device_does_what_all_that_hold_parts_of_it_do(bench):
    hardware = EmulatedHardware("T4:1")
    ((device,),) = (node.devices for node in hardware.nodes(set))
    held = [
        Held(
            spec=bench.spec(name, "", slices=(Slice(device_uuid=device.uuid, mode=SharingMode.MPS, milli=milli),)),
            memory_bytes=GIB,
            cpu_seconds=0.0,
            pids=(milli,),
            started_at=None,
        )
        for name, milli in (("a", 500), ("b", 250))
    ]
    use = hardware._uses(held, {"a-0-0-0": 1.0, "b-0-0-0": 0.5})[device.uuid]
    assert use.memory_bytes == 2 * GIB
    assert use.cpu_fraction == pytest.approx(0.5 + 0.125)
    assert [process.pid for process in use.processes] == [500, 250]


def test_the_cpus_an_instance_keeps_busy(bench):
    pace = Pace()
    spec = bench.spec("x", "")
    name = spec.instance_id
    held = Held(spec=spec, memory_bytes=GIB, cpu_seconds=0.0, pids=(), started_at=None)
    pace.busy((held,), 100.0)
    assert pace.busy((replace(held, cpu_seconds=5.0),), 110.0) == {name: 0.5}
    assert pace.busy((replace(held, cpu_seconds=5.1),), 110.01) == {name: 0.5}, "too soon to tell anything new"
    assert pace.busy((), 111.0) == {}
    assert pace.busy((held,), 112.0) == {name: 0.0}, "what ended is forgotten"


class OneGpu:
    """A backend with one GPU on which the given processes compute."""

    name = "nvml"

    def __init__(self, *pids, kind="compute"):
        self.processes = tuple(DeviceProcess(pid=pid, memory_bytes=1, kind=kind) for pid in pids)

    def unavailable(self):
        return None

    def warnings(self):
        return ()

    def devices(self):
        device = Device(uuid="GPU-1", index=0, model="T4", memory_bytes=16 * GIB)
        return (DeviceInfo(device=device, raw_name="Tesla T4", device_files=("/dev/nvidia0",)),)

    def telemetry(self):
        return {"GPU-1": DeviceTelemetry(reading=DeviceReading(uuid="GPU-1"), processes=self.processes)}

    def driver(self):
        return None

    def shared_files(self):
        return ("/dev/nvidiactl",)

    def close(self):
        pass


def test_a_stranger_on_a_gpu_is_foreign_and_told_in_words():
    stranger = subprocess.Popen(["sleep", "60"])
    comm = Path(f"/proc/{stranger.pid}/comm")
    while comm.read_text().strip() != "sleep":  # it becomes that a moment after it has started
        time.sleep(0.001)
    try:
        (node,) = RealHardware(OneGpu(stranger.pid)).nodes(set)
        (device,) = node.devices
        assert device.foreign.startswith(f"pid {stranger.pid} (")
        assert device.foreign.endswith("): sleep")
        (node,) = RealHardware(OneGpu(stranger.pid)).nodes(lambda: {stranger.pid})
        assert node.devices[0].foreign == ""
        (node,) = RealHardware(OneGpu(stranger.pid, kind="graphics")).nodes(set)
        assert node.devices[0].foreign == ""
    finally:
        stranger.kill()
        stranger.wait()


def test_who_holds_no_device_gets_no_device_file():
    hardware = RealHardware(OneGpu())
    assert hardware.device_files(()) == ()
    assert hardware.device_files(("GPU-1",)) == ("/dev/nvidia0", "/dev/nvidiactl")


def test_this_machine_keeps_some_memory_for_itself():
    (node,) = RealHardware(OneGpu()).nodes(set)
    assert 0 < node.memory_bytes < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert node.cpus_milli >= 1000


# --- doctor -----------------------------------------------------------------------------------------------------------


def test_the_doctor_says_what_works(bench):
    checks = {check.name: check for check in bench.engine.doctor()}
    assert {"runtime sandbox", "limit memory", "GPUs", "python venv", "disk", "clock", "users"} <= checks.keys()
    assert checks["GPUs"].text == "emulated: nothing computes on them"
    assert checks["runtime process"].status == "ok"
    for check in checks.values():
        assert check.status in ("ok", "info") or check.hint, check


# --- what is kept -----------------------------------------------------------------------------------------------------


@pytest.fixture
def direct(node_root):
    bench = Bench("direct", node_root)
    yield bench
    bench.engine.close()


def ended(bench, name):
    seen, _ = bench.run(name, "echo x > $CUMULO_OUTPUT_DIR/file; echo x > file; echo $TMPDIR")
    bench.engine.release(seen.instance_id, 1)
    return seen.instance_id


def age(bench, *names):
    for name in names:
        for path in (f"ended/{name}-0-0-0/exit.json", f"areas/{name}-0-0-0", f"runs/{name}"):
            os.utime(bench.root / path, (1, 1))


def sweep(bench, **changes):
    options = {"keep_s": 3600.0, "environments_s": 3600.0, "active_runs": frozenset()}
    return {each.what: each.count for each in bench.engine.sweep(**(options | changes))}


def test_a_sweep_takes_what_is_old_and_over(direct):
    for name in ("old", "young", "active"):
        ended(direct, name)
    age(direct, "old", "active")
    nothing = dict.fromkeys(("outputs and checkpoints", "workdirs", "environments", "records"), 0)
    active = frozenset({"active"})
    expected = nothing | {"outputs and checkpoints": 1, "workdirs": 1, "records": 1}
    assert sweep(direct, active_runs=active, dry_run=True) == expected
    assert (direct.root / "runs/old").exists()
    assert sweep(direct, active_runs=active) == expected
    assert sorted(os.listdir(direct.root / "runs")) == ["active", "young"]
    assert sorted(os.listdir(direct.root / "areas")) == ["active-0-0-0", "young-0-0-0"]
    assert sorted(os.listdir(direct.root / "ended")) == ["active-0-0-0", "young-0-0-0"]
    assert sweep(direct, active_runs=active) == nothing


def test_a_sweep_takes_nothing_of_what_lives(direct):
    name = direct.start("alive", "sleep 60")
    direct.until(name, InstanceState.RUNNING)
    for path in (f"areas/{name}", "runs/alive", f"instances/{name}"):
        os.utime(direct.root / path, (1, 1))
    assert not any(sweep(direct).values())
    direct.engine.stop(name, 0.0, 1)
    direct.end(name)


def test_a_sweep_keeps_for_good_what_has_infinite_time(direct):
    ended(direct, "old")
    age(direct, "old")
    environment = direct.root / "environments/0/abc"
    environment.mkdir(parents=True)
    os.utime(environment, (1, 1))
    assert not any(sweep(direct, keep_s=math.inf, environments_s=math.inf).values())
    gone = sweep(direct)
    assert (gone["outputs and checkpoints"], gone["environments"]) == (1, 1)


def test_what_a_run_may_just_have_made_stays_however_short_the_setting(direct):
    (direct.root / "runs/just-begun").mkdir()
    environment = direct.root / "environments/0/abc"
    environment.mkdir(parents=True)
    past = time.time() - 600
    for folder in (direct.root / "runs/just-begun", environment):
        os.utime(folder, (past, past))
    assert not any(sweep(direct, keep_s=1.0, environments_s=1.0).values())


def test_sizes_are_told_by_kind(direct):
    ended(direct, "one")
    told = {each.what: each for each in direct.engine.storage()}
    assert told["workdirs"].count == 1
    assert told["outputs and checkpoints"].bytes > 0
    assert told["environments"].bytes == 0


# --- a folder that can't be written -----------------------------------------------------------------------------------


@needs_root
def test_a_full_disk_is_told_and_nothing_is_half_done(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "none", tmp_path], check=True)
    try:
        bench = Bench("direct", tmp_path / "node")
        with open(tmp_path / "filler", "wb") as file, pytest.raises(OSError, match="No space"):
            file.write(bytes(1 << 20))
        with pytest.raises(CumuloError) as error:
            bench.start("full")
        assert error.value.code == "storage_full"
        assert bench.look("full-0-0-0") is None
        (tmp_path / "filler").unlink()
        assert bench.run("full", "true", runtime="sandbox")[0].exit_code == 0
        bench.engine.close()
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
