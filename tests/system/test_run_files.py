"""Run files and what travels with a run: keys and aliases, refusals by name and line, the workdir, environments."""

import os
import zipfile
from pathlib import Path

import pytest

from tests.system.cloud import Cloud, Done

pytestmark = pytest.mark.system


@pytest.fixture
def folder(cloud: Cloud) -> Path:
    """A folder of this test's own to launch from."""
    made: Path = cloud.work / f"folder-{len(list(cloud.work.iterdir()))}"
    made.mkdir()
    return made


def launch(cloud: Cloud, folder: Path, text: str, *flags: str) -> Done:
    (folder / "task.yaml").write_text(text)
    return cloud.cli("launch", "-y", *flags, "task.yaml", cwd=folder)


FULL = """
name: full
num_nodes: 1
workdir: .
resources: {accelerators: "A100-80GB:2", cpus: 4, memory: 8GB}
envs: {WHO: world}
max_duration: 1h
priority: 5
retry: {on_events: [error], max_attempts: 2, backoff: 0.1}
run: |
  echo "hello $WHO"
  cat greeting
"""


def test_skypilots_names(cloud: Cloud, folder: Path):
    (folder / "greeting").write_text("hi\n")
    done = launch(cloud, folder, FULL)
    assert (done.code, done.out) == (0, "hello world\nhi\n"), done.err
    instance = cloud.run("full")["instances"][0]
    assert (len(instance["devices"]), instance["cpus"], instance["memory_gb"]) == (2, 4.0, 8.0)


def test_the_aliases(cloud: Cloud, folder: Path):
    text = "name: short\nnodes: 1\ngpu: {A100-80GB: 1}\nenv: {WHO: you}\ncommands:\n  - echo $WHO\n  - echo there\n"
    done = launch(cloud, folder, text)
    assert (done.code, done.out) == (0, "you\nthere\n"), done.err
    assert len(cloud.run("short")["instances"][0]["devices"]) == 1


def test_flags_win_over_the_file(cloud: Cloud, folder: Path):
    done = launch(cloud, folder, "name: a\nenvs: {X: '1'}\nrun: echo $X", "--name", "flagged", "-e", "X=2")
    assert done.out == "2\n"
    assert cloud.run("flagged")["status"] == "succeeded"


def test_a_file_from_standard_input(cloud: Cloud):
    done = cloud.cli("launch", "-y", "-", stdin="name: piped\nrun: echo piped")
    assert (done.code, done.out) == (0, "piped\n"), done.err


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: x\nresorces: {}\nrun: echo", 2, "did you mean 'resources'?"),
        ("name: x\nresources:\n  acelerators: A100\nrun: echo", 3, "did you mean 'accelerators'?"),
        ("name: x\nrun: [\n", 3, "not valid YAML"),
        ("name: x\nservice: {}\nrun: echo", 2, "have not landed yet"),
        ("name: x\nsecrets: {A: b}\nrun: echo", 2, "have not landed yet"),
        ("name: x\nvolumes: {}\nrun: echo", 2, "have not landed yet"),
        ("name: x\ngpu: A100-80\nrun: echo", 2, "did you mean A100-80GB"),
        ("name: x\nmigratable: perhaps\nrun: echo", 2, "migratable"),
        ("name: x\nnum_nodes: 0\nrun: echo", 2, "num_nodes"),
        ("name: x\nmax_duration: soon\nrun: echo", 2, "max_duration"),
        ("name: x\nafter: nobody\nrun: echo", 0, "nobody"),
        ("name: x\nworkdir: nowhere\nrun: echo", 0, "nowhere"),
        ("name: x\nname: y\nrun: echo", 2, "name"),
        ('name: "a\\nb"\nrun: echo', 1, "can't be a name"),
        ('name: "a\\e[31mb"\nrun: echo', 1, "can't be a name"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(cloud: Cloud, folder: Path, text: str, line: int, words: str):
    before = cloud.ok("status", "--json")
    done = launch(cloud, folder, text)
    error = done.err.strip().split("\n")[0]
    assert done.code in (2, 102), done.err
    assert error.startswith("error: ")
    assert words in done.err
    assert f"task.yaml:{line}:" in error or not line
    assert "\x1b" not in done.err
    assert cloud.ok("status", "--json") == before, "nothing is half-written"


def test_a_python_newline_in_a_flag(cloud: Cloud):
    done = cloud.cli("launch", "-y", "--no-workdir", "--name", "a\nb\x1b[31m", "--", "true")
    assert done.code == 2
    assert "\x1b" not in done.err


def test_the_workdir_travels_without_what_is_ignored(cloud: Cloud, folder: Path):
    (folder / "src").mkdir()
    for name in ("keep.py", "src/deep.txt", "data.bin", "notes.tmp", "secret.key"):
        (folder / name).write_text(name)
    (folder / "keep.py").chmod(0o755)
    (folder / ".gitignore").write_text("*.bin\n")
    (folder / ".cumuloignore").write_text("*.tmp\nsecret.*\n")
    done = cloud.cli("launch", "-y", "--", "bash", "-c", "find . -type f | sort; test -x keep.py", cwd=folder)
    assert done.code == 0
    files = set(done.out.split())
    assert {"./keep.py", "./src/deep.txt"} <= files
    assert not {"./data.bin", "./notes.tmp", "./secret.key"} & files


def test_a_link_out_of_the_workdir_is_refused(cloud: Cloud, folder: Path):
    (folder / "out").symlink_to("/etc/passwd")
    done = cloud.cli("launch", "-y", "--", "cat", "out", cwd=folder)
    assert done.code == 2
    assert "out" in done.err.split("\n")[0]
    assert "link" in done.err


def test_a_pipe_in_the_workdir_is_told(cloud: Cloud, folder: Path):
    os.mkfifo(folder / "pipe")
    done = cloud.cli("launch", "-y", "--", "true", cwd=folder, timeout=30)
    assert done.code == 2
    assert "pipe" in done.err


def test_file_mounts(cloud: Cloud, folder: Path):
    (folder / "one.txt").write_text("1\n")
    (folder / "many").mkdir()
    (folder / "many" / "two.txt").write_text("2\n")
    text = "name: mounted\nfile_mounts: {in/one.txt: one.txt, all: many}\nrun: cat in/one.txt all/two.txt"
    done = launch(cloud, folder, text)
    assert (done.code, done.out) == (0, "1\n2\n"), done.err


def test_file_mounts_do_not_climb_out(cloud: Cloud, folder: Path):
    (folder / "one.txt").write_text("1\n")
    done = launch(cloud, folder, "name: climber\nfile_mounts: {../../up: one.txt}\nrun: echo")
    assert done.code == 2
    assert ".." in done.err


def test_setup_builds_an_environment_once(cloud: Cloud, folder: Path):
    text = (
        "name: prepared\nsetup: |\n  echo setting up\n  touch $VIRTUAL_ENV/made\n"
        "run: |\n  test -e $VIRTUAL_ENV/made\n  python -c 'import sys; print(sys.prefix)'\n"
    )
    first = launch(cloud, folder, text, "--name", "first")
    assert first.code == 0, first.out + first.err
    assert "setting up" in first.out
    second = launch(cloud, folder, text, "--name", "second")
    assert second.code == 0, second.out + second.err
    assert "setting up" not in second.out
    assert second.out.strip() == first.out.strip().split("\n")[-1], "the same environment"


def test_a_setup_that_fails_says_so(cloud: Cloud, folder: Path):
    done = launch(cloud, folder, "name: unprepared\nsetup: echo trying; exit 3\nrun: echo never")
    assert done.code not in (0, 1, 2)
    assert "never" not in done.out
    assert cloud.run("unprepared")["reason"] == "setup_failed"
    assert "setup" in cloud.ok("why", "unprepared")


def test_requirements_are_installed(cloud: Cloud, folder: Path):
    """A wheel made on the spot, which travels with the workdir: no network."""
    wheel = make_wheel(folder)
    text = (
        f"name: required\nworkdir: .\nrequirements: [./{wheel.name}]\nrun: python -c 'import tiny; print(tiny.SIZE)'\n"
    )
    done = launch(cloud, folder, text)
    assert (done.code, done.out.strip().split("\n")[-1]) == (0, "42"), done.out + done.err


def make_wheel(folder: Path) -> Path:
    path = folder / "tiny-1.0-py3-none-any.whl"
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny.py", "SIZE = 42\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def test_the_schema_is_published(cloud: Cloud):
    schema = cloud.client().transport.json("GET", "/v1/schema/run-file")
    assert {"run", "workdir", "resources", "gpu", "array"} <= set(schema["properties"])
