"""What the sandbox fences, seen from inside it."""

import os
from pathlib import Path

import pytest

from cumulo.node import instances, processes
from cumulo.node.runtimes import SandboxRuntime, StageRequest

AS_ROOT = os.geteuid() == 0
UID = 4242 if AS_ROOT else os.geteuid()


@pytest.fixture
def see(bench, sandbox):
    """Runs a script in a sandbox: (output, exit record)."""

    def run(script, **options):
        folder = bench.launch(script, runtime=sandbox, **options)
        record = bench.end(folder)
        return bench.log(folder).decode(), record

    return run


@pytest.fixture
def place(node_root):
    """A folder of the run's user."""
    folder = node_root / "place"
    folder.mkdir()
    if AS_ROOT:
        os.chown(folder, UID, UID)
    return folder


def test_it_sees_no_other_process(see):
    output, _ = see("ls /proc | grep -c '^[0-9]'; cat /proc/1/comm; kill -0 $PPID && echo $PPID")
    count, first, *_ = output.split()
    assert int(count) < 8
    assert first == "bwrap"


def test_it_has_no_rights(see):
    output, _ = see("grep -E '^(CapInh|CapPrm|CapEff|CapAmb|CapBnd|NoNewPrivs)' /proc/self/status")
    rights = dict(line.replace(":", "").split() for line in output.splitlines())
    assert rights.pop("NoNewPrivs") == "1"
    assert set(rights.values()) == {"0" * 16}


def test_it_is_its_user(see):
    output, _ = see("id -u; id -g")
    assert output.split() == [str(UID), str(UID if AS_ROOT else os.getegid())]


def test_groups_of_the_user_are_kept(see):
    if not AS_ROOT:
        pytest.skip("needs root")
    output, _ = see("id -G", request={"groups": (4243, 4244)}, groups=(4243, 4244))
    assert sorted(output.split()) == ["4242", "4243", "4244"]


def test_nothing_outside_can_be_written(see):
    output, _ = see(
        "for d in / /etc /usr /home /var /sys /proc/sys; do touch $d/x 2>/dev/null && echo $d; done; echo done"
    )
    assert output == "done\n"


def test_its_folders_and_mounts_can_be_written_and_are_its_users(see, place):
    mount = place / "data"
    mount.mkdir()
    os.chown(mount, UID, -1)
    _, record = see(
        f"echo a > {place}/a && echo b > {mount}/b", request={"writable": (str(place),), "mounts": (str(mount),)}
    )
    assert record.exit_code == 0
    assert (place / "a").stat().st_uid == (mount / "b").stat().st_uid == UID


def test_tmp_is_private(see, node_root):
    secret = Path("/tmp") / f"cumulo-test-secret-{os.getpid()}"
    secret.write_text("x")
    try:
        output, record = see(f"ls -a /tmp | wc -l; test -e {secret}; echo $?; echo y > /tmp/own && cat /tmp/own")
        assert output.split() == ["2", "1", "y"]
        assert record.exit_code == 0
        assert not Path("/tmp/own").exists()
    finally:
        secret.unlink()


def test_tmp_may_be_a_folder_on_disk(see, place):
    see("echo x > /tmp/kept", request={"tmp_folder": str(place)})
    assert (place / "kept").read_text() == "x\n"


def test_tmp_may_be_limited(see):
    output, _ = see(
        "head -c 3000000 /dev/zero > /tmp/big; ls -s /tmp/big | cut -d' ' -f1", request={"tmp_bytes": 1 << 20}
    )
    assert "No space left" in output
    assert int(output.split()[-1]) <= 1024


def test_shared_memory_can_be_used(see):
    assert see("echo x > /dev/shm/x && cat /dev/shm/x")[0] == "x\n"


def test_hidden_folders_are_empty_but_for_what_is_put_back(see, place):
    for name in ("mine", "others"):
        (place / name).mkdir()
        (place / name / "file").write_text(name)
    output, _ = see(
        f"ls {place}; cat {place}/mine/file", request={"hidden": (str(place),), "read_only": (str(place / "mine"),)}
    )
    assert output == "mine\nmine"


def test_only_the_given_devices_are_there(see):
    output, _ = see("ls /dev")
    assert "null" in output
    assert "vda" not in output
    assert "kmsg" not in output
    output, _ = see("ls -l /dev/kmsg", request={"device_nodes": ("/dev/kmsg",)})
    assert output.startswith("c")


def test_host_name(see):
    assert see("cat /proc/sys/kernel/hostname", request={"hostname": "unit-3"})[0] == "unit-3\n"


def test_folders_below_closed_ones_can_be_used(see, node_root):
    """As a Python under /root, or the workdir below the server's state folder."""
    if not AS_ROOT:
        pytest.skip("needs root")
    inner = node_root / "closed" / "way" / "inner"
    inner.mkdir(parents=True)
    for folder in (node_root / "closed", node_root / "closed" / "way"):
        folder.chmod(0o700)
    (inner / "file").write_text("here")
    (node_root / "closed" / "secret").write_text("x")
    output, _ = see(f"cat {inner}/file; ls {node_root}/closed", request={"read_only": (str(inner),)})
    assert output == "hereway\n"


def test_the_environment_is_exactly_what_was_asked_for(see):
    hard = {"QUOTES": 'it\'s "so" $HOME `id`\nnext', "EMPTY": "", "UMLAUT": "ü"}
    output, _ = see("env -0 | tr '\\0' '|'", env=hard)
    told = dict(entry.split("=", 1) for entry in output.split("|") if entry)
    assert {name: told[name] for name in hard} == hard
    assert set(told) - set(hard) == {"PATH", "CUMULO_INSTANCE_ID", "PWD"}


def test_a_variable_no_shell_can_set_is_refused():
    with pytest.raises(ValueError, match=r"'spark\.executor' cannot be set"):
        SandboxRuntime().stage("running", StageRequest(argv=("true",), env={"spark.executor": "1"}, cwd="/"))


def test_nothing_a_person_chose_reaches_bubblewrap_or_argv(sandbox):
    """LD_PRELOAD would otherwise run code as root, and a secret in argv is there for all to read."""
    env = {"LD_PRELOAD": "/evil.so", "TOKEN": "s3cret", "CUMULO_INSTANCE_ID": "i"}
    stage = sandbox.stage("running", StageRequest(argv=("true",), env=env, cwd="/", uid=1001, gid=1001))
    assert stage.env.keys() == {"PATH", "CUMULO_INSTANCE_ID"}
    assert "s3cret" not in " ".join(stage.argv)
    assert "s3cret" in (stage.stdin or "")


def test_its_standard_input_is_empty(see):
    assert see("cat; echo end")[0] == "end\n"


def test_killing_bubblewrap_itself_still_ends_in_a_record(bench, sandbox):
    """Which by itself would leave the payload running."""
    folder = bench.launch("trap '' TERM; while :; do sleep 0.1; done", runtime=sandbox)
    payload = bench.running(folder).state.payload_pid
    os.kill(parent_of(parent_of(payload)), 9)
    record = bench.end(folder)
    assert (record.reason, record.signal) == ("finished", 9)
    assert bench.living(folder) == set()
    assert instances.look(folder).exit == record


def parent_of(pid):
    found = processes.stat(pid)
    assert found is not None
    return found.parent
