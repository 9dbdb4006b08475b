"""Where everything of a node lies, below one folder. Names only; who makes what is said beside each.

epoch                       the newest epoch seen
instances/ID/               the supervisor's folder (0700, ours): spec.json, state.json, exit.json, log, …
                            and instance.json, the InstanceSpec as it was handed over
ended/ID/                   the same, once released
areas/ID/                   the instance's own folder (0700, its user's): workdir, tmp, script, progress, notice, …
runs/RUN/UNIT/              kept over attempts (the user's): checkpoint, outputs, and the workdir of a dev run
homes/UID/                  scratch homes
environments/UID/DIGEST/    virtual environments
bin/                        `python3` and `python` for runs on a machine whose PATH has none
lib/                        what runs may import: `cumulo.job`
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cumulo.domain.instance import InstanceSpec

# Others pass through on the way to what is theirs, and list nothing.
PASSAGE = 0o711


@dataclass(frozen=True)
class Layout:
    """The folders of a node below `root`. Each is worked out once, since every instance asks for all of them."""

    root: Path

    @cached_property
    def epoch(self) -> Path:
        return self.root / "epoch"

    @cached_property
    def instances(self) -> Path:
        return self.root / "instances"

    @cached_property
    def ended(self) -> Path:
        return self.root / "ended"

    @cached_property
    def areas(self) -> Path:
        return self.root / "areas"

    @cached_property
    def runs(self) -> Path:
        return self.root / "runs"

    @cached_property
    def homes(self) -> Path:
        return self.root / "homes"

    @cached_property
    def environments(self) -> Path:
        return self.root / "environments"

    @cached_property
    def bin(self) -> Path:
        return self.root / "bin"

    @cached_property
    def lib(self) -> Path:
        return self.root / "lib"

    def make(self) -> None:
        """Raises OSError where the state folder can't be written."""
        self.root.mkdir(mode=PASSAGE, parents=True, exist_ok=True)
        for folder in (self.areas, self.runs, self.homes, self.environments):
            folder.mkdir(mode=PASSAGE, exist_ok=True)
        for folder in (self.instances, self.ended):
            folder.mkdir(mode=0o700, exist_ok=True)
        for folder in (self.bin, self.lib):
            folder.mkdir(mode=0o755, exist_ok=True)

    def instance(self, instance_id: str) -> Path:
        return self.instances / _plain(instance_id)

    def find(self, instance_id: str) -> Path:
        """The instance's folder, released or not. Raises KeyError."""
        for folder in (self.instance(instance_id), self.ended / instance_id):
            if folder.is_dir():
                return folder
        raise KeyError(instance_id)

    def holds(self, instance_id: str) -> bool:
        """Whether the instance has been written down here, released or not."""
        return (self.instance(instance_id) / "instance.json").exists() or (self.ended / instance_id).exists()

    def area(self, instance_id: str) -> Path:
        return self.areas / _plain(instance_id)

    def notice(self, instance_id: str) -> Path:
        """Where an instance reads that it must leave."""
        return self.area(instance_id) / "notice"

    def unit(self, spec: InstanceSpec) -> Path:
        return self.runs / _plain(spec.run_id) / str(spec.unit)

    def workdir(self, spec: InstanceSpec) -> Path:
        """A dev run finds its workdir as it left it; anything else begins with a fresh one."""
        return self.unit(spec) / f"workdir-{spec.rank}" if spec.dev else self.area(spec.instance_id) / "workdir"

    def ids(self) -> Iterator[str]:
        with os.scandir(self.instances) as entries:
            yield from (entry.name for entry in entries)


def _plain(name: str) -> str:
    """Ids become names of folders; they come from the store, and still."""
    if not name or name.startswith(".") or "/" in name or "\0" in name or len(name) > 120:
        raise ValueError(f"{name!r} can't be an id")
    return name
