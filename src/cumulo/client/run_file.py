"""A run as a person describes it, on its way to the server: the YAML file, and what of this machine travels with it.

Paths are replaced by manifests of uploaded files, and a requirements file by its lines. What a key may hold is the
server's to judge; its verdicts are pointed at the line of the file.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cumulo.client import workdir
from cumulo.client.api import Client
from cumulo.client.digests import Digests
from cumulo.client.upload import Progress, upload
from cumulo.client.workdir import Entry, Tree
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import name_from
from cumulo.wire.deadline import resolved


@dataclass(frozen=True, slots=True)
class Draft:
    """A run file before its files are uploaded: `data` for the plan, `trees` for what will travel, by target.

    The target "." is the workdir. `point` puts the file and line before an error about one of its keys.
    """

    data: dict[str, Any]
    trees: dict[str, Tree]
    point: Callable[[CumuloError], CumuloError]

    @property
    def size(self) -> int:
        return sum(tree.size for tree in self.trees.values())

    @property
    def files(self) -> int:
        return sum(tree.files for tree in self.trees.values())

    @property
    def is_large(self) -> bool:
        return any(tree.is_large for tree in self.trees.values())


def read(path: str | Path, text: bytes | None = None) -> tuple[dict[str, Any], Callable[[CumuloError], CumuloError]]:
    """The mapping in a YAML file and what points errors at its lines. Raises CumuloError."""
    from cumulo.wire.yaml_file import read_yaml  # PyYAML is for those who launch from a file

    source = str(path)
    if text is None:
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise CumuloError("invalid_run_file", f"{source} can't be read: {error.strerror}") from None
    document = read_yaml(text, source=source)
    return document.data, document.point


def draft(
    data: Mapping[str, Any],
    folder: Path,
    *,
    point: Callable[[CumuloError], CumuloError] = lambda error: error,
) -> Draft:
    """Looks at the paths in `data`, which are relative to `folder`. Reads no file but a requirements file."""
    data = dict(data)
    if "deadline" in data:
        data["deadline"] = resolved(data["deadline"], datetime.now())  # the time of day here is meant
    trees: dict[str, Tree] = {}
    requirements = data.get("requirements")
    if isinstance(requirements, str):
        data["requirements"] = _requirements(folder / requirements)
    if isinstance(data.get("workdir"), str):
        tree = workdir.scan(folder / os.path.expanduser(data.pop("workdir")))
        if tree.entries and not tree.root.is_dir():
            raise CumuloError("path_not_allowed", f"workdir must be a folder, and {tree.root} is a file")
        trees["."] = tree
    mounts = data.get("file_mounts")
    if isinstance(mounts, dict):
        for target, source in mounts.items():
            if isinstance(source, str) and "://" not in source:
                _mount(trees, str(target), folder / os.path.expanduser(source))
        kept = {target: source for target, source in mounts.items() if not isinstance(source, str) or "://" in source}
        data["file_mounts"] = kept
    return Draft(data, trees, point)


def _mount(trees: dict[str, Tree], target: str, source: Path) -> None:
    """A folder becomes a tree of its own; a single file joins the tree of the folder that it is to lie in."""
    tree = workdir.scan(source)
    if not tree.root.is_file():
        trees[target] = tree
        return
    parent, _, name = target.rpartition("/")
    parent = parent or ("/" if target.startswith("/") else ".")
    if target.endswith("/"):
        name = tree.root.name
    only = tree.entries[0]
    entry = Entry(path=name, source=only.source, size=only.size, mode=only.mode)
    there = trees.get(parent, Tree(tree.root.parent, ()))
    others = tuple(one for one in there.entries if one.path != name)
    trees[parent] = Tree(there.root, (*others, entry))


def _requirements(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CumuloError("invalid_run_file", f"requirements: {path} can't be read: {error}") from None
    for line in lines:
        if line.strip().startswith(("-r", "-c", "-e", "--requirement", "--constraint", "--editable")):
            raise CumuloError(
                "invalid_run_file",
                f"requirements: {path} has the line {line.strip()!r}, which names other files",
                hint="install it in setup instead: `setup: pip install -r requirements.txt`",
            )
    return lines


def complete(
    client: Client,
    drafted: Draft,
    *,
    env: Mapping[str, str] | None = None,
    on_progress: Progress | None = None,
) -> dict[str, Any]:
    """Uploads what travels; the run file to submit. Raises CumuloError."""
    data = dict(drafted.data)
    if not drafted.trees:
        return data
    digests = Digests.load(os.environ if env is None else env)
    mounts = dict(data.get("file_mounts") or {})
    for target, tree in drafted.trees.items():
        reference = {"manifest": upload(client, tree, digests, on_progress=on_progress)}
        if target == ".":
            data["workdir"] = reference
        else:
            mounts[target] = reference
    if mounts:
        data["file_mounts"] = mounts
    return data


def name_of_command(argv: list[str]) -> str:
    """A name for a run of this command: its script rather than its interpreter, `train` for `python -u train.py`."""
    words = [word for word in argv if not word.startswith("-") and "=" not in word]
    interpreters = ("python", "bash", "sh", "env", "torchrun", "mpirun", "srun", "accelerate", "uv", "run", "exec")
    for word in words:
        stem = Path(word).stem
        if stem.rstrip("0123456789.") not in interpreters:
            return name_from(stem)
    return name_from(Path(words[0]).stem) if words else "run"
