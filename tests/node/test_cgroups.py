"""Cgroups against copies of their file interface (v2, and v1 as hybrid machines have it), and for real where we may."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cumulo.node import cgroups, instances
from cumulo.node.cgroups import CgroupPlan, claim
from cumulo.node.supervisor import Cgroup

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"
V1 = """31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"""


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Path]:
    """Builds a root with these mounts, our own cgroups, and these cgroup folders with their controllers and pids."""

    def build(*, mounts: str, own: str, folders: dict[str, tuple[str, str]]) -> Path:
        proc = tmp_path / "proc/self"
        proc.mkdir(parents=True)
        (proc / "mountinfo").write_text(mounts)
        (proc / "cgroup").write_text(own)
        for name, (controllers, pids) in folders.items():
            folder = tmp_path / "sys/fs/cgroup" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cgroup.controllers").write_text(controllers)
            (folder / "cgroup.subtree_control").write_text("")
            (folder / "cgroup.procs").write_text(pids)
        return tmp_path

    return build


def furnish(place: Path) -> None:
    """The files that the kernel puts into a new cgroup, and a cgroup that the run made below its own."""
    (place / "child").mkdir(parents=True)
    for name in ("cgroup.procs", "cgroup.kill", "memory.max", "cpu.max", "cpu.weight", "child/cgroup.procs"):
        (place / name).write_text("")


def test_v2_delegated_to_us(machine):
    scope = "user.slice/user-1001.slice/user@1001.service/cumulo.scope"
    root = machine(
        mounts=V2,
        own=f"0::/{scope}",
        folders={"": ("cpu io memory pids", "1"), scope: ("cpu memory pids", str(os.getpid()))},
    )
    claimed = claim(root)
    base = root / "sys/fs/cgroup" / scope
    assert claimed.version == 2
    assert set(claimed.parents.values()) == {base / "cumulo"}
    assert (base / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (base / "cumulo/cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert [entry.enforced for entry in claimed.report] == [True, True, True]


def test_v2_where_our_own_cgroup_refuses(machine):
    """As when it holds processes that are not ours: root takes the top of the tree."""
    session = "user.slice/session-1.scope"
    root = machine(
        mounts=V2, own=f"0::/{session}", folders={"": ("cpu memory pids", "1"), session: ("cpu memory pids", "7")}
    )
    (root / "sys/fs/cgroup" / session / "cumulo").write_text("in the way")
    assert claim(root).parents["memory"] == root / "sys/fs/cgroup/cumulo"


def test_v2_where_nothing_may_be_made(machine):
    root = machine(mounts=V2, own="0::/", folders={"": ("cpu memory pids", "1")})
    (root / "sys/fs/cgroup/cumulo").write_text("in the way")
    claimed = claim(root)
    assert claimed.version == 0
    assert [entry.enforced for entry in claimed.report] == [False] * 3
    assert "systemd-run --user --scope -p Delegate=yes cumulo up" in claimed.report[0].remark
    assert claimed.plan("i", memory_bytes=1 << 30, cpus_milli=1000, pids_max=10) == CgroupPlan()


def test_v2_with_a_controller_missing(machine):
    root = machine(mounts=V2, own="0::/", folders={"": ("memory pids", "1")})
    report = {entry.limit: entry for entry in claim(root).report}
    assert report["memory"].enforced
    assert not report["cpu"].enforced
    assert "delegate" in report["cpu"].remark


def test_v2_steps_aside_where_the_cgroup_is_ours_alone(machine):
    root = machine(mounts=V2, own="0::/ours", folders={"ours": ("memory", str(os.getpid()))})
    base = root / "sys/fs/cgroup/ours"
    assert cgroups._step_aside(base)
    assert (base / "cumulo-server/cgroup.procs").read_text() == str(os.getpid())


def test_v2_does_not_move_others(machine):
    root = machine(
        mounts=V2, own="0::/theirs", folders={"": ("memory", ""), "theirs": ("memory", f"{os.getpid()}\n1\n")}
    )
    assert not cgroups._step_aside(root / "sys/fs/cgroup/theirs")


def test_v2_plan(machine):
    root = machine(mounts=V2, own="0::/", folders={"": ("cpu cpuset memory pids", "1")})
    plan = claim(root).plan("run-1", cpus_milli=2500, memory_bytes=1 << 30, pids_max=512, cpuset="0-3")
    place = str(root / "sys/fs/cgroup/cumulo/run-1")
    assert plan.dirs == (place,)
    assert {path.removeprefix(place + "/"): value for path, value, required in plan.writes if required} == {
        "memory.max": "1073741824",
        "cpu.max": "250000 100000",
        "pids.max": "512",
        "cpuset.cpus": "0-3",
    }
    assert (place + "/memory.swap.max", "0", False) in plan.writes
    assert CgroupPlan.from_json(plan.to_json()) == plan


def test_v1_below_our_own_cgroups(machine):
    root = machine(
        mounts=V1,
        own="5:cpu,cpuacct:/\n4:memory:/batch/job\n3:pids:/gone\n0::/",
        folders={"cpu,cpuacct": ("", ""), "memory/batch/job": ("", ""), "pids": ("", ""), "unified": ("", "")},
    )
    claimed = claim(root)
    top = root / "sys/fs/cgroup"
    assert claimed.version == 1
    assert claimed.parents["memory"] == top / "memory/batch/job/cumulo"
    assert claimed.parents["cpu"] == claimed.parents["cpuacct"] == top / "cpu,cpuacct/cumulo"
    assert claimed.parents["pids"] == top / "pids/cumulo"  # the mount does not show ours, as in a container
    plan = claimed.plan("i", cpus_milli=500, memory_bytes=1 << 20)
    assert plan.dirs == tuple(str(claimed.parents[name] / "i") for name in ("memory", "cpu", "pids"))
    values = {Path(path).name: value for path, value, _ in plan.writes}
    assert values == {
        "memory.limit_in_bytes": "1048576",
        "memory.memsw.limit_in_bytes": "1048576",
        "cpu.shares": "512",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "50000",
    }


def test_no_cgroups_at_all(machine):
    claimed = claim(machine(mounts="", own="", folders={}))
    assert claimed.version == 0
    assert claimed.report[0].remark == "the kernel offers no cgroup controller 'memory' here"


def test_an_instance_lives_in_a_copy_of_v2(bench, machine):
    """The supervisor's part: makes the cgroup, writes the limits, joins, and reads what it is told at the end."""
    root = machine(mounts=V2, own="0::/", folders={"": ("cpu memory pids", "1")})
    root.chmod(0o755)
    bench.cgroups = claim(root)
    folder = bench.prepare("sleep 0.3; exit 3", limits={"memory_bytes": 1 << 30, "cpus_milli": 1500})
    place = Path(instances.read_cgroup(folder).dirs[0])
    furnish(place)
    bench.spawner.start(folder)
    bench.running(folder)
    assert (place / "memory.max").read_text() == str(1 << 30)
    assert (place / "cpu.max").read_text() == "150000 100000"
    assert (place / "child/cgroup.procs").read_text() == ""
    joined = (place / "cgroup.procs").read_text()
    assert joined == "0"  # "myself", as the kernel reads it
    (place / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    (place / "memory.peak").write_text("4096\n")
    (place / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    record = bench.end(folder)
    assert (record.exit_code, record.oom, record.max_memory_bytes, record.cpu_seconds) == (3, True, 4096, 2.5)


def test_v2_kills_at_once(machine):
    root = machine(mounts=V2, own="0::/", folders={"": ("memory", "1")})
    group = Cgroup(claim(root).plan("i", memory_bytes=1 << 20).to_json())
    furnish(root / "sys/fs/cgroup/cumulo/i")
    group.create()
    group.seal()
    assert (root / "sys/fs/cgroup/cumulo/i/cgroup.kill").read_text() == "1"


def test_v2_usage(machine):
    root = machine(mounts=V2, own="0::/", folders={"": ("cpu memory", "1")})
    plan = claim(root).plan("i", memory_bytes=1 << 20)
    place = Path(plan.dirs[0])
    place.mkdir()
    (place / "memory.current").write_text("1000\n")
    (place / "memory.stat").write_text("anon 600\ninactive_file 400\n")
    (place / "cpu.stat").write_text("usage_usec 1500000\n")
    (place / "cgroup.procs").write_text("7\n8\n0\n")
    usage = cgroups.group_usage(plan)
    assert usage is not None
    assert (usage.memory_bytes, usage.cpu_seconds, usage.pids) == (600, 1.5, (7, 8))


def test_sweep_removes_what_is_empty_and_not_kept(machine):
    root = machine(mounts=V2, own="0::/", folders={"": ("memory", "1")})
    claimed = claim(root)
    parent = claimed.parents["memory"]
    for name in ("kept", "left", "busy"):
        (parent / name).mkdir()
    (parent / "busy/child").write_text("a living cgroup refuses rmdir, as does this")
    assert claimed.sweep(keep={"kept"}) == 1
    assert sorted(path.name for path in parent.iterdir() if path.is_dir()) == ["busy", "kept"]


def test_real_limits_hold(bench, enforcing):
    folder = bench.launch("sleep 300", limits={"memory_bytes": 64 << 20, "cpus_milli": 500, "pids_max": 33})
    payload = bench.running(folder).state.payload_pid
    plan = instances.read_cgroup(folder)
    for path, value, required in plan.writes:
        assert not required or Path(path).read_text().strip() == value
    for path in plan.dirs:
        assert str(payload) in Path(path, "cgroup.procs").read_text().split()


def test_real_cpu_limit_slows(bench, enforcing):
    record = bench.run("timeout 1 sh -c 'while :; do :; done'; exit 0", limits={"cpus_milli": 200})
    assert record.cpu_seconds < 0.5
