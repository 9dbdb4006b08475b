"""A manifest: the files and folders of a workdir by path, each file by the digest of its content.

It is written on one machine and made real on another, so nothing in it is believed: a path that could lead outside
its root, or that two entries claim, is refused here, before anything touches a disk. There are no links and no
devices.

Version 1, as JSON: `{"version": 1, "entries": [{"path", "mode", "size", "digest"}, {"path", "dir": true}]}`.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable

VERSION: Final = 1
MAX_ENTRIES: Final = 200_000
MAX_BYTES: Final = 64 << 20  # of the JSON text
MAX_DEPTH: Final = 64
MAX_PATH_BYTES: Final = 2048  # leaves room for the root before it: Linux takes 4096
MAX_NAME_BYTES: Final = 255
MAX_FILE_BYTES: Final = 1 << 44

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A file of `size` bytes with permission bits `mode`, or a folder (`digest` None). `path` is relative, with `/`."""

    path: str
    mode: int = 0o755
    size: int = 0
    digest: str | None = None

    @property
    def is_folder(self) -> bool:
        return self.digest is None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Entries sorted by path, a folder before what is in it."""

    entries: tuple[ManifestEntry, ...]

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.entries)

    @property
    def digests(self) -> frozenset[str]:
        """What must be there to make it real."""
        return frozenset(entry.digest for entry in self.entries if entry.digest is not None)


def make_manifest(entries: Iterable[ManifestEntry]) -> Manifest:
    """Sorts and checks. Raises CumuloError as `parse_manifest` does."""
    listed = sorted(entries, key=lambda entry: entry.path.split("/"))
    if len(listed) > MAX_ENTRIES:
        raise CumuloError("too_large", f"{len(listed):,} files are more than the {MAX_ENTRIES:,} of a manifest")
    folders: set[str] = set()
    files: set[str] = set()
    for entry in listed:
        check_path(entry.path)
        if entry.path in files or entry.path in folders:
            _refuse(entry.path, "is there twice")
        (folders if entry.is_folder else files).add(entry.path)
    for path in (*files, *folders):
        above = path.rpartition("/")[0]
        while above:
            if above in files:
                _refuse(path, f"lies below {printable(above)!r}, which is a file")
            above = above.rpartition("/")[0]
    return Manifest(tuple(listed))


def check_path(path: str) -> None:
    """Raises CumuloError `path_not_allowed` unless `path` names a place strictly inside its root."""
    if not path:
        _refuse(path, "is empty")
    if path.startswith("/"):
        _refuse(path, "is absolute")
    if "\0" in path or "\\" in path:
        _refuse(path, "holds a backslash or a NUL")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        _refuse(path, "is not valid UTF-8")
    parts = path.split("/")
    if ".." in parts or "." in parts or "" in parts:
        _refuse(path, "holds a '..', a '.' or an empty part")
    if size > MAX_PATH_BYTES or len(parts) > MAX_DEPTH or any(len(p.encode()) > MAX_NAME_BYTES for p in parts):
        _refuse(path, f"is too long (at most {MAX_DEPTH} parts, {MAX_NAME_BYTES} bytes each, {MAX_PATH_BYTES} in all)")


def parse_manifest(text: bytes) -> Manifest:
    """Reads and checks a manifest.

    Raises CumuloError: invalid_request for what isn't one, path_not_allowed for a path, too_large.
    """
    if len(text) > MAX_BYTES:
        raise CumuloError("too_large", f"a manifest of {len(text):,} bytes is more than {MAX_BYTES:,}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed("it is not JSON") from error
    if not isinstance(data, dict) or data.keys() != {"version", "entries"} or not isinstance(data["entries"], list):
        raise _malformed("it must hold version and entries")
    if data["version"] != VERSION:
        raise _malformed(f"its version is {printable(str(data['version']), 20)}, and {VERSION} is known here")
    return make_manifest(_entry(item) for item in data["entries"])


def render_manifest(manifest: Manifest) -> bytes:
    """The one text of a manifest, so that the same files have the same digest."""
    entries = [
        {"path": entry.path, "dir": True}
        if entry.is_folder
        else {"path": entry.path, "mode": entry.mode, "size": entry.size, "digest": entry.digest}
        for entry in manifest.entries
    ]
    return json.dumps({"version": VERSION, "entries": entries}, separators=(",", ":"), ensure_ascii=False).encode()


def _entry(item: Any) -> ManifestEntry:
    path = item.get("path") if isinstance(item, dict) else None
    if not isinstance(path, str):
        raise _malformed("an entry has no path")
    if item.keys() == {"path", "dir"} and item["dir"] is True:
        return ManifestEntry(path)
    if item.keys() != {"path", "mode", "size", "digest"}:
        raise _malformed(f"{printable(path)!r} is neither a file nor a folder")
    mode, size, digest = item["mode"], item["size"], item["digest"]
    if type(mode) is not int or not 0 <= mode <= 0o777:
        raise _malformed(f"{printable(path)!r} has a mode other than 0 to 0777")
    if type(size) is not int or not 0 <= size <= MAX_FILE_BYTES:
        raise _malformed(f"{printable(path)!r} has a size that can't be")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise _malformed(f"{printable(path)!r} has a digest that is not 64 lower-case hex digits")
    return ManifestEntry(path, mode, size, digest)


def _malformed(why: str) -> CumuloError:
    return CumuloError("invalid_request", f"the manifest can't be read: {why}")


def _refuse(path: str, why: str) -> NoReturn:
    raise CumuloError("path_not_allowed", f"the path {printable(path)!r} {why}")
