"""What a node keeps, how much it is, and the sweep of what nobody needs any more.

What belongs to a run that has not ended is never touched: the caller says which runs those are, since a stopped dev run
has no instance here and still wants its files.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cumulo.domain.storage import Stored
from cumulo.engines.local.layout import Layout
from cumulo.node.cgroups import Cgroups
from cumulo.node.environments import Environments
from cumulo.node.files import remove_tree, tree_size
from cumulo.node.supervisor import read_json

# A folder this young without an instance may belong to one that is just being made.
_YOUNG_S: Final = 3600.0


def storage(layout: Layout) -> tuple[Stored, ...]:
    """All that the node has on its disk, by kind. Reads the whole tree: seconds where there are millions of files."""
    return (
        _sum("outputs and checkpoints", layout.runs, _children(layout.runs)),
        _sum("workdirs", layout.areas, _children(layout.areas)),
        _sum("environments", layout.environments, Environments(layout.environments).folders()),
        _sum("homes", layout.homes, _children(layout.homes)),
        _sum("records", layout.root, (*_children(layout.instances), *_children(layout.ended))),
    )


def _sum(what: str, path: Path, folders: Iterable[Path]) -> Stored:
    sizes = [tree_size(folder)[0] for folder in folders]
    return Stored(what=what, count=len(sizes), bytes=sum(sizes), path=str(path))


def _children(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.iterdir()) if folder.is_dir() else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One sweep. Seconds are since the end of an instance, or since the last use of an environment.

    Infinite: it is kept for good.
    """

    layout: Layout
    cgroups: Cgroups
    keep_s: float
    environments_s: float
    active_runs: frozenset[str]
    dry_run: bool = False

    def run(self) -> tuple[Stored, ...]:
        """What went, or with `dry_run` what would go, by kind."""
        layout, now = self.layout, time.time()
        # A run that began after `active_runs` was read has files, however soon they are to go.
        keep_s, unused_s = max(_YOUNG_S, self.keep_s), max(_YOUNG_S, self.environments_s)
        ended = [folder for folder in _children(layout.ended) if self._is_over(folder, now)]
        gone_ids = {folder.name for folder in ended}
        known = {folder.name for folder in (*_children(layout.instances), *_children(layout.ended))} - gone_ids
        areas = [
            area for area in _children(layout.areas) if area.name not in known and self._may_go(area, gone_ids, now)
        ]
        runs_left = {_run_of(folder) for name in known if (folder := self._folder(name))} | self.active_runs
        runs = [run for run in _children(layout.runs) if run.name not in runs_left and _age(run, now) > keep_s]
        environments = Environments(layout.environments).unused(unused_s=unused_s, keep=self._in_use())
        if not self.dry_run:
            self.cgroups.sweep({folder.name for folder in _children(layout.instances)})
        return (
            self._remove("outputs and checkpoints", layout.runs, runs),
            self._remove("workdirs", layout.areas, areas),
            self._remove("environments", layout.environments, environments, remove=Environments.remove),
            self._remove("records", layout.ended, ended),
        )

    def _is_over(self, folder: Path, now: float) -> bool:
        return _run_of(folder) not in self.active_runs and _age(folder / "exit.json", now) > self.keep_s

    @staticmethod
    def _may_go(area: Path, gone_ids: set[str], now: float) -> bool:
        return area.name in gone_ids or _age(area, now) > _YOUNG_S

    def _folder(self, name: str) -> Path | None:
        try:
            return self.layout.find(name)
        except KeyError:
            return None  # released at this moment

    def _in_use(self) -> frozenset[str]:
        """Digests of the environments of instances that have not been released: their specs name them."""
        specs = [spec.read_text() for each in _children(self.layout.instances) if (spec := each / "spec.json").exists()]
        all_of_them = {folder.name for folder in Environments(self.layout.environments).folders()}
        return frozenset(digest for digest in all_of_them if any(digest in text for text in specs))

    def _remove(
        self, what: str, path: Path, folders: list[Path], *, remove: Callable[[Path], None] = remove_tree
    ) -> Stored:
        gone = _sum(what, path, folders)
        for folder in folders if not self.dry_run else ():
            remove(folder)
        return gone


def _run_of(folder: Path) -> str:
    data = read_json(str(folder / "instance.json")) or {}
    return str(data.get("run_id", ""))


def _age(path: Path, now: float) -> float:
    """Seconds since the last change; 0 where there is nothing."""
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0
