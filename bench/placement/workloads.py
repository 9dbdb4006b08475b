"""The published workloads that are replayed as queues: when each job comes, for how long it runs, on how many GPUs.

What a file does not hold is said here, with where it was taken from:

- Sia's workloads name an application and a number of replicas, and no duration. The GPU-hours of an application are
  those that the README of Sia's simulator (github.com/siasosp23/artifacts, commit 2c7ac0f) prints for its ten `saturn`
  workloads under Gavel, summed over its three kinds of GPU; a job runs for that divided by its replicas.
- Tiresias' 60 jobs come to two nodes of eight GPUs: on its 60 GPUs none of them would wait.
- `stream` is made here: one job that needs half of the GPUs, in an endless stream of small ones that fill 95 % of them.
- Philly's virtual clusters have no size. Each gets the fewest nodes of eight GPUs on which its work fills LOAD of the
  time from the first arrival to the last, and on which its largest job fits.
"""

import csv
import gzip
import io
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from random import Random

GPUS_A_NODE = 8
LOAD = 0.85
SIA_GPU_HOURS = {"cifar10": 2.034, "bert": 2.420, "deepspeech2": 8.054, "yolov3": 18.674, "imagenet": 309.873}


@dataclass(frozen=True, slots=True)
class Job:
    """Seconds since the first arrival, seconds of run time, GPUs in all, and who asked."""

    at: float
    seconds: float
    gpus: int
    project: str = "default"

    @property
    def nodes(self) -> int:
        return ceil(self.gpus / GPUS_A_NODE)

    @property
    def gpus_a_node(self) -> int:
        """As evenly as it goes: 12 GPUs are 6 on each of two nodes."""
        return ceil(self.gpus / self.nodes)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of their arrival, and the nodes of eight GPUs they come to."""

    name: str
    nodes: int
    jobs: list[Job]

    @property
    def load(self) -> float:
        """The work that comes, by the work that could be done until the last comes."""
        span = self.jobs[-1].at - self.jobs[0].at
        return sum(job.seconds * job.gpus for job in self.jobs) / (span * self.nodes * GPUS_A_NODE)


NAMES = (
    *("stream", "tiresias", "muri-cluster", "muri-1", "muri-2", "muri-3", "muri-4"),
    *("sia-saturn", "sia-philly", "sia-newtrace", "philly-VC", "philly"),
)


def read(traces: Path, name: str) -> list[Workload]:
    """The workloads that a name stands for. Raises ValueError for a name or a folder that is not there."""
    family, _, part = name.partition("-")
    if name == "stream":
        return [_stream()]
    folder = traces / ("philly" if family == "philly" else "jct-workloads")
    if not folder.is_dir():
        raise ValueError(f"{folder} is not there: --traces must name the folder that has it")
    if name == "tiresias":
        rows = _rows((folder / "tiresias_60_job.csv").read_text())
        jobs = (Job(float(r["submit_time"]), float(r["duration"]), int(r["num_gpu"])) for r in rows)
        return [Workload(name, 2, _sorted(jobs))]
    if family == "muri" and part:
        file = "muri_cluster_trace" if part == "cluster" else f"muri_philly_trace{part}"
        return [Workload(name, 8, _muri(folder / f"{file}.csv.gz"))]
    if family == "sia" and part:
        return list(_sia(folder / "sia_workloads.tar.gz", part))
    if family == "philly":
        return _philly(folder / "philly_jobs_pollux.csv.gz", part)
    raise ValueError(f"no workload is called {name!r}; there are {', '.join(NAMES)}")


def _stream() -> Workload:
    """Runs of one GPU, of an hour on average, come to 32 GPUs for two days; the large one comes after two hours."""
    random = Random(1)
    jobs = [Job(2 * 3600.0, 3600.0, 16)]
    at = 0.0
    while at < 48 * 3600:
        jobs.append(Job(at, random.expovariate(1 / 3600), 1))
        at += random.expovariate(0.95 * 32 / 3600)
    return Workload("stream", 4, _sorted(iter(jobs)))


def _rows(text: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(io.StringIO(text))


def _unzipped(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{path} is not there")
    with gzip.open(path, "rt") as lines:
        return lines.read()


def _sorted(jobs: Iterator[Job]) -> list[Job]:
    ordered = sorted(jobs, key=lambda job: job.at)
    first = ordered[0].at
    return [Job(job.at - first, max(1.0, job.seconds), job.gpus, job.project) for job in ordered]


def _muri(path: Path) -> list[Job]:
    rows = _rows(_unzipped(path))
    return _sorted(Job(float(r["submit_time"]) / 1000, float(r["duration"]) / 1000, int(r["num_gpu"])) for r in rows)


def _sia(path: Path, part: str) -> Iterator[Workload]:
    with tarfile.open(path) as tar:
        for member in sorted((each for each in tar if each.isfile()), key=lambda each: (len(each.name), each.name)):
            folder, _, file = member.name.partition("/")
            content = tar.extractfile(member)
            if folder != part or content is None:
                continue
            rows = _rows(content.read().decode())
            jobs = _sorted(
                Job(
                    float(r["time"]),
                    SIA_GPU_HOURS[r["application"]] * 3600 / int(r["num_replicas"]),
                    int(r["num_replicas"]),
                )
                for r in rows
            )
            yield Workload(f"sia-{part}-{file.removeprefix('workload-').removesuffix('.csv')}", 8, jobs)


def _philly(path: Path, cluster: str) -> list[Workload]:
    by_cluster: dict[str, list[Job]] = defaultdict(list)
    for r in _rows(_unzipped(path)):
        at = datetime.fromisoformat(r["timestamp"]).replace(tzinfo=UTC).timestamp()
        by_cluster[r["cluster"]].append(Job(at, float(r["duration"]), int(r["num_gpus"]), r["cluster"]))
    if cluster and cluster not in by_cluster:
        raise ValueError(f"philly has no virtual cluster {cluster!r}; there are {', '.join(sorted(by_cluster))}")
    chosen = by_cluster[cluster] if cluster else [job for jobs in by_cluster.values() for job in jobs]
    jobs = _sorted(iter(chosen))
    span = jobs[-1].at
    nodes = ceil(sum(job.seconds * job.gpus for job in jobs) / span / LOAD / GPUS_A_NODE)
    return [Workload(f"philly-{cluster}" if cluster else "philly", max(nodes, max(job.nodes for job in jobs)), jobs)]
