"""Limits on CPU, memory and processes through cgroups, v1 or v2: what this machine lets us enforce, said honestly.

`claim` finds out where we may make cgroups, prepares the parent of ours, and reports for each limit whether it is
enforced and, where not, how to get it. The supervisor makes and removes the cgroups of its instance from a
`CgroupPlan`; nothing here runs while an instance starts.

Everything goes below the cgroup that we run in ourselves, so that no limit on the server is escaped. In v2 a cgroup
that gives controllers to its children may hold no processes of its own (except the real root): where ours holds only
us, we step aside into a leaf; where it holds others too (a login session), root uses the top of the tree instead.

A CPU limit is a hard quota, and as much weight: cpus asked are cpus had, also on an idle machine, so that a run is as
fast tomorrow as today. Swap is forbidden with memory, best effort (a kernel may not count it).
"""

import contextlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cumulo.node.processes import Usage

Limit = Literal["memory", "cpu", "pids"]
LIMITS: tuple[Limit, ...] = ("memory", "cpu", "pids")
OURS = "cumulo"
ASIDE = "cumulo-server"
PERIOD_US = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """Whether a limit is enforced here; `remark` says by what, or why not and how to get it."""

    limit: Limit
    enforced: bool
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupPlan:
    """The part `cgroup` of the supervisor's spec.json: what to make and write, as documented there."""

    version: Literal[0, 1, 2] = 0
    dirs: tuple[str, ...] = ()
    writes: tuple[tuple[str, str, bool], ...] = ()
    memory_dir: str | None = None
    cpu_dir: str | None = None
    pids_dir: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "CgroupPlan":
        writes = tuple((path, value, required) for path, value, required in data["writes"])
        return cls(**{**data, "dirs": tuple(data["dirs"]), "writes": writes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """Where instances' cgroups go: for each controller the folder that is their parent (v2: one for all)."""

    version: Literal[0, 1, 2]
    parents: Mapping[str, Path]
    report: tuple[Enforcement, ...]

    def plan(
        self,
        instance_id: str,
        *,
        cpus_milli: int | None = None,
        memory_bytes: int | None = None,
        pids_max: int | None = None,
        cpuset: str | None = None,
    ) -> CgroupPlan:
        """Limits that are None, or not enforceable here, are left out. `cpuset` is a list as in "0-3,8"."""
        at = {controller: parent / instance_id for controller, parent in self.parents.items()}
        if cpuset is None:
            at.pop("cpuset", None)
        write = _v2_writes if self.version == 2 else _v1_writes
        writes = write(at, cpus_milli=cpus_milli, memory_bytes=memory_bytes, pids_max=pids_max, cpuset=cpuset)
        name = {controller: str(path) for controller, path in at.items()}
        return CgroupPlan(
            version=self.version,
            dirs=tuple(dict.fromkeys(name.values())),
            writes=writes,
            memory_dir=name.get("memory"),
            cpu_dir=name.get("cpu") if self.version == 2 else name.get("cpuacct"),
            pids_dir=name.get("pids"),
        )

    def sweep(self, keep: Collection[str]) -> int:
        """Remove the empty cgroups of instances not in `keep`; how many were removed. Living ones refuse."""
        removed = 0
        for parent in set(self.parents.values()):
            for child in parent.iterdir() if parent.is_dir() else ():
                if child.is_dir() and child.name not in keep:
                    removed += remove_tree(child)
        return removed

    def leave(self) -> None:
        """Remove the parents too, if nothing lives in them."""
        for parent in set(self.parents.values()):
            with contextlib.suppress(OSError):
                parent.rmdir()


def remove_tree(top: Path) -> bool:
    """Remove a cgroup and those below it; False where one is still in use."""
    for folder, _, _ in list(os.walk(top, topdown=False)):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _v1_writes(
    at: Mapping[str, Path],
    *,
    cpus_milli: int | None,
    memory_bytes: int | None,
    pids_max: int | None,
    cpuset: str | None,
) -> tuple[tuple[str, str, bool], ...]:
    writes: list[tuple[Path, str, bool]] = []
    if memory_bytes is not None and "memory" in at:
        writes.append((at["memory"] / "memory.limit_in_bytes", str(memory_bytes), True))
        writes.append((at["memory"] / "memory.memsw.limit_in_bytes", str(memory_bytes), False))
    if cpus_milli is not None and "cpu" in at:
        writes.append((at["cpu"] / "cpu.shares", str(max(2, cpus_milli * 1024 // 1000)), False))
        writes.append((at["cpu"] / "cpu.cfs_period_us", str(PERIOD_US), False))
        writes.append((at["cpu"] / "cpu.cfs_quota_us", str(max(1000, cpus_milli * PERIOD_US // 1000)), True))
    if pids_max is not None and "pids" in at:
        writes.append((at["pids"] / "pids.max", str(pids_max), True))
    if cpuset is not None and "cpuset" in at:
        # Both must be set before anybody can join, and neither is inherited.
        parent = at["cpuset"].parent
        memory_nodes = (parent / "cpuset.mems").read_text().strip()
        writes.append((at["cpuset"] / "cpuset.mems", memory_nodes, True))
        writes.append((at["cpuset"] / "cpuset.cpus", cpuset, True))
    return tuple((str(path), value, required) for path, value, required in writes)


def _v2_writes(
    at: Mapping[str, Path],
    *,
    cpus_milli: int | None,
    memory_bytes: int | None,
    pids_max: int | None,
    cpuset: str | None,
) -> tuple[tuple[str, str, bool], ...]:
    writes: list[tuple[Path, str, bool]] = []
    if memory_bytes is not None and "memory" in at:
        writes.append((at["memory"] / "memory.max", str(memory_bytes), True))
        writes.append((at["memory"] / "memory.swap.max", "0", False))
    if cpus_milli is not None and "cpu" in at:
        quota = max(1000, cpus_milli * PERIOD_US // 1000)
        writes.append((at["cpu"] / "cpu.weight", str(min(10_000, max(1, cpus_milli // 10))), False))
        writes.append((at["cpu"] / "cpu.max", f"{quota} {PERIOD_US}", True))
    if pids_max is not None and "pids" in at:
        writes.append((at["pids"] / "pids.max", str(pids_max), True))
    if cpuset is not None and "cpuset" in at:
        writes.append((at["cpuset"] / "cpuset.cpus", cpuset, True))
    return tuple((str(path), value, required) for path, value, required in writes)


# --- finding out ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    point: Path
    top: str  # which cgroup of the hierarchy the mount shows as its top
    controllers: frozenset[str]  # v1 only
    version: Literal[1, 2]


def claim(root: Path = Path("/"), *, name: str = OURS) -> Cgroups:
    """Prepare the parent cgroups and say what can be enforced. `root` is where /proc and /sys are looked for.

    `name` is the parents': two clouds on one machine need different ones, since each sweeps what it does not know.
    """
    mounts = _mounts(root)
    paths = _own_paths(root)
    unified = next((mount for mount in mounts if mount.version == 2), None)
    if unified is not None:
        own = _inside(unified, paths.get("", "/"))
        if set(LIMITS) & _words(own / "cgroup.controllers") or not any(mount.version == 1 for mount in mounts):
            return _claim_v2(unified, own, name)
    return _claim_v1([mount for mount in mounts if mount.version == 1], paths, name)


def _claim_v1(mounts: list[_Mount], paths: Mapping[str, str], name: str) -> Cgroups:
    parents: dict[str, Path] = {}
    refusals: dict[str, str] = {}
    for controller in (*LIMITS, "cpuacct", "cpuset"):
        mount = next((mount for mount in mounts if controller in mount.controllers), None)
        if mount is None:
            refusals[controller] = f"the kernel offers no cgroup controller '{controller}' here"
            continue
        parent = _inside(mount, paths.get(controller, "/")) / name
        try:
            parent.mkdir(exist_ok=True)
            if not os.access(parent, os.W_OK):
                raise PermissionError(13, "it belongs to somebody else")
            if controller == "cpuset":
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (parent / file).write_text((parent.parent / file).read_text())
        except OSError as error:
            refusals[controller] = f"{parent} cannot be made ({error.strerror}); start the server as root"
        else:
            parents[controller] = parent
    return _with_report(1, parents, refusals, how="cgroup v1")


def _claim_v2(mount: _Mount, own: Path, name: str) -> Cgroups:
    refusal = "no cgroup can be made"
    for base in dict.fromkeys((own, mount.point)):
        try:
            given = _enable(base, base / name)
        except OSError as error:
            refusal = (
                f"{base} cannot be used ({error.strerror}); start the server as root, or as "
                "`systemd-run --user --scope -p Delegate=yes cumulo up`"
            )
            continue
        missing = "the parent cgroup does not pass on this controller; delegate it (systemd: Delegate=yes)"
        refusals: dict[str, str] = {limit: missing for limit in LIMITS if limit not in given}
        return _with_report(2, dict.fromkeys(sorted(given), base / name), refusals, how="cgroup v2")
    return _with_report(2, {}, dict.fromkeys(LIMITS, refusal), how="cgroup v2")


def _enable(base: Path, ours: Path) -> set[str]:
    """Make `ours` below `base` with all controllers that `base` has; which those are. OSError where we may not."""
    wanted = _words(base / "cgroup.controllers") & {*LIMITS, "cpuset"}
    for folder in (base, ours):
        if folder == ours:
            ours.mkdir(exist_ok=True)
        more = wanted - _words(folder / "cgroup.subtree_control")
        if not more:
            continue
        text = " ".join(f"+{controller}" for controller in sorted(more))
        try:
            (folder / "cgroup.subtree_control").write_text(text)
        except OSError:
            if folder == ours or not _step_aside(base):
                raise
            (folder / "cgroup.subtree_control").write_text(text)
    return wanted


def _step_aside(base: Path) -> bool:
    """Move the processes of `base` into a leaf if they are only ours, or if `base` is the top of a container."""
    pids = _words(base / "cgroup.procs")
    container_top = not (base.parent / "cgroup.procs").exists() and (base / "cgroup.type").exists()
    if not pids or not (container_top or pids <= {str(os.getpid()), str(os.getppid())}):
        return False
    leaf = base / ASIDE
    leaf.mkdir(exist_ok=True)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (leaf / "cgroup.procs").write_text(pid)
    return True


def _with_report(
    version: Literal[1, 2], parents: Mapping[str, Path], refusals: Mapping[str, str], *, how: str
) -> Cgroups:
    report = tuple(
        Enforcement(
            limit=limit,
            enforced=limit in parents,
            remark=f"{how}, below {parents[limit]}" if limit in parents else refusals[limit],
        )
        for limit in LIMITS
    )
    return Cgroups(version=version if parents else 0, parents=parents, report=report)


def _mounts(root: Path) -> list[_Mount]:
    """The cgroup mounts of /proc/self/mountinfo. Fields: proc(5)."""
    found = []
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if kind[0] not in ("cgroup", "cgroup2"):
            continue
        point = root / fields[4].lstrip("/")
        controllers = frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset()
        version: Literal[1, 2] = 1 if kind[0] == "cgroup" else 2
        found.append(_Mount(point=point, top=fields[3], controllers=controllers, version=version))
    return found


def _own_paths(root: Path) -> dict[str, str]:
    """Controller → our cgroup's path in its hierarchy; "" is v2."""
    found = {}
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _inside(mount: _Mount, path: str) -> Path:
    """The folder of the cgroup `path`; the mount's top where the mount does not show it."""
    relative = path.removeprefix(mount.top.rstrip("/")).lstrip("/")
    folder = mount.point / relative
    return folder if ".." not in folder.parts and folder.is_dir() else mount.point


def _words(path: Path) -> set[str]:
    try:
        return set(path.read_text().split())
    except OSError:
        return set()


# --- reading ----------------------------------------------------------------------------------------------------------


def group_pids(plan: CgroupPlan) -> set[int]:
    """The processes in the instance's cgroups."""
    found: set[int] = set()
    for top in plan.dirs:
        for folder, _, _ in os.walk(top):
            found.update(map(int, _words(Path(folder, "cgroup.procs"))))
    return found - {0}  # which stands for processes that our pid namespace does not show


def group_usage(plan: CgroupPlan) -> Usage | None:
    """What the cgroups count: memory without reclaimable file cache. None where they do not count both."""
    if plan.memory_dir is None or plan.cpu_dir is None:
        return None
    memory, cpu = Path(plan.memory_dir), Path(plan.cpu_dir)
    try:
        if plan.version == 2:
            used = int((memory / "memory.current").read_text())
            cached = _field(memory / "memory.stat", "inactive_file")
            seconds = _field(cpu / "cpu.stat", "usage_usec") / 1e6
        else:
            used = int((memory / "memory.usage_in_bytes").read_text())
            cached = _field(memory / "memory.stat", "total_inactive_file")
            seconds = int((cpu / "cpuacct.usage").read_text()) / 1e9
    except OSError:
        return None
    return Usage(memory_bytes=max(0, used - cached), cpu_seconds=seconds, pids=tuple(sorted(group_pids(plan))))


def _field(path: Path, key: str) -> int:
    lines = path.read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(key + " ")), 0)
