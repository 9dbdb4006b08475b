"""The published policies to compare with: FGD and best fit, as the simulator of the FGD paper scores them.

Weng et al., "Beware of Fragmentation", USENIX ATC 2023. A score is a whole number from 0 to 100 and the first node of
the highest score is taken. Two points that the paper leaves open and that its published figures settle: typical pods
are told apart by CPUs, GPUs and GPU types, not by memory; and to a typical pod without GPU all idle GPUs are fragments.

Written for itself, in loops that numba compiles, so that no mistake of Cumulo's own kernels is shared.
"""

from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from bench.placement.openb_trace import Ints, Nodes, Pod, Trace

DEVICES: Final = 8  # the most on one node
COVERED: Final = 0.95  # of all pods, by the typical ones
# What best fit measures CPUs and GPUs by: the simulator's largest node, in thousandths.
_MOST_CPUS: Final = 128_000.0
_MOST_MILLI: Final = 8_000.0
_WHOLE: Final = 1000
_NEVER: Final = -(2**15)
_compile: Any = numba.njit(cache=True, nogil=True)


class Cluster(NamedTuple):
    """What is free of N nodes: CPUs (milli), memory (MiB), `free[n, d]` thousandths; `changes[n]` counts."""

    cpus: Ints
    memory: Ints
    model: Ints
    free: Ints
    changes: Ints


class Pods(NamedTuple):
    """Classes of pods as arrays; `models` are bit masks."""

    cpus: Ints
    memory: Ints
    gpus: Ints
    milli: Ints
    models: Ints
    weight: NDArray[np.float64]


class Scores(NamedTuple):
    """(classes, nodes): the score, the device of a fraction, and after how many changes of the node that was."""

    score: NDArray[np.int16]
    device: NDArray[np.int8]
    seen: Ints


class Reference:
    """`fgd` or `bestfit` on nodes in a fixed order."""

    def __init__(self, policy: str, trace: Trace, nodes: Nodes) -> None:
        count, classes = len(nodes), len(trace.classes)
        free = np.where(np.arange(DEVICES) < nodes.gpus[:, None], _WHOLE, 0)
        self.cluster = Cluster(nodes.cpus.copy(), nodes.memory.copy(), nodes.model, free, np.zeros(count, np.int64))
        self.pods = _arrays(trace.classes, trace.counts)
        self.typical = typical_pods(trace)
        self.scores = Scores(
            np.full((classes, count), _NEVER, np.int16),
            np.full((classes, count), -1, np.int8),
            np.full((classes, count), -1, np.int64),
        )
        self.by_fragment = policy == "fgd"

    def arrive(self, number: int) -> tuple[int, list[int]] | None:
        """Places a pod of a class: (node, devices), None where it does not fit."""
        node = int(_pick(self.cluster, self.pods, self.typical, self.scores, number, self.by_fragment))
        if node < 0:
            return None
        pod, free = self._pod(number), self.cluster.free[node]
        if not pod.gpus:
            devices = []
        elif pod.milli < _WHOLE:
            devices = [int(self.scores.device[number, node])]
        else:
            devices = np.flatnonzero(free == _WHOLE)[: pod.gpus].tolist()
        self._change(pod, node, devices, sign=-1)
        return node, devices

    def leave(self, number: int, node: int, devices: list[int]) -> None:
        """Gives back what a placed pod took."""
        self._change(self._pod(number), node, devices, sign=1)

    def _pod(self, number: int) -> Pod:
        pods = self.pods
        return Pod(*(int(array[number]) for array in pods[:5]))

    def _change(self, pod: Pod, node: int, devices: list[int], *, sign: int) -> None:
        cluster = self.cluster
        cluster.cpus[node] += sign * pod.cpus
        cluster.memory[node] += sign * pod.memory
        for device in devices:
            cluster.free[node, device] += sign * pod.milli
        cluster.changes[node] += 1


def typical_pods(trace: Trace) -> Pods:
    """The most frequent classes, memory aside, that together are 95 % of the pods; weights sum to 1."""
    merged: dict[Pod, int] = {}
    for pod, count in zip(trace.classes, trace.counts.tolist(), strict=True):
        key = pod._replace(memory=0)
        merged[key] = merged.get(key, 0) + count
    total, covered = sum(merged.values()), 0
    kept: list[Pod] = []
    for pod in sorted(merged, key=lambda pod: (-merged[pod], pod)):
        if covered >= COVERED * total:
            break
        kept.append(pod)
        covered += merged[pod]
    return _arrays(kept, [merged[pod] for pod in kept])


def fragment(node_cpus: int, model: int, free: Ints, typical: Pods) -> float:
    """F of a node: the idle thousandths that a pod drawn from the typical ones could not use, on the average."""
    return float(_fragment(node_cpus, model, free, typical))


def _arrays(pods: Any, counts: Any) -> Pods:
    weight = np.array(counts, dtype=np.float64)
    columns = np.array([tuple(pod) for pod in pods], dtype=np.int64).reshape(-1, 5).T
    cpus, memory, gpus, milli, models = (np.ascontiguousarray(column) for column in columns)
    return Pods(cpus, memory, gpus, milli, models, weight / weight.sum())


@_compile
def _fragment(cpus, model, free, typical):  # type: ignore[no-untyped-def]
    idle = free.sum()
    if idle == 0:
        return 0.0
    found = 0.0
    for index in range(typical.cpus.shape[0]):
        gpus, milli = typical.gpus[index], typical.milli[index]
        wasted = idle
        if gpus > 0 and cpus >= typical.cpus[index] and (typical.models[index] >> model) & 1:
            fitting, small = 0, 0
            for device in range(free.shape[0]):
                if free[device] >= milli:
                    fitting += 1
                else:
                    small += free[device]
            if fitting >= gpus:
                wasted = small
        found += typical.weight[index] * wasted
    return found


@_compile
def _fgd_score(before, after):  # type: ignore[no-untyped-def]
    return int(100.0 / (1.0 + np.exp(-(before - after) / 1000.0)))


@_compile
def _fgd(cluster, pods, typical, number, node):  # type: ignore[no-untyped-def]
    """(score, device) of a pod on a node where it fits."""
    model, milli = cluster.model[node], pods.milli[number]
    cpus, free = cluster.cpus[node], cluster.free[node].copy()
    before = _fragment(cpus, model, free, typical)
    left = cpus - pods.cpus[number]
    if milli == 0 or milli == _WHOLE:
        wanted = pods.gpus[number]
        for device in range(free.shape[0]):
            if wanted > 0 and free[device] == _WHOLE:
                free[device] = 0
                wanted -= 1
        return _fgd_score(before, _fragment(left, model, free, typical)), -1
    best, chosen = -1, -1
    for device in range(free.shape[0]):
        now = free[device]
        known = now < milli
        for other in range(device):
            known = known or free[other] == now
        if known:
            continue
        free[device] = now - milli
        score = _fgd_score(before, _fragment(left, model, free, typical))
        free[device] = now
        if score > best:
            best, chosen = score, device
    return best, chosen


@_compile
def _best_fit(cluster, pods, number, node):  # type: ignore[no-untyped-def]
    """(score, device) of a pod on a node where it fits: the fullest device that a fraction fits on."""
    free, milli = cluster.free[node], pods.milli[number]
    left = (cluster.cpus[node] - pods.cpus[number]) / _MOST_CPUS
    left += (free.sum() - pods.gpus[number] * milli) / _MOST_MILLI
    chosen = -1
    if 0 < milli < _WHOLE:
        for device in range(free.shape[0]):
            if free[device] >= milli and (chosen < 0 or free[device] < free[chosen]):
                chosen = device
    return int((1.0 - 0.5 * left) * 100.0), chosen


@_compile
def _fits(cluster, pods, number, node):  # type: ignore[no-untyped-def]
    if pods.cpus[number] > cluster.cpus[node] or pods.memory[number] > cluster.memory[node]:
        return False
    if pods.gpus[number] == 0:
        return True
    if not (pods.models[number] >> cluster.model[node]) & 1:
        return False
    fitting = 0
    for device in range(cluster.free.shape[1]):
        if cluster.free[node, device] >= pods.milli[number]:
            fitting += 1
    return fitting >= pods.gpus[number]


@_compile
def _pick(cluster, pods, typical, scores, number, by_fragment):  # type: ignore[no-untyped-def]
    """The first node of the highest score, −1 where the pod fits on none. Only nodes that changed are scored anew."""
    best, chosen = _NEVER, -1
    for node in range(cluster.cpus.shape[0]):
        if scores.seen[number, node] != cluster.changes[node]:
            score, device = _NEVER, -1
            if _fits(cluster, pods, number, node):
                if by_fragment:
                    score, device = _fgd(cluster, pods, typical, number, node)
                else:
                    score, device = _best_fit(cluster, pods, number, node)
            scores.score[number, node], scores.device[number, node] = score, device
            scores.seen[number, node] = cluster.changes[node]
        if scores.score[number, node] > best:
            best, chosen = scores.score[number, node], node
    return chosen
