"""What this machine is: CPUs and memory that may be given away, NUMA nodes, kernel, and which boot this is.

A container or a cgroup may allow less than the machine has; what is reported is what is usable. Roots are arguments so
that tests can stand another machine in their place.
"""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """CPUs and memory near one another. `cpus` are those that may be used here."""

    id: int
    cpus: frozenset[int]
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """This machine as far as it may be used. `cpus_milli` counts a CPU quota of a container too."""

    hostname: str
    kernel: str
    boot_id: str
    cpus: frozenset[int]
    cpus_milli: int
    memory_bytes: int
    numa_nodes: tuple[NumaNode, ...]


def read_host(*, proc: Path = Path("/proc"), sysfs: Path = Path("/sys")) -> Host:
    """Reads this machine. What the kernel does not tell is left out; nothing is raised for it."""
    cpus = frozenset(os.sched_getaffinity(0))
    quota = _cpu_quota_milli(proc, sysfs)
    limits = [limit for limit in (_total_memory(proc), _memory_limit(proc, sysfs)) if limit is not None]
    name = os.uname()
    return Host(
        hostname=name.nodename,
        kernel=name.release,
        boot_id=boot_id(proc=proc),
        cpus=cpus,
        cpus_milli=min(1000 * len(cpus), quota or 1000 * len(cpus)),
        memory_bytes=min(limits, default=0),
        numa_nodes=_numa_nodes(sysfs, cpus),
    )


def boot_id(*, proc: Path = Path("/proc")) -> str:
    """The kernel's id of this boot; what ran under another one is gone. Empty where the kernel does not tell."""
    return _read(proc / "sys/kernel/random/boot_id")


def parse_cpu_list(text: str) -> frozenset[int]:
    """`0-3,8` as the kernel writes it. Raises ValueError if it is none."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def _total_memory(proc: Path) -> int | None:
    for line in _read(proc / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def _memory_limit(proc: Path, sysfs: Path) -> int | None:
    """The least memory limit of this process's cgroup and those above it; None if there is none."""
    folders = [(folder, "memory.max") for folder in _cgroups(proc, sysfs, "")]
    folders += [(folder, "memory.limit_in_bytes") for folder in _cgroups(proc, sysfs, "memory")]
    return min((limit for folder, file in folders if (limit := _number(_read(folder / file)))), default=None)


def _cpu_quota_milli(proc: Path, sysfs: Path) -> int | None:
    """The least CPU quota of this process's cgroup and those above it; None if there is none."""
    quotas: list[int] = []
    for folder in _cgroups(proc, sysfs, ""):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        quotas += _milli(_number(quota), _number(period))
    for folder in _cgroups(proc, sysfs, "cpu"):
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        quotas += _milli(_number(quota), _number(period))
    return min(quotas, default=None)


def _milli(quota: int | None, period: int | None) -> list[int]:
    return [max(1, 1000 * quota // period)] if quota and period else []


def _cgroups(proc: Path, sysfs: Path, controller: str) -> list[Path]:
    """This process's cgroup of a v1 controller ("" is the v2 hierarchy) and all above it that can be seen."""
    mount = sysfs / "fs/cgroup" / controller
    for line in _read(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            folder = mount / path.lstrip("/")
            # In a container the path may be one of the host that is not mounted here: the root then is ours.
            inside = [folder, *folder.parents]
            return [each for each in inside if each == mount or mount in each.parents]
    return []


def _numa_nodes(sysfs: Path, usable: frozenset[int]) -> tuple[NumaNode, ...]:
    nodes = []
    for folder in (sysfs / "devices/system/node").glob("node[0-9]*"):
        number = int(folder.name.removeprefix("node"))
        try:
            cpus = parse_cpu_list(_read(folder / "cpulist")) & usable
        except ValueError:
            continue
        nodes.append(NumaNode(id=number, cpus=cpus, memory_bytes=_node_memory(folder)))
    return tuple(sorted(nodes, key=lambda node: node.id))


def _node_memory(folder: Path) -> int | None:
    for line in _read(folder / "meminfo").splitlines():
        if "MemTotal:" in line:
            return int(line.split()[-2]) * 1024
    return None


def _number(text: str) -> int | None:
    """None for `max`, -1, and v1's way to say that there is no limit (a number near 2**63)."""
    return int(text) if text.isdecimal() and int(text) < 1 << 62 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
