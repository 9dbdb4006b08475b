"""A folder as it travels: which of its files, and the manifest that describes them.

Links that point inside the folder travel as what they point to; links that lead out, devices, pipes and sockets are
refused by name, since the run would not find what the person sees. Ignored files stay behind and are never looked
into.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cumulo.client import ignore
from cumulo.client.digests import Digests
from cumulo.domain.errors import CumuloError
from cumulo.domain.manifest import MAX_DEPTH, MAX_ENTRIES, ManifestEntry, make_manifest, render_manifest

LARGE_BYTES = 1 << 30
LARGE_COUNT = 50_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or empty folder: `path` relative to the root with `/`, `source` where it is read from."""

    path: str
    source: str
    size: int = 0
    mode: int = 0o644
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Tree:
    """What a folder holds that will travel, sorted by path."""

    root: Path
    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    @property
    def files(self) -> int:
        return sum(not entry.is_folder for entry in self.entries)

    @property
    def is_large(self) -> bool:
        """Whether a person should be asked before it travels."""
        return self.size > LARGE_BYTES or self.files > LARGE_COUNT


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest blob of a tree, and where the file of each digest is: (path, size)."""

    data: bytes
    digest: str
    sources: dict[str, tuple[str, int]]


def scan(folder: str | Path) -> Tree:
    """Looks at a folder, or at a single file, without reading contents. Raises CumuloError (`path_not_allowed`)."""
    root = Path(folder)
    try:
        found = os.stat(root)
    except OSError as error:
        raise CumuloError("path_not_allowed", f"{root} can't be read: {error.strerror}") from None
    root = Path(os.path.realpath(root))
    if stat.S_ISREG(found.st_mode):
        return Tree(root, (_file(root.name, str(root), found),))
    if not stat.S_ISDIR(found.st_mode):
        raise CumuloError("path_not_allowed", f"{root} is neither a file nor a folder")
    entries: list[Entry] = []
    for entry in _walk(str(root), "", ignore.Rules(), ()):
        entries.append(entry)
        if len(entries) > MAX_ENTRIES:
            raise CumuloError(
                "too_large",
                f"{root} has more than {MAX_ENTRIES:,} files",
                hint="list what need not travel in .cumuloignore, mount a shared folder, or use --no-workdir",
            )
    return Tree(root, tuple(sorted(entries, key=lambda entry: entry.path)))


def _walk(root: str, folder: str, rules: ignore.Rules, above: tuple[str, ...]) -> Iterator[Entry]:
    """The entries below `folder` (relative to `root`). `above` are the real paths of the folders around it."""
    here = os.path.join(root, folder) if folder else root
    real = os.path.realpath(here)
    if real in above or len(above) > MAX_DEPTH:
        raise CumuloError("path_not_allowed", f"{folder} is a link back into itself, or nested too deep")
    try:
        names = sorted(os.listdir(here))
    except OSError as error:
        raise CumuloError("path_not_allowed", f"{here} can't be read: {error.strerror}") from None
    for name in ignore.FILES:
        if name in names:
            rules = rules.joined(folder, _lines(os.path.join(here, name)))
    empty = True
    for name in names:
        path = f"{folder}/{name}" if folder else name
        if name in ignore.ALWAYS:
            continue
        source = os.path.join(here, name)
        is_link, found = _look(root, path, source, rules)
        if found is None:
            continue
        empty = False
        if stat.S_ISDIR(found.st_mode):
            yield from _walk(root, path, rules, (*above, real))
        elif stat.S_ISREG(found.st_mode):
            yield _file(path, os.path.realpath(source) if is_link else source, found)
        else:
            kind = "a socket" if stat.S_ISSOCK(found.st_mode) else "a pipe or device"
            raise CumuloError(
                "path_not_allowed", f"{path} is {kind}: it can't travel", hint="list it in .cumuloignore, or remove it"
            )
    if empty and folder:
        yield Entry(path=folder, source=here, is_folder=True)


def _look(root: str, path: str, source: str, rules: ignore.Rules) -> tuple[bool, os.stat_result | None]:
    """Whether it is a link, and the state of the file (or what the link points to); None if it stays behind."""
    try:
        found = os.lstat(source)
    except FileNotFoundError:
        return False, None  # it went while we looked
    is_link = stat.S_ISLNK(found.st_mode)
    # git takes a link for a file, whatever it points to.
    if rules.ignores(path, is_folder=stat.S_ISDIR(found.st_mode)):
        return is_link, None
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "replace")
        raise CumuloError("path_not_allowed", f"the name of {shown!r} is not UTF-8") from None
    if not is_link:
        return False, found
    real = os.path.realpath(source)
    if real != root and not real.startswith(root + os.sep):
        raise CumuloError(
            "path_not_allowed",
            f"{path} is a link that leads out of the folder, to {real}",
            hint="list it in .cumuloignore, copy what it points to, or mount that folder with --mount",
        )
    try:
        return True, os.stat(source)
    except OSError:
        raise CumuloError(
            "path_not_allowed", f"{path} is a link to nothing", hint="remove it, or list it in .cumuloignore"
        ) from None


def _file(path: str, source: str, found: os.stat_result) -> Entry:
    return Entry(path=path, source=source, size=found.st_size, mode=0o755 if found.st_mode & stat.S_IXUSR else 0o644)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
            return file.read(1 << 20).splitlines()
    except OSError:
        return []


def manifest(tree: Tree, digests: Digests) -> Manifest:
    """Reads the files of `tree` and describes them. Raises CumuloError when a file can't be read."""
    described: list[ManifestEntry] = []
    sources: dict[str, tuple[str, int]] = {}
    for entry in tree.entries:
        if entry.is_folder:
            described.append(ManifestEntry(entry.path))
            continue
        try:
            found = os.stat(entry.source)
            digest = digests.of(entry.source, found)
        except OSError as error:
            raise CumuloError("path_not_allowed", f"{entry.path} can't be read: {error.strerror}") from None
        sources[digest] = (entry.source, found.st_size)
        described.append(ManifestEntry(entry.path, entry.mode, found.st_size, digest))
    data = render_manifest(make_manifest(described))
    return Manifest(data, hashlib.sha256(data).hexdigest(), sources)
