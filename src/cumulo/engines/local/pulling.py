"""The phase `pulling`: what a run brings with it, made real in its workdir."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from cumulo.domain.errors import CumuloError
from cumulo.domain.manifest import Manifest, parse_manifest
from cumulo.engines.protocol import BlobSource
from cumulo.node.files import Owner, make_folder, materialise, remove_tree

_MANIFESTS_KEPT = 8


class Puller:
    """Copies files from a blob source. Remembers the last manifests, since an array's instances share theirs."""

    def __init__(self, blobs: BlobSource) -> None:
        self._blobs = blobs
        self._manifests: OrderedDict[str, Manifest] = OrderedDict()
        self._lock = threading.Lock()

    def manifest(self, digest: str) -> Manifest:
        """Raises CumuloError for one that is not stored or can't be read."""
        with self._lock:
            found = self._manifests.get(digest)
        if found is None:
            try:
                found = parse_manifest(self._blobs.read(digest))
            except KeyError as error:
                text = "the list of the run's files is no longer stored"
                raise CumuloError("not_found", text, hint="launch the run again to upload them anew") from error
        with self._lock:
            self._manifests[digest] = found
            self._manifests.move_to_end(digest)
            while len(self._manifests) > _MANIFESTS_KEPT:
                self._manifests.popitem(last=False)
        return found

    def contents(self, files: tuple[tuple[str, str], ...]) -> dict[str, str]:
        """Path below the workdir → digest, of all that the manifests hold."""
        found: dict[str, str] = {}
        for target, digest in files:
            prefix = "" if target == "." else f"{target}/"
            found.update({prefix + entry.path: entry.digest for entry in self.manifest(digest).entries if entry.digest})
        return found

    def fill(
        self,
        workdir: Path,
        files: tuple[tuple[str, str], ...],
        *,
        owner: Owner | None,
        cancelled: Callable[[], bool],
    ) -> None:
        """Makes `workdir` with all files in it, at once: it is there when it is whole. Nothing happens if it is there.

        Raises CumuloError, Cancelled or OSError.
        """
        if not files:
            make_folder(workdir, owner=owner, mode=0o755)
        if not files or workdir.exists():
            return
        part = workdir.with_name(f".{workdir.name}.part")
        remove_tree(part)  # left by a server that was killed while pulling
        make_folder(part, owner=owner, mode=0o755)
        for target, digest in files:
            root = _target(part, target, owner)
            entries = self.manifest(digest).entries
            materialise(entries, root=root, read=self._blobs.chunks, owner=owner, cancelled=cancelled)
        part.rename(workdir)


def _target(part: Path, target: str, owner: Owner | None) -> Path:
    """The folder of a mount of files, made step by step inside the workdir that nobody else has seen yet."""
    here = part
    if target == ".":
        return here
    for name in target.split("/"):
        if name in ("", "..", "~"):
            text = f"files can't be placed at {target!r}: the place must be relative to the workdir, without '..'"
            raise CumuloError("path_not_allowed", text)
        if name == ".":
            continue
        here = here / name
        try:
            make_folder(here, owner=owner, mode=0o755)
        except NotADirectoryError as error:
            raise CumuloError(
                "path_not_allowed", f"files can't be placed at {target!r}: a file is in the way"
            ) from error
    if not here.is_dir():
        raise CumuloError("path_not_allowed", f"files can't be placed at {target!r}: a file is in the way")
    return here
