"""A queue made of openb: its latest pods, with their true times, on so few of its nodes that they have to wait.

The trace `gpuspec33` has what the other workloads lack: fractions of GPUs, GPU kinds asked for by a third, CPUs and
memory. Of the cluster a thirtieth is taken, as it is mixed; a pod whose asks no node of it could ever meet is left out.
"""

import csv
import gzip
from math import ceil
from pathlib import Path
from random import Random

from bench.placement.replay import OVER, ROUND
from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.node import Device, Node
from cumulo.domain.quantities import GIB, MIB
from cumulo.domain.sharing import SharingMode
from cumulo.placement.explain import reasons
from cumulo.placement.world import Waiting, World

# The kinds of G1, G2 and G3 were never told: they are named as in the trace.
MEMORY = {"T4": 15, "P100": 16, "V100M16": 16, "V100M32": 32, "A10": 23, "G2": 16, "G3": 32}
SHAPES = (
    ("G2", 8, 96, 384, 1),
    ("G3", 8, 128, 768, 1),
    ("T4", 2, 104, 512, 3),
    ("P100", 2, 16, 120, 2),
    ("V100M32", 4, 48, 368, 1),
)
LATEST = 4000


def read(folder: Path, seed: int) -> tuple[tuple[Node, ...], list[tuple[Waiting, float]]]:
    """The nodes, and each unit with the seconds it runs, by arrival. Raises ValueError if the trace is not there."""
    path = folder / "openb_pod_list_gpuspec33.csv.gz"
    if not path.is_file():
        raise ValueError(f"{path} is not there")
    nodes = tuple(
        _node(f"{model.lower()}-{number}", model, gpus, cpus, gib)
        for model, gpus, cpus, gib, count in SHAPES
        for number in range(count)
    )
    world = World()
    for node in nodes:
        world.see_node(node.name, node)
    with gzip.open(path, "rt") as lines:
        pods = [row for row in csv.DictReader(lines) if row["scheduled_time"]]
    pods.sort(key=lambda pod: float(pod["creation_time"]))
    random = Random(seed)
    coming = []
    for number, pod in enumerate(pods[-LATEST:]):
        seconds = max(1.0, float(pod["deletion_time"]) - float(pod["scheduled_time"]))
        wanted = seconds * random.choice(OVER)
        limit = next((each for each in ROUND if each >= wanted), seconds)
        unit = _waiting(number, pod, limit)
        if reasons(world, unit.ask).ever:
            coming.append((unit, seconds))
    return nodes, coming


def _waiting(number: int, pod: dict[str, str], limit: float) -> Waiting:
    count, milli = int(pod["num_gpu"]), int(pod["gpu_milli"] or 0)
    names = tuple(filter(None, pod["gpu_spec"].split("|")))
    gpu = (
        GpuAsk(names=names, count_min=count, count_max=count, milli=milli if milli < 1000 else None) if count else None
    )
    return Waiting(
        key=(f"{number:06}", 0, 1),
        name="pod",
        ask=Ask(gpu=gpu, cpus_milli=ceil(float(pod["cpu_milli"])), memory_bytes=int(pod["memory_mib"]) * MIB),
        priority=0,
        accepted_at=float(pod["creation_time"]),
        duration_s=limit,
        project=pod["qos"],
    )


def _node(name: str, model: str, gpus: int, cpus: int, gib: int) -> Node:
    modes = (SharingMode.EXCLUSIVE, SharingMode.MPS)
    devices = tuple(
        Device(uuid=f"{name}-{index}", index=index, model=model, memory_bytes=MEMORY[model] * GIB, modes=modes)
        for index in range(gpus)
    )
    return Node(name=name, cpus_milli=cpus * 1000, memory_bytes=gib * GIB, devices=devices)
