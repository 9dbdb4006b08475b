"""Files of a run: a manifest made real, and what may not be."""

import contextlib
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.errors import CumuloError
from cumulo.domain.manifest import ManifestEntry
from cumulo.node import transfer
from cumulo.node.files import Cancelled, Owner, access_as, materialise, remove_tree, tree_size

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root")


def entry(path, content="x", mode=0o644):
    return ManifestEntry(path, mode, len(content.encode()), content)


def read(digest):
    """In these tests a blob's digest is its content."""
    yield digest.encode()


def make(root, *entries, owner=None, **more):
    materialise(entries, root=root, read=read, owner=owner, **more)


def test_files_and_folders_are_made_with_content_and_mode(tmp_path):
    make(tmp_path, ManifestEntry("empty"), entry("a/b/c", "text", 0o755), entry("a/d", ""))
    assert (tmp_path / "a/b/c").read_text() == "text"
    assert stat.S_IMODE((tmp_path / "a/b/c").stat().st_mode) == 0o755
    assert (tmp_path / "a/d").read_text() == ""
    assert (tmp_path / "empty").is_dir()


def test_owners_can_always_write_what_is_theirs_and_nothing_is_setuid(tmp_path):
    make(tmp_path, entry("a", mode=0o400), entry("b", mode=0o7777))
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o777


@needs_root
def test_everything_belongs_to_the_owner(tmp_path):
    make(tmp_path, entry("a/b"), owner=Owner(4242, 4300))
    for path in ("a", "a/b"):
        info = (tmp_path / path).stat()
        assert (info.st_uid, info.st_gid) == (4242, 4300)


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "a//x", ".", "", "a/..", "./x", "a\0b"])
def test_a_path_that_leads_out_is_refused(tmp_path, path):
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(CumuloError) as error:
        make(root, entry(path))
    assert error.value.code == "path_not_allowed"
    assert os.listdir(tmp_path) == ["root"]


@given(st.text(alphabet="ab./\0~", max_size=12))
def test_no_path_ever_leads_out(tmp_path_factory, path):
    base = tmp_path_factory.mktemp("paths")
    (base / "root").mkdir()
    with contextlib.suppress(CumuloError, OSError):
        make(base / "root", entry(path))
    assert os.listdir(base) == ["root"]


def test_a_link_in_the_way_is_not_followed(tmp_path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (root / "link").symlink_to(outside)
    (root / "file").symlink_to(outside / "new")
    with pytest.raises(CumuloError, match="link is there and is not a folder"):
        make(root, entry("link/x"))
    make(root, entry("file", "mine"))
    assert not (root / "file").is_symlink()
    assert list(outside.iterdir()) == []


def test_the_later_of_two_files_counts(tmp_path):
    make(tmp_path, entry("a", "first"), entry("a", "then"))
    assert (tmp_path / "a").read_text() == "then"


def test_content_of_another_size_is_refused(tmp_path):
    with pytest.raises(CumuloError, match="has 3 bytes, not 99"):
        make(tmp_path, ManifestEntry("a", 0o644, 99, "abc"))


def test_a_missing_blob_is_told_by_the_files_name(tmp_path):
    def nothing(digest):
        yield {}[digest]

    with pytest.raises(CumuloError, match="the content of some/file is no longer stored"):
        materialise([entry("some/file")], root=tmp_path, read=nothing, owner=None)


def test_it_stops_when_cancelled(tmp_path):
    answers = iter([False, True])
    with pytest.raises(Cancelled):
        make(tmp_path, entry("a"), entry("b"), entry("c"), cancelled=lambda: next(answers))
    assert os.listdir(tmp_path) == ["a"]


@needs_root
def test_access_is_what_that_account_may_do(tmp_path):
    own, shut, open_ = tmp_path / "own", tmp_path / "shut", tmp_path / "open"
    for folder, mode in ((own, 0o700), (shut, 0o700), (open_, 0o755)):
        folder.mkdir()
        folder.chmod(mode)
    os.chown(own, 4242, 4242)
    closed = [folder for folder in (tmp_path, *tmp_path.parents) if not folder.stat().st_mode & 0o001]
    paths = [str(each) for each in ("/usr", "/etc/shadow", "/no/such")]
    assert access_as(paths, Owner(4242, 4242)) == ["readable", "unreadable", "missing"]
    assert access_as([str(own), str(shut), str(open_)], None) == ["writable"] * 3
    if not closed:
        assert access_as([str(own), str(shut)], Owner(4242, 4242)) == ["writable", "unreadable"]


def test_sizes_and_removal_follow_no_link(tmp_path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    (outside / "kept").write_bytes(bytes(100_000))
    make_tree = root / "a"
    make_tree.mkdir(parents=True)
    (make_tree / "b").write_bytes(bytes(8192))
    (root / "link").symlink_to(outside)
    size, count = tree_size(root)
    assert (size >= 8192, size < 100_000, count) == (True, True, 1)
    remove_tree(root)
    assert not root.exists()
    assert (outside / "kept").exists()


# --- transfers --------------------------------------------------------------------------------------------------------


def run_transfer(direction, root, path="", stdin=b"", **account):
    spec = {"direction": direction, "root": str(root), "path": path, "uid": None, "gid": None, "groups": []} | account
    argv = [sys.executable, "-I", "-S", str(Path(transfer.__file__)), json.dumps(spec)]
    done = subprocess.run(argv, input=stdin, capture_output=True, timeout=30, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def names(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return tar.getnames()


def test_a_tree_goes_through_a_tar_and_comes_back_the_same(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep/er").mkdir(parents=True)
    target.mkdir()
    (source / "deep/er/file").write_bytes(b"\0\xff" * 70_000)
    (source / "deep/run").write_text("#!/bin/sh")
    (source / "deep/run").chmod(0o755)
    (source / "deep/link").symlink_to("er/file")
    os.mkfifo(source / "deep/pipe")
    code, data, _ = run_transfer("get", source, "deep")
    assert (code, names(data)) == (0, ["deep", "deep/er", "deep/er/file", "deep/link", "deep/run"])
    assert run_transfer("put", target, "into", data) == (0, b"", "")
    assert (target / "into/deep/er/file").read_bytes() == b"\0\xff" * 70_000
    assert os.readlink(target / "into/deep/link") == "er/file"
    assert os.access(target / "into/deep/run", os.X_OK)


def test_a_file_replaces_a_file_and_not_what_a_link_points_to(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("kept")
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").symlink_to(outside)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("a")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"new"))
    assert run_transfer("put", root, "", buffer.getvalue())[0] == 0
    assert ((root / "a").read_text(), outside.read_text()) == ("new", "kept")
    assert os.listdir(root) == ["a"]


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_hard_links_and_devices_are_refused(tmp_path, kind):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("thing")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    code, _, said = run_transfer("put", tmp_path, "", buffer.getvalue())
    assert (code, said.strip()) == (1, "'thing' is neither a file, a folder nor a symbolic link")


@needs_root
def test_it_reads_and_writes_as_the_user(tmp_path):
    """Also what lies where only the server may go: the folder is opened before the rights are given up."""
    root = tmp_path / "shut" / "area"
    root.mkdir(parents=True)
    (tmp_path / "shut").chmod(0o700)
    os.chown(root, 4242, 4242)
    (root / "roots").write_text("secret")
    (root / "roots").chmod(0o600)
    (root / "theirs").write_text("words")
    os.chown(root / "theirs", 4242, 4242)
    code, data, said = run_transfer("get", root, uid=4242, gid=4242)
    assert (code, names(data)) == (0, ["theirs"])
    assert "left out: 'roots': permission denied" in said
    assert run_transfer("put", root, "new", data, uid=4242, gid=4242)[0] == 0
    assert (root / "new/theirs").stat().st_uid == 4242
