"""What of a folder travels, and that only what the server lacks is sent."""

import hashlib
import os
import socket
from pathlib import Path

import pytest

from cumulo.client import Client, CumuloError, run_file, workdir
from cumulo.client.digests import Digests
from cumulo.client.upload import upload
from cumulo.client.workdir import manifest, scan
from cumulo.domain.manifest import parse_manifest
from tests.client.stub import Reply, Request, Stub


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def paths(root: Path) -> list[str]:
    return [entry.path for entry in scan(root).entries]


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def test_ignored_files_stay_behind(tmp_path: Path):
    write(
        tmp_path,
        {
            ".gitignore": "*.pt\n/data/\n", ".cumuloignore": "notes\n", "train.py": "", "a/model.pt": "", "a/b.py": "",
            "data/x": "", "src/data/y": "", "notes/n": "", ".git/config": "", "a/__pycache__/b.pyc": "",
        },
    )  # fmt: skip
    assert paths(tmp_path) == [".cumuloignore", ".gitignore", "a/b.py", "src/data/y", "train.py"]


def test_rules_of_a_folder_below(tmp_path: Path):
    write(tmp_path, {".gitignore": "*.log\n", "a/.gitignore": "!keep.log\n", "a/keep.log": "", "b/keep.log": ""})
    assert "a/keep.log" in paths(tmp_path)
    assert "b/keep.log" not in paths(tmp_path)


def test_an_empty_folder_travels(tmp_path: Path):
    (tmp_path / "out").mkdir()
    [entry] = scan(tmp_path).entries
    assert (entry.path, entry.is_folder) == ("out", True)


def test_a_link_inside_travels_as_what_it_points_to(tmp_path: Path):
    write(tmp_path, {"data/x": "hello"})
    (tmp_path / "latest").symlink_to("data/x")
    (tmp_path / "again").symlink_to(tmp_path / "data")
    found = {entry.path: entry.size for entry in scan(tmp_path).entries}
    assert found == {"data/x": 5, "latest": 5, "again/x": 5}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: (root / "out").symlink_to("/etc/hostname"), "leads out"),
        (lambda root: (root / "gone").symlink_to("nothing"), "link to nothing"),
        (lambda root: (root / "loop").symlink_to("."), "link back into itself"),
        (lambda root: os.mkfifo(root / "pipe"), "pipe or device"),
        (lambda root: bind(root / "sock"), "is a socket"),
    ],
)
def test_what_cannot_travel_is_refused_by_name(tmp_path: Path, make, words: str):
    make(tmp_path)
    with pytest.raises(CumuloError, match=words) as caught:
        scan(tmp_path)
    assert caught.value.code == "path_not_allowed"


def test_what_cannot_travel_may_be_ignored(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path, {".cumuloignore": "pipe\n"})
    assert paths(tmp_path) == [".cumuloignore"]


def test_a_large_folder_is_asked_about(tmp_path: Path):
    with (tmp_path / "big").open("wb") as file:
        file.truncate(10 << 30)
    assert scan(tmp_path).is_large
    (tmp_path / "big").unlink()
    assert not scan(tmp_path).is_large


def test_the_same_files_have_the_same_manifest(tmp_path: Path):
    one, two = write(tmp_path / "1", {"b": "2", "a/x": "1"}), write(tmp_path / "2", {"a/x": "1", "b": "2"})
    (two / "b").chmod(0o600)
    assert manifest(scan(one), Digests()).digest == manifest(scan(two), Digests()).digest


def test_a_manifest_is_one_that_the_server_takes(tmp_path: Path):
    write(tmp_path, {"a/x": "1", "run.sh": "#!"})
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "empty").mkdir()
    entries = {entry.path: entry for entry in parse_manifest(manifest(scan(tmp_path), Digests()).data).entries}
    assert entries["run.sh"].mode == 0o755
    assert entries["a/x"].digest == hashlib.sha256(b"1").hexdigest()
    assert entries["empty"].is_folder


def test_a_file_is_hashed_once(tmp_path: Path):
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    path = write(tmp_path / "w", {"x": "one"}) / "x"
    before = path.stat()
    digests = Digests.load(env)
    digests.now_ns = lambda: before.st_ctime_ns + 10**10
    first = digests.of(str(path), before)
    digests.save()
    path.write_text("two")
    again = Digests.load(env)
    assert again.of(str(path), before) == first, "a state that is known is not read again"
    assert again.of(str(path), path.stat()) == hashlib.sha256(b"two").hexdigest()


def test_a_file_that_has_just_changed_is_not_remembered(tmp_path: Path):
    path = write(tmp_path, {"x": "one"}) / "x"
    digests = Digests(now_ns=lambda: path.stat().st_ctime_ns + 1000)
    digests.of(str(path), path.stat())
    assert not digests.known


def test_a_cache_that_makes_no_sense_is_passed_over(tmp_path: Path):
    (tmp_path / "cumulo").mkdir()
    (tmp_path / "cumulo" / "digests.json").write_text("[1]")
    assert Digests.load({"XDG_CACHE_HOME": str(tmp_path)}).known == {}


def stored(stub: Stub) -> dict[str, bytes]:
    """Makes the stub keep blobs as the server does; what it has."""
    blobs: dict[str, bytes] = {}

    def missing(request: Request) -> Reply:
        return Reply({"missing": [digest for digest in request.json["digests"] if digest not in blobs]})

    def put(request: Request) -> Reply:
        at, body = 0, request.body
        while at < len(body):
            size = int.from_bytes(body[at + 32 : at + 40], "big")
            data = body[at + 40 : at + 40 + size]
            assert hashlib.sha256(data).digest() == body[at : at + 32]
            blobs[body[at : at + 32].hex()] = data
            at += 40 + size
        return Reply({"stored": 1})

    stub.on("POST", "/v1/blobs/missing", missing)
    stub.on("POST", "/v1/blobs", put)
    return blobs


def test_only_what_is_missing_is_sent(stub: Stub, tmp_path: Path):
    blobs = stored(stub)
    write(tmp_path, {"a": "one", "b": "two", "c": "two"})
    told: list[tuple[int, int]] = []
    with Client(stub.url) as client:
        digest = upload(client, scan(tmp_path), Digests(), on_progress=lambda done, total: told.append((done, total)))
        assert parse_manifest(blobs[digest]).total_bytes == 9
        assert len(blobs) == 3, "the same content travels once"
        upload(client, scan(tmp_path), Digests())
        assert len(stub.seen("POST", "/v1/blobs")) == 1
        (tmp_path / "a").write_text("three")
        upload(client, scan(tmp_path), Digests())
    assert len(blobs) == 5
    assert told[-1][0] == told[-1][1]


def test_files_are_sent_in_batches(stub: Stub, tmp_path: Path):
    blobs = stored(stub)
    write(tmp_path, {f"f{number}": str(number) for number in range(1200)})
    with Client(stub.url) as client:
        upload(client, scan(tmp_path), Digests())
    assert len(blobs) == 1201
    assert len(stub.seen("POST", "/v1/blobs")) == 3


def test_a_run_file_before_and_after_its_files_travel(stub: Stub, tmp_path: Path):
    blobs = stored(stub)
    write(tmp_path, {"proj/train.py": "x", "data/a": "1", "one.csv": "2", "proj/requirements.txt": "numpy\n\n# no\n"})
    data = {
        "run": "python train.py", "workdir": "proj", "requirements": "proj/requirements.txt",
        "file_mounts": {"data": "data", "in/table.csv": "one.csv", "here.csv": "one.csv"},
    }  # fmt: skip
    drafted = run_file.draft(data, tmp_path, point=lambda error: error)
    assert drafted.data == {"run": "python train.py", "requirements": ["numpy", "", "# no"], "file_mounts": {}}
    assert drafted.files == 5
    with Client(stub.url) as client:
        done = run_file.complete(client, drafted, env={"XDG_CACHE_HOME": str(tmp_path)})

    def listed(reference: dict[str, str]) -> list[str]:
        return [entry.path for entry in parse_manifest(blobs[reference["manifest"]]).entries]

    assert listed(done["workdir"]) == ["here.csv", "requirements.txt", "train.py"]
    assert listed(done["file_mounts"]["data"]) == ["a"]
    assert listed(done["file_mounts"]["in"]) == ["table.csv"]
    assert data["workdir"] == "proj", "what was given is left as it was"


def test_a_requirements_file_that_names_others_is_refused(tmp_path: Path):
    write(tmp_path, {"r.txt": "-r other.txt\n"})
    with pytest.raises(CumuloError, match="names other files"):
        run_file.draft({"requirements": "r.txt"}, tmp_path, point=lambda error: error)


def test_a_folder_that_is_not_there(tmp_path: Path):
    with pytest.raises(CumuloError, match="No such file"):
        workdir.scan(tmp_path / "nope")


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["python", "-u", "train.py"], "train"),
        (["python3.11", "/a/b/My Script.py", "--x", "1"], "my-script"),
        (["torchrun", "--nproc=2", "fit.py"], "fit"),
        (["nvidia-smi"], "nvidia-smi"),
        (["bash", "-c", "echo hi; ls"], "echo-hi-ls"),
        (["python"], "python"),
        (["./run_all.sh"], "run-all"),
    ],
)
def test_names_of_commands(argv: list[str], name: str):
    assert run_file.name_of_command(argv) == name
