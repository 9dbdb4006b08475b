"""Whose a run is, and what it finds around it: uid, home, files, folders, variables. Real processes."""

import os
import stat

import pytest

from cumulo.domain.instance import Identity
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.domain.sharing import SharingMode, Slice, whole_devices
from cumulo.engines.local.accounts import ROOTS_UID
from tests.engines.conftest import ROOT, SOMEBODY, SOMEBODY_ELSE, needs_root


def somebody(uid, **more):
    return Identity(name=f"user{uid}", uid=uid, gid=uid, **more)


def outputs(bench, run):
    return bench.root / "runs" / run / "0" / "outputs"


def variables(log):
    return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)


# --- whose ------------------------------------------------------------------------------------------------------------


@needs_root
def test_a_run_has_its_persons_uid_and_groups_and_owns_its_files(bench, runtime):
    identity = Identity(name="u", uid=SOMEBODY, gid=4300, groups=(4300, 4400))
    seen, log = bench.run("own", "id -u; id -g; id -G; touch $CUMULO_OUTPUT_DIR/made", identity=identity)
    assert seen.reason is EndReason.SUCCEEDED
    assert log.split() == ["4242", "4300", "4300", "4400"]
    info = (outputs(bench, "own") / "made").stat()
    assert (info.st_uid, info.st_gid) == (SOMEBODY, 4300)


@needs_root
def test_nobody_reads_what_another_has_made(bench, runtime):
    bench.run("mine", "echo secret > $CUMULO_OUTPUT_DIR/file; echo secret > file", identity=somebody(SOMEBODY))
    for path in (outputs(bench, "mine") / "file", bench.root / "areas/mine-0-0-0/workdir/file"):
        assert path.read_text() == "secret\n"
        seen, log = bench.run(
            f"theirs-{path.parent.name}", f"cat {path}; ls {path.parent}", identity=somebody(SOMEBODY_ELSE)
        )
        assert seen.reason is EndReason.FAILED
        assert "secret" not in log


@needs_root
def test_roots_own_runs_have_no_rights_in_a_sandbox_and_all_without(bench, runtime):
    _, log = bench.run("root", "id -u; grep CapEff /proc/self/status", identity=Identity(name="root", uid=0))
    uid, _, capabilities = log.split()
    if runtime == "sandbox":
        assert (int(uid), int(capabilities, 16)) == (ROOTS_UID, 0)
    else:
        assert uid == "0"


@needs_root
def test_an_account_that_is_not_there_is_a_sentence(bench):
    seen, _ = bench.run("nobody", "true", identity=Identity(name="ghost", uid=54321))
    assert seen.reason is EndReason.START_FAILED
    assert "uid 54321 (ghost) has no account on this node" in seen.message


@needs_root
def test_a_closed_door_on_the_way_is_a_sentence(bench):
    bench.root.parent.chmod(0o700)
    seen, _ = bench.run("door", "true")
    assert seen.reason is EndReason.START_FAILED
    assert f"can't reach its folders below {bench.root.parent}" in seen.message


@pytest.mark.skipif(ROOT, reason="needs an ordinary user")
def test_an_ordinary_users_server_refuses_other_uids(bench):
    seen, _ = bench.run("other", "true", identity=somebody(os.getuid() + 1))
    assert seen.reason is EndReason.START_FAILED
    assert "this server is not root" in seen.message


def test_an_unknown_runtime_is_a_sentence(bench):
    seen, _ = bench.run("vm", "true", runtime="vm")
    assert (seen.reason, seen.message) == (
        EndReason.START_FAILED,
        "this node has no runtime 'vm'; it has sandbox, process",
    )


# --- where ------------------------------------------------------------------------------------------------------------


def test_home_and_tmp_can_be_written(bench, runtime):
    seen, log = bench.run("home", "mkdir -p $HOME/.cache/x && touch $HOME/.cache/x/y $TMPDIR/z-$$ && echo $HOME")
    assert seen.reason is EndReason.SUCCEEDED, log
    if runtime == "sandbox":
        assert log.strip().startswith(str(bench.root / "homes"))


def test_a_scratch_home_is_kept_for_the_next_run(sandboxed):
    sandboxed.run("first", "echo kept > ~/file")
    assert sandboxed.run("second", "cat ~/file")[1] == "kept\n"


def test_checkpoints_outlive_an_attempt_and_workdirs_do_not(bench, runtime):
    bench.run("ck", "echo 1 > $CUMULO_CHECKPOINT_DIR/step; echo 1 > step")
    seen, log = bench.run(
        "ck", "cat $CUMULO_CHECKPOINT_DIR/step; ls; echo $CUMULO_ATTEMPT", instance_id="ck-0-1-0", attempt=1
    )
    assert log == "1\n1\n", seen


def test_a_dev_run_finds_its_workdir_again_and_waits_without_a_command(bench, runtime):
    name = bench.start("dev", "", dev=True)
    bench.until(name, InstanceState.RUNNING)
    (bench.root / "runs/dev/0/workdir-0/note").write_text("mine")
    bench.engine.stop(name, 5.0, 1)
    bench.end(name)
    _, log = bench.run("dev", "cat note", dev=True, instance_id="dev-0-1-0", attempt=1)
    assert log == "mine"


def test_a_sandbox_shows_nothing_of_the_node(sandboxed):
    root = sandboxed.root
    _, log = sandboxed.run("hidden", f"ls {root} {root}/areas; touch {root}/written {root}/areas/written")
    assert "instances" not in log
    assert "epoch" not in log
    assert "hidden-0-0-0" in log
    assert not list(root.rglob("written"))


# --- mounts -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(node_root):
    """A folder of the run's own account, outside the node."""
    folder = node_root.parent / "data"
    folder.mkdir(mode=0o755)
    (folder / "in").write_text("words\n")
    if ROOT:
        os.chown(folder, SOMEBODY, SOMEBODY)
    return folder


def test_a_mount_is_read_and_written_by_its_owner(bench, runtime, data):
    seen, log = bench.run("mount", f"cat {data}/in; echo out > {data}/out", mounts=(str(data),))
    assert (seen.reason, log) == (EndReason.SUCCEEDED, "words\n"), seen
    assert (data / "out").stat().st_uid == (SOMEBODY if ROOT else os.getuid())


def test_a_sandbox_has_its_own_tmp_where_no_mount_is_named(sandboxed, data):
    _, log = sandboxed.run("no-mount", f"ls {data} || ls /tmp")
    assert "words" not in log
    assert "data" not in log.splitlines()


@needs_root
def test_a_folder_that_somebody_may_swap_is_mounted_with_what_holds_it(sandboxed, data):
    """Between our look and root's bind its owner could put a link in the place of `inner`."""
    inner = data / "inner"
    inner.mkdir()
    os.chown(inner, SOMEBODY, SOMEBODY)
    seen, log = sandboxed.run("swap", f"cat {data}/in; touch {inner}/x", mounts=(str(inner),))
    assert (seen.reason, log) == (EndReason.SUCCEEDED, "words\n"), seen


@needs_root
def test_a_mount_that_may_not_be_read_is_refused(bench, runtime, data):
    data.chmod(0o700)
    seen, _ = bench.run("forbidden", "true", mounts=(str(data),), identity=somebody(SOMEBODY_ELSE))
    assert seen.reason is EndReason.START_FAILED
    assert "may not be read" in seen.message


def test_a_mount_that_is_not_there_is_refused(bench, runtime):
    seen, _ = bench.run("missing", "true", mounts=("/no/such/folder",))
    assert seen.reason is EndReason.START_FAILED
    assert "the mount /no/such/folder (/no/such/folder) is not there" in seen.message


@needs_root
def test_the_real_home_comes_with_a_mount_of_it(sandboxed, data):
    identity = somebody(SOMEBODY, home=str(data))
    seen, log = sandboxed.run("tilde", "echo $HOME; echo x > ~/from-run", mounts=("~",), identity=identity)
    assert (seen.reason, log.strip()) == (EndReason.SUCCEEDED, str(data)), seen
    assert (data / "from-run").stat().st_uid == SOMEBODY


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_are_there_and_belong_to_the_run(bench, runtime):
    tree = bench.blobs.tree({"run.sh": "#!/bin/sh\ncat data/words", "data/words": "hello\n"})
    extra = bench.blobs.tree({"more": "there\n"})
    seen, log = bench.run(
        "files", "./run.sh; cat lib/deep/more; echo >> data/words", files=((".", tree), ("lib/deep", extra))
    )
    assert (seen.reason, log) == (EndReason.SUCCEEDED, "hello\nthere\n"), seen
    workdir = bench.root / "areas/files-0-0-0/workdir"
    for path in (workdir / "run.sh", workdir / "data", workdir / "lib/deep/more"):
        assert path.stat().st_uid == (SOMEBODY if ROOT else os.getuid())
    assert stat.S_IMODE((workdir / "run.sh").stat().st_mode) == 0o755


def test_a_missing_blob_is_a_sentence(bench):
    tree = bench.blobs.tree({"a": "content"})
    del bench.blobs[next(digest for digest, data in bench.blobs.items() if data == b"content")]
    seen, _ = bench.run("lost", "true", files=((".", tree),))
    assert seen.reason is EndReason.START_FAILED
    assert "the content of a is no longer stored" in seen.message


def test_a_missing_manifest_is_a_sentence(bench):
    seen, _ = bench.run("lost", "true", files=((".", "0" * 64),))
    assert seen.reason is EndReason.START_FAILED
    assert "no longer stored" in seen.message


@pytest.mark.parametrize("target", ["../out", "/etc/cumulo", "a/../../b", "~/x"])
def test_files_stay_in_the_workdir(bench, target):
    seen, _ = bench.run("out", "true", files=((target, bench.blobs.tree({"a": "x"})),))
    assert seen.reason is EndReason.START_FAILED
    assert "can't be placed" in seen.message
    assert not (bench.root / "areas/out").exists()


# --- variables --------------------------------------------------------------------------------------------------------


def test_the_environment_is_clean(bench, runtime, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    bench.restart()
    _, log = bench.run("clean", "env")
    found = variables(log)
    assert "SECRET_OF_THE_SERVER" not in found
    assert not [name for name in found if name.startswith(("PIP_", "UV_"))]
    assert (found["LANG"], found["PYTHONUNBUFFERED"]) == ("C.UTF-8", "1")


def test_a_run_knows_itself(bench, runtime):
    uuids = ("GPU-EMULATED-1", "GPU-EMULATED-2")
    _, log = bench.run(
        "self",
        "env",
        slices=whole_devices(uuids),
        peers=("10.0.0.1", "10.0.0.2"),
        rank=1,
        array_index=7,
        env={"MINE": "a 'quoted' $word", "CUMULO_RANK": "spoofed"},
    )
    found = variables(log)
    expected = {
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "CUMULO_GPUS_PER_NODE": "2",
        "CUMULO_NUM_NODES": "2",
        "CUMULO_RANK": "1",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "SKYPILOT_NODE_RANK": "1",
        "CUMULO_ARRAY_INDEX": "7",
        "CUMULO_RUN_NAME": "self",
        "MINE": "a 'quoted' $word",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "LOCAL_RANK" not in found
    assert "10.0.0.1\n10.0.0.2\n" in log


def test_a_run_knows_its_part_of_a_gpu(bench):
    part = Slice(device_uuid="GPU-EMULATED-1", mode=SharingMode.MPS, milli=250, memory_bytes=20 << 30)
    _, log = bench.run("part", "env", slices=(part,))
    found = variables(log)
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUMULO_GPUS_PER_NODE"]) == ("GPU-EMULATED-1", "1")
    told = found["CUMULO_GPU_MILLI"], found["CUMULO_GPU_MEMORY"], found["CUMULO_GPU_SHARING"]
    assert told == ("250", str(20 << 30), "mps")


def test_a_run_without_gpus_sees_none(bench):
    _, log = bench.run("cpu", 'echo "[$CUDA_VISIBLE_DEVICES]"')
    assert log == "[]\n"


def test_python_is_there_by_both_names(bench, runtime):
    seen, log = bench.run("python", "python3 -c 'print(1)'; python -c 'print(2)'")
    assert log == "1\n2\n", seen
