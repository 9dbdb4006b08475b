"""The openb trace (Alibaba cluster-trace-gpu-v2023) as classes of asks, arrivals and nodes.

Source: github.com/alibaba/clusterdata; Weng et al., USENIX ATC 2023. The data is for research and not shipped: the
benchmarks read it from the folder they are given.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MODELS = ("A10", "G2", "G3", "P100", "T4", "V100M16", "V100M32")
MIB = 2**20
Ints = NDArray[np.int64]


class BadTrace(ValueError):
    """A trace that is not there, or that says what can't be."""


class Pod(NamedTuple):
    """A class of pods that ask for the same. `models` is a bit mask over MODELS; memory in MiB."""

    cpus: int
    memory: int
    gpus: int
    milli: int
    models: int

    @property
    def total_milli(self) -> int:
        return self.gpus * self.milli

    @property
    def group(self) -> int:
        """0 without GPU, 1 a fraction, 2 one GPU, 3 several."""
        return 0 if not self.gpus else 1 if self.milli < 1000 else 2 if self.gpus == 1 else 3


@dataclass(frozen=True, slots=True)
class Nodes:
    """N nodes: CPUs (milli), memory (MiB), devices, and the index of the model in MODELS."""

    cpus: Ints
    memory: Ints
    gpus: Ints
    model: Ints

    @property
    def total_milli(self) -> int:
        return int(self.gpus.sum()) * 1000

    def ordered(self, order: Ints) -> "Nodes":
        return Nodes(self.cpus[order], self.memory[order], self.gpus[order], self.model[order])

    def __len__(self) -> int:
        return len(self.cpus)


@dataclass(frozen=True)
class Trace:
    """The pods of one list, sorted by name as the protocol has it: `pods[i]` is the class of the i-th."""

    name: str
    classes: tuple[Pod, ...]
    pods: Ints

    @cached_property
    def counts(self) -> Ints:
        return np.bincount(self.pods, minlength=len(self.classes))

    @cached_property
    def milli(self) -> Ints:
        """What each class asks of GPUs, in thousandths."""
        return np.array([pod.total_milli for pod in self.classes])

    def arrivals(self, random: np.random.Generator, total_milli: int, *, upto: float = 1.3) -> Ints:
        """Classes in order of arrival: shuffled, then pods drawn again until `upto` of the capacity is asked for."""
        order = random.permutation(self.pods)
        asked, most = int(self.milli[order].sum()), int(total_milli * upto)
        while asked > most:
            drop = int(random.integers(len(order)))
            asked -= int(self.milli[order[drop]])
            order = np.delete(order, drop)
        more: list[int] = []
        while True:
            drawn = int(order[random.integers(len(order))])
            if asked + self.milli[drawn] > most:
                return np.concatenate([order, np.array(more, dtype=np.int64)])
            asked += int(self.milli[drawn])
            more.append(drawn)


def folder_of(traces: Path) -> Path:
    """The folder of the trace: the one given, or `openb` in it. Raises BadTrace."""
    for folder in (traces, traces / "openb"):
        if (folder / "openb_node_list_gpu_node.csv").is_file():
            return folder
    raise BadTrace(
        f"{traces} has no openb_node_list_gpu_node.csv, nor {traces / 'openb'}: --traces must name the folder"
    )


def read_nodes(folder: Path) -> Nodes:
    """The 1,213 GPU nodes. Raises BadTrace."""
    rows = [
        (int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), _model(row["model"], "a node"))
        for row in _rows(folder, "openb_node_list_gpu_node.csv")
    ]
    cpus, memory, gpus, model = np.array(rows, dtype=np.int64).T
    return Nodes(cpus, memory, gpus, model)


def read_pods(folder: Path, name: str) -> Trace:
    """A list of pods by its short name (`default`, `cpu250`). Raises BadTrace."""
    named = []
    for row in _rows(folder, f"openb_pod_list_{name}.csv"):
        gpus, models = int(row["num_gpu"]), (1 << len(MODELS)) - 1
        if spec := row.get("gpu_spec"):
            models = sum(1 << _model(model, f"pod {row['name']}") for model in spec.split("|"))
        milli = int(row["gpu_milli"]) if gpus else 0
        if gpus < 0 or not 0 <= milli <= 1000 or (gpus > 1 and milli < 1000):
            raise BadTrace(f"{name}: pod {row['name']} asks for {gpus} GPUs of {milli} milli each")
        named.append((row["name"], Pod(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, models)))
    named.sort(key=lambda each: each[0])
    classes = sorted(Counter(pod for _, pod in named))
    number = {pod: index for index, pod in enumerate(classes)}
    return Trace(name, tuple(classes), np.array([number[pod] for _, pod in named]))


def names(folder: Path) -> list[str]:
    """The short names of the pod lists that are there. Raises BadTrace if there are none."""
    found = {path.name.removeprefix("openb_pod_list_").split(".")[0] for path in folder.glob("openb_pod_list_*.csv*")}
    if not found:
        raise BadTrace(f"{folder} has no openb_pod_list_*.csv; give the folder of the openb trace with --traces")
    return sorted(found, key=lambda name: (name != "default", name.rstrip("0123456789"), name))


def _model(name: str, of: str) -> int:
    if name not in MODELS:
        raise BadTrace(f"{of} has the unknown GPU model {name!r}; known are {', '.join(MODELS)}")
    return MODELS.index(name)


def _rows(folder: Path, file: str) -> Iterator[dict[str, str]]:
    for path in (folder / file, folder / f"{file}.gz"):
        if path.is_file():
            with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
                yield from csv.DictReader(lines)
            return
    raise BadTrace(f"{folder / file} is not there, nor {file}.gz")
