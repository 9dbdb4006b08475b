"""Tars from a run are unpacked where they were asked for, and nowhere else."""

import io
import tarfile
from pathlib import Path

import pytest

from cumulo.client.files import packed, unpack
from cumulo.domain.errors import CumuloError


def tar(*members: tarfile.TarInfo | tuple[str, bytes]) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for member in members:
            if isinstance(member, tuple):
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
            else:
                archive.addfile(member)
    out.seek(0)
    return out


def info(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def test_there_and_back(tmp_path: Path):
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    (source / "a" / "x").write_bytes(b"hello")
    (source / "run.sh").write_bytes(b"#!")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("a/x")
    with packed(source, "copy") as payload:
        data = b"".join(payload.chunks())
        assert data == b"".join(payload.chunks()), "it can be sent twice"
        assert len(data) == payload.length
    assert unpack(io.BytesIO(data), tmp_path / "out") == 3
    copy = tmp_path / "out" / "copy"
    assert (copy / "link").read_bytes() == b"hello"
    assert (copy / "run.sh").stat().st_mode & 0o111
    assert not (copy / "a" / "x").stat().st_mode & 0o111


def test_the_first_part_can_be_renamed(tmp_path: Path):
    unpack(tar(("model/x", b"1"), ("model/y/z", b"2")), tmp_path, rename="mine")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == [
        "mine/x", "mine/y/z",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "member", [("../evil", b"x"), ("/evil", b"x"), ("a/../../evil", b"x"), info("dev", tarfile.CHRTYPE)]
)
def test_what_leads_out_is_refused(tmp_path: Path, member):
    with pytest.raises(CumuloError) as caught:
        unpack(tar(member), tmp_path / "in")
    assert caught.value.code == "path_not_allowed"
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("link", ["../..", "/etc/passwd", "a/../../x"])
def test_links_that_lead_out_are_left_out(tmp_path: Path, link: str):
    assert unpack(tar(info("a/link", tarfile.SYMTYPE, link), ("a/b", b"1")), tmp_path) == 1 + (link == "a/../../x")
    assert not (tmp_path / "a" / "link").exists()


def test_nothing_is_written_through_a_link_that_leads_out(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    with pytest.raises(CumuloError):
        unpack(tar(("out/evil", b"x")), tmp_path / "in")
    assert not (tmp_path / "evil").exists()


def test_a_tar_that_was_cut_off_leaves_no_half_file(tmp_path: Path):
    whole = tar(("big", b"x" * 100_000)).read()
    with pytest.raises(CumuloError, match="incomplete"):
        unpack(io.BytesIO(whole[:50_000]), tmp_path)
    assert list(tmp_path.iterdir()) == []
