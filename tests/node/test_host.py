import os
import platform
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.quantities import GIB
from cumulo.node.host import NumaNode, boot_id, parse_cpu_list, read_host


class Machine:
    """Another machine's /proc and /sys under a folder."""

    def __init__(self, root: Path) -> None:
        self.proc, self.sysfs = root / "proc", root / "sys"
        self.write("proc/meminfo", f"MemTotal: {64 * GIB // 1024} kB\nMemFree: 1 kB\n")

    def write(self, path: str, text: str) -> None:
        file = self.proc.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def memory(self) -> int:
        return read_host(proc=self.proc, sysfs=self.sysfs).memory_bytes

    def cpus_milli(self) -> int:
        return read_host(proc=self.proc, sysfs=self.sysfs).cpus_milli


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


ALL_CPUS = 1000 * len(os.sched_getaffinity(0))


def test_this_machine() -> None:
    host = read_host()
    assert host.hostname == socket.gethostname()
    assert host.kernel == platform.release()
    assert host.cpus == os.sched_getaffinity(0)
    assert 0 < host.cpus_milli <= 1000 * len(host.cpus)
    assert 0 < host.memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert host.boot_id == boot_id() != ""


def test_without_limits_everything_is_usable(machine: Machine) -> None:
    assert (machine.memory(), machine.cpus_milli()) == (64 * GIB, ALL_CPUS)


def test_a_kernel_that_tells_nothing(tmp_path: Path) -> None:
    host = read_host(proc=tmp_path / "proc", sysfs=tmp_path / "sys")
    assert (host.boot_id, host.memory_bytes, host.numa_nodes) == ("", 0, ())


def test_the_least_limit_up_the_v2_tree_counts(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/system.slice/cumulo.service\n")
    machine.write("sys/fs/cgroup/system.slice/cumulo.service/memory.max", "max\n")
    machine.write("sys/fs/cgroup/system.slice/cumulo.service/cpu.max", "50000 100000\n")
    machine.write("sys/fs/cgroup/system.slice/memory.max", f"{8 * GIB}\n")
    machine.write("sys/fs/cgroup/system.slice/cpu.max", "max 100000\n")
    assert (machine.memory(), machine.cpus_milli()) == (8 * GIB, 500)


def test_in_a_container_the_root_of_the_tree_is_ours(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/docker/0123456789ab\n")
    machine.write("sys/fs/cgroup/memory.max", f"{2 * GIB}\n")
    machine.write("sys/fs/cgroup/cpu.max", "25000 100000\n")
    assert (machine.memory(), machine.cpus_milli()) == (2 * GIB, 250)


def test_v1_controllers(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "5:memory:/box\n4:cpu,cpuacct:/box\n1:name=systemd:/\n0::/\n")
    machine.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", f"{4 * GIB}\n")
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    machine.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "10000\n")
    machine.write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n")
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert (machine.memory(), machine.cpus_milli()) == (4 * GIB, 100)


def test_a_limit_above_what_the_machine_has_is_no_limit(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/\n")
    machine.write("sys/fs/cgroup/memory.max", f"{900 * GIB}\n")
    machine.write("sys/fs/cgroup/cpu.max", "100000000 100000\n")
    assert (machine.memory(), machine.cpus_milli()) == (64 * GIB, ALL_CPUS)


def test_numa_nodes_show_the_cpus_that_may_be_used(machine: Machine) -> None:
    first = min(os.sched_getaffinity(0))
    for node, cpus in (("node10", f"{first}"), ("node2", "4000-4003")):
        machine.write(f"sys/devices/system/node/{node}/cpulist", cpus + "\n")
        machine.write(f"sys/devices/system/node/{node}/meminfo", "Node 0 MemTotal:  2048 kB\nNode 0 MemFree: 1 kB\n")
    machine.write("sys/devices/system/node/possible", "0-10\n")
    assert read_host(proc=machine.proc, sysfs=machine.sysfs).numa_nodes == (
        NumaNode(id=2, cpus=frozenset(), memory_bytes=2048 * 1024),
        NumaNode(id=10, cpus=frozenset({first}), memory_bytes=2048 * 1024),
    )


@pytest.mark.parametrize(("text", "cpus"), [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("0,2-2", {0, 2})])
def test_cpu_lists(text: str, cpus: set[int]) -> None:
    assert parse_cpu_list(text) == cpus


@given(st.frozensets(st.integers(0, 512)))
def test_a_cpu_list_one_by_one(cpus: frozenset[int]) -> None:
    assert parse_cpu_list(",".join(map(str, sorted(cpus)))) == cpus


def test_what_is_no_cpu_list() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpu_list("all")
