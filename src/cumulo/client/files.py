"""Files of a run as a tar stream, to and from folders of this machine.

What a tar says is not believed: a member can't lead out of the folder it is unpacked in, links that do are left out,
and devices are refused. (The standard library's own filter is not there in every Python 3.11.)
"""

import os
import posixpath
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from cumulo.client.transport import Payload
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable

CONTENT_TYPE = "application/x-tar"
_CHUNK = 1 << 18

OnFile = Callable[[str, int], None]


class _Reader:
    """The `read` that tarfile asks for, over an HTTP response."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (piece := self._source.read(size - len(data))):
            data += piece
        return data


def unpack(source: IO[bytes], into: Path, *, rename: str | None = None, on_file: OnFile | None = None) -> int:
    """Unpacks a tar stream below the folder `into`; how many files. `rename` replaces the first part of every name.

    Raises CumuloError (`path_not_allowed`) for a member that leads out, OSError for what can't be written.
    """
    count = 0
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", _Reader(source)), mode="r|", errors="surrogateescape") as tar:
            for member in tar:
                parts = _parts(member.name)
                if rename is not None and parts:
                    parts = [rename, *parts[1:]]
                if parts and _place(tar, member, into, parts):
                    count += 1
                    if on_file:
                        on_file("/".join(parts), member.size)
    except tarfile.TarError as error:
        raise CumuloError("internal", f"the files came incomplete: {error}", hint="copy again") from None
    return count


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise CumuloError("path_not_allowed", f"{printable(name)!r} would lead out of the folder")
    return parts


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, into: Path, parts: list[str]) -> bool:
    """Writes one member; whether it was a file or link. A file is written beside and renamed: whole or not at all."""
    path = into.joinpath(*parts)
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return False
    if not (member.isreg() or member.issym()):
        raise CumuloError("path_not_allowed", f"{printable(member.name)!r} is neither a file, a folder nor a link")
    if member.issym() and not _stays_inside(parts, member.linkname):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(into)):
        raise CumuloError("path_not_allowed", f"{printable(member.name)!r} would lead out of the folder")
    beside = path.with_name(f".{path.name[:200]}.{os.getpid()}.part")
    try:
        if member.issym():
            os.symlink(member.linkname, beside)
        else:
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                content = tar.extractfile(member)
                if content:
                    shutil.copyfileobj(content, file, _CHUNK)
                os.fchmod(file.fileno(), (member.mode & 0o755) | 0o600)
            os.utime(beside, (member.mtime, member.mtime))
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return True


def _stays_inside(parts: list[str], link: str) -> bool:
    reached = posixpath.normpath("/".join([*parts[:-1], link]))
    return not link.startswith("/") and not reached.startswith("../") and reached != ".."


@contextmanager
def packed(source: Path, name: str) -> Iterator[Payload]:
    """A tar of a file or folder under the name `name` ("" puts a folder's content at the top).

    It is written to a temporary file first, since a request may have to be sent twice. Raises OSError.
    """
    with tempfile.TemporaryFile() as archive:
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar:
            if name:
                tar.add(source, name, filter=_plain)
            else:
                for child in sorted(os.listdir(source)):
                    tar.add(source / child, child, filter=_plain)

        def chunks() -> Iterator[bytes]:
            archive.seek(0)
            while data := archive.read(_CHUNK):
                yield data

        yield Payload(chunks=chunks, length=archive.seek(0, os.SEEK_END), content_type=CONTENT_TYPE)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Files, folders and links, owned by whoever unpacks them; sockets, pipes and devices stay behind."""
    if not (member.isreg() or member.isdir() or member.issym()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
