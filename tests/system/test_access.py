"""Who may do what: tokens and contexts over TCP, and the people of a shared box, known by their Unix users."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.cloud import Cloud, Done, eventually
from tests.system.load import outputs

pytestmark = pytest.mark.system

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a box is shared by a server of root's")
ANN, BOB = 12345, 12346  # nobody's accounts


def url_of(cloud: Cloud) -> str:
    url: str = json.loads((cloud.home / "server.json").read_text())["url"]
    return url


def laptop(cloud: Cloud, name: str) -> dict[str, str]:
    """The environment of a machine that has no server of its own."""
    folder = cloud.folder / name
    names = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "CUMULO_HOME")
    return {one: str(folder / one.lower()) for one in names} | {"CUMULO_SOCKET": str(folder / "none")}


def test_tcp_wants_a_token(cloud: Cloud):
    assert cloud.http("/v1/runs", token="").status == 401
    assert cloud.http("/v1/runs", token="").json["code"] == "unauthenticated"
    assert cloud.http("/metrics", token="").status == 401
    assert cloud.http("/v1/runs", token="cumulo_abc_def").status == 401
    assert cloud.http("/v1/health", token="").json["status"] == "ok"
    assert cloud.http("/v1/runs").status == 200


def test_a_page_of_the_web_gets_nothing(cloud: Cloud):
    """A name that somebody points at loopback is no way in."""
    assert cloud.http("/v1/health", Host="evil.example").status == 403


def test_the_token_file_is_the_owners(cloud: Cloud):
    assert (cloud.home / "token").stat().st_mode & 0o777 == 0o600
    assert (cloud.home / "cumulo.db").stat().st_mode & 0o077 == 0


def test_a_bad_token_is_exit_code_3(cloud: Cloud):
    done = cloud.cli("status", "--server", url_of(cloud), env={"CUMULO_TOKEN": "cumulo_no_such"})
    assert done.code == 3
    assert "login" in done.err


def test_a_laptop_logs_in_launches_and_is_locked_out(cloud: Cloud):
    made = json.loads(cloud.ok("token", "create", "laptop", "--json"))
    there = laptop(cloud, "laptop")
    done = cloud.cli("login", url_of(cloud), "--name", "box", stdin=made["token"] + "\n", env=there)
    assert done.code == 0, done.err
    assert made["token"] not in done.out + done.err
    done = cloud.cli("launch", "-y", "--gpus", "T4", "--", "echo", "from afar", env=there)
    assert (done.code, done.out) == (0, "from afar\n"), done.err
    contexts = json.loads(cloud.cli("context", "list", "--json", env=there).out)
    assert [(one["name"], one["current"]) for one in contexts] == [("box", True)]
    listed = cloud.ok("token", "list")
    assert "laptop" in listed
    assert made["token"].rpartition("_")[2] not in listed + cloud.said()
    cloud.ok("token", "revoke", made["id"])
    assert cloud.cli("status", env=there).code == 3
    assert cloud.cli("context", "use", "local", env=there).code == 0
    assert cloud.cli("status", env=there).code == 1
    assert cloud.cli("context", "use", "box", env=there).code == 0
    assert cloud.cli("context", "remove", "box", env=there).code == 0
    assert cloud.cli("context", "use", "box", env=there).code == 102


def test_a_token_expires(cloud: Cloud):
    made = json.loads(cloud.ok("token", "create", "brief", "--expires", "1s", "--json"))
    assert cloud.http("/v1/me", token=made["token"]).status == 200
    eventually(lambda: cloud.http("/v1/me", token=made["token"]).status == 401)


def test_login_with_a_wrong_token_stores_nothing(cloud: Cloud):
    there = laptop(cloud, "wrong")
    assert cloud.cli("login", url_of(cloud), stdin="cumulo_wrong_token\n", env=there).code == 3
    assert json.loads(cloud.cli("context", "list", "--json", env=there).out) == []


def test_beyond_loopback_only_with_tls(new_cloud):
    cloud = new_cloud()
    done = cloud.cli("up", "-d", "--host", "0.0.0.0", "--port", "0")
    assert done.code != 0
    assert "--tls-cert" in done.err
    assert not (cloud.home / "server.json").exists()


def test_tls(new_cloud, tmp_path: Path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=box"
    words += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(words.split(), cwd=tmp_path, check=True, capture_output=True)
    cloud = new_cloud()
    said = cloud.ok("up", "-d", "--port", "0", "--emulate", "T4:1", "--tls-cert", str(tmp_path / "cert.pem"),
                    "--tls-key", str(tmp_path / "key.pem"))  # fmt: skip
    cloud.adopt()
    url = url_of(cloud)
    assert url.startswith("https://"), said
    there = laptop(cloud, "tls-laptop")
    token = json.loads(cloud.ok("token", "create", "tls", "--json"))["token"]
    assert cloud.cli("login", url, stdin=token + "\n", env=there).code == 1, "nobody vouches for that certificate"
    done = cloud.cli("login", url, "--ca", str(tmp_path / "cert.pem"), stdin=token + "\n", env=there)
    assert done.code == 0, done.err
    done = cloud.cli("launch", "-y", "--no-workdir", "--", "echo", "sealed", env=there)
    assert (done.code, done.out) == (0, "sealed\n"), done.err
    cloud.ok("down")


# ---- a shared box ----------------------------------------------------------------------------------------------------


def person(cloud: Cloud, uid: int, *words: str, **options: object) -> Done:
    """`cumulo WORDS` as a user of the box, with nothing set up: no token, no login."""
    return cloud.cli(*words, uid=uid, cwd=cloud.folder, **options)  # type: ignore[arg-type]


@needs_root
@pytest.mark.parametrize("runtime", ["sandbox", "process"])
def test_people_run_as_themselves(cloud: Cloud, runtime: str):
    script = "id -u; id -g; echo mine > $CUMULO_OUTPUT_DIR/file; touch $HOME/x $CUMULO_CHECKPOINT_DIR/y"
    flags = ("--no-workdir", "--runtime", runtime, "--name", f"ann-{runtime}")
    done = person(cloud, ANN, "launch", "-y", *flags, "--", "bash", "-c", script)
    assert (done.code, done.out) == (0, f"{ANN}\n{ANN}\n"), done.err
    row = cloud.run(f"ann-{runtime}")
    assert row["account"] == f"uid-{ANN}"
    made = outputs(cloud, row["id"]) / "file"
    assert (made.stat().st_uid, made.stat().st_gid) == (ANN, ANN)


@needs_root
def test_people_with_a_workdir(cloud: Cloud):
    folder = cloud.folder / "ann-work"
    folder.mkdir()
    (folder / "data").write_text("hers\n")
    done = cloud.cli(
        "launch", "-y", "--", "bash", "-c", "cat data; echo more > data; stat -c %u data", uid=ANN, cwd=folder
    )
    assert (done.code, done.out) == (0, f"hers\n{ANN}\n"), done.err


@needs_root
def test_people_see_each_other_and_touch_nothing(cloud: Cloud):
    script = "echo secret words; echo secret > $CUMULO_OUTPUT_DIR/file; sleep 60"
    done = person(cloud, ANN, "launch", "-y", "-d", "--json", "--no-workdir", "--name", "hers", "-e", "KEY=abc", "--",
                  "bash", "-c", script)  # fmt: skip
    run = done.json["id"]
    eventually(lambda: "secret" in person(cloud, ANN, "logs", run).out)
    assert "hers" in person(cloud, BOB, "status").out  # who holds what is everybody's question
    for words in (
        ("logs", run), ("logs", "-f", run), ("cancel", run), ("exec", run, "--", "true"), ("ssh", run),
        ("cp", f"{run}:outputs/file", "/tmp/never"), ("stop", run),
    ):  # fmt: skip
        done = person(cloud, BOB, *words)
        assert done.code == 3, (words, done)
        assert "secret" not in done.out + done.err
    seen = person(cloud, BOB, "status", run, "--json")
    assert "abc" not in seen.out
    assert "secret" not in seen.out
    assert "secret" not in person(cloud, BOB, "why", run).out
    assert person(cloud, BOB, "token", "create", "sly", "--account", f"uid-{ANN}").code == 3
    assert cloud.cli("cancel", "--wait", "--grace", "0", run).code == 0, "an admin may"


@needs_root
@pytest.mark.parametrize("runtime", ["sandbox", "process"])
def test_nobody_reads_over_the_file_system(cloud: Cloud, runtime: str):
    writes = "echo out; echo secret | tee $CUMULO_OUTPUT_DIR/file $HOME/file file"
    flags = ("--no-workdir", "--runtime", runtime)
    hers = person(cloud, ANN, "launch", "-y", "-d", "--json", *flags, "--", "bash", "-c", writes).json
    cloud.cli("wait", hers["id"])
    what = "-e secret -e 'cumulo_[0-9a-z]*_'"
    script = f"find {cloud.home} -readable -type f -exec grep -l {what} {{}} + 2>/dev/null; echo looked"
    done = person(cloud, BOB, "launch", "-y", *flags, "--", "bash", "-c", script)
    found = [line for line in done.out.splitlines() if "/areas/" not in line or hers["id"] in line]
    assert found == ["looked"], done.out


@needs_root
def test_mounts_are_checked(cloud: Cloud):
    data = cloud.folder / "ann-data"
    data.mkdir(mode=0o700)
    (data / "in").write_text("given\n")
    os.chown(data, ANN, ANN)
    os.chown(data / "in", ANN, ANN)
    script = f"cat {data}/in; echo made > {data}/out"
    for runtime in ("sandbox", "process"):
        flags = ("--no-workdir", "--runtime", runtime, "--mount", str(data))
        done = person(cloud, ANN, "launch", "-y", *flags, "--", "bash", "-c", script)
        assert (done.code, done.out) == (0, "given\n"), done.err
        assert (data / "out").stat().st_uid == ANN
        (data / "out").unlink()
        done = person(cloud, BOB, "launch", "-y", *flags, "--", "bash", "-c", script)
        assert done.code not in (0, 1, 2)
        assert "given" not in done.out
        assert "may not be read" in done.err


@needs_root
def test_in_the_sandbox_the_rest_is_read_only(cloud: Cloud):
    script = (
        "touch /usr/x /etc/x /x 2>/dev/null && exit 9; ls /proc | grep -c '^[0-9]'; ls "
        + str(cloud.home)
        + " 2>&1 | grep -c token"
    )
    done = person(cloud, ANN, "launch", "-y", "--no-workdir", "--runtime", "sandbox", "--", "bash", "-c", script)
    processes, tokens = done.out.split()
    assert int(processes) < 8
    assert tokens == "0"


@needs_root
def test_roots_sandbox_is_not_root(cloud: Cloud):
    done = cloud.cli(
        "launch",
        "-y",
        "--no-workdir",
        "--runtime",
        "sandbox",
        "--",
        "bash",
        "-c",
        "id -u; grep CapEff /proc/self/status",
    )
    uid, _, capabilities = done.out.split()
    assert uid != "0"
    assert int(capabilities, 16) == 0
