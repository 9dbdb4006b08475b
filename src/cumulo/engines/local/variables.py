"""The environment variables of a run: a clean set, what the run asks for, and what it can know about itself.

Nothing of the server's own environment passes. The order is: defaults, then the run's `env`, then ours.

For programs that run on several nodes, the names their authors look for are set:

- `MASTER_ADDR`, `MASTER_PORT`: where rank 0 listens; PyTorch's `env://` and torchrun's `--master_addr` read them.
- `RANK`, `WORLD_SIZE`: of instances, one a node. A program with one process a node needs nothing more; torchrun
  replaces both in the workers it starts (`torchrun --nnodes $CUMULO_NUM_NODES --node_rank $CUMULO_RANK …`).
- `LOCAL_RANK` is left to launchers on purpose: libraries take its presence for "a launcher started me", and would use
  one GPU of eight.
- `CUMULO_GPU_MILLI`, `CUMULO_GPU_MEMORY` (bytes), `CUMULO_GPU_SHARING`: how much of each GPU is the run's, and how it
  is shared. Where nothing enforces a fraction, a program that keeps to them is a good neighbour.
- `CUMULO_NOTICE` names a file that is not there until the run has to make room for others; then it holds
  `CUMULO_PREEMPT_AT=<epoch seconds>`, for a shell to source. `CUMULO_HAZARD` is how likely that is, as
  `age:hazard,age:hazard,…` in seconds and per second, where it is known; `CUMULO_BEGAN_AT` is what ages count from.
- `PYTHONPATH` ends with the folder that holds `cumulo.job`. It is no complete package, so that where Cumulo itself is
  installed, that one is found.
- `CUMULO_NODE_IPS`, one address a line in order of rank, is what `mpirun --hostfile` and SkyPilot's scripts expect;
  SkyPilot's own names are set too, so that its tasks run unchanged.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cumulo.domain.instance import InstanceSpec

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CUDA_FOLDERS: Final = ("/usr/local/nvidia/bin", "/usr/local/cuda/bin")


def defaults(*, user: str, home: Path, python_links: Path) -> dict[str, str]:
    """What any run begins with, before its own `env`."""
    cuda = [folder for folder in _CUDA_FOLDERS if os.path.isdir(folder)]
    return {
        "PATH": ":".join((SYSTEM_PATH, *cuda, str(python_links))),
        "HOME": str(home),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108  # the sandbox's own, or the machine's
        "PYTHONUNBUFFERED": "1",
    }


def ours(
    spec: InstanceSpec, *, checkpoint: Path, outputs: Path, progress: Path, notice: Path, library: Path, now: float
) -> dict[str, str]:
    """What Cumulo tells a run; nothing in `env` overrides it, but a PYTHONPATH there comes before ours."""
    uuids = ",".join(each.device_uuid for each in spec.slices)
    nodes, gpus, ips = str(len(spec.peers)), str(len(spec.slices)), "\n".join(spec.peers)
    rank = str(spec.rank)
    told = {
        "CUDA_VISIBLE_DEVICES": uuids,  # empty hides all
        "NVIDIA_VISIBLE_DEVICES": uuids or "void",
        "CUMULO_CLOUD_ID": spec.cloud_id,
        "CUMULO_RUN_ID": spec.run_id,
        "CUMULO_RUN_NAME": spec.run_name,
        "CUMULO_INSTANCE_ID": spec.instance_id,
        "CUMULO_ATTEMPT": str(spec.attempt),
        "CUMULO_CHECKPOINT_DIR": str(checkpoint),
        "CUMULO_OUTPUT_DIR": str(outputs),
        "CUMULO_PROGRESS": str(progress),
        "CUMULO_NOTICE": str(notice),
        "CUMULO_BEGAN_AT": f"{now:.3f}",
        "PYTHONPATH": ":".join(filter(None, (spec.env.get("PYTHONPATH"), str(library)))),
        "CUMULO_RANK": rank,
        "CUMULO_NUM_NODES": nodes,
        "CUMULO_NODE_IPS": ips,
        "CUMULO_GPUS_PER_NODE": gpus,
        "MASTER_ADDR": spec.peers[0],
        "MASTER_PORT": str(spec.master_port),
        "RANK": rank,
        "WORLD_SIZE": nodes,
        "SKYPILOT_NODE_RANK": rank,
        "SKYPILOT_NODE_IPS": ips,
        "SKYPILOT_NUM_NODES": nodes,
        "SKYPILOT_NUM_GPUS_PER_NODE": gpus,
    }
    if spec.slices:
        told |= {
            "CUMULO_GPU_SHARING": str(spec.slices[0].mode),
            "CUMULO_GPU_MILLI": str(spec.slices[0].milli),
            "CUMULO_GPU_MEMORY": str(spec.slices[0].memory_bytes),
        }
    if spec.hazard:
        told["CUMULO_HAZARD"] = ",".join(f"{age_s:g}:{per_s:.4g}" for age_s, per_s in spec.hazard)
    if spec.array_index is not None:
        told["CUMULO_ARRAY_INDEX"] = str(spec.array_index)
    return told


def with_environment(variables: Mapping[str, str], venv: Path) -> dict[str, str]:
    """The same with a virtual environment first on PATH."""
    return {**variables, "VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{variables['PATH']}"}
