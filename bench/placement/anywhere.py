"""What could be let in if all that runs moved for free whenever it helps: what is turned away for lack of capacity.

A run is let in unless that breaks a law that every placement keeps, however it is arranged: the prices of `bound` (by
weak duality what runs is worth no more than all GPUs, CPUs and memory at these prices), and for runs of several GPUs,
that there are only so many places where one, or one that needs more, can lie. Nothing here says that a placement
exists, so no policy that turns away only what does not fit can be expected to do better.
"""

from collections.abc import Sequence

import numpy as np

from bench.placement.bound import Bound, Floats
from bench.placement.openb_trace import Nodes, Pod, Trace


class Anywhere:
    """Runs of one trace that lie nowhere in particular: `held[law]` of `room[law]`, by the classes' `weights`."""

    def __init__(self, trace: Trace, nodes: Nodes) -> None:
        bound = Bound(trace, nodes)
        weights, room = _prices(bound)
        places, most = _places(trace.classes, nodes)
        self.weights, self.room = np.vstack([weights, places]).T.copy(), np.concatenate([room, most])
        self.held = np.zeros(len(self.room))
        self.number: dict[int, int] = {}
        self.moves = 0

    def start(self, run: int, number: int) -> bool:
        after = self.held + self.weights[number]
        if (after > self.room + 1e-6).any():
            return False
        self.held, self.number[run] = after, number
        return True

    def end(self, run: int) -> None:
        self.held = self.held - self.weights[self.number.pop(run)]


def _prices(bound: Bound) -> tuple[Floats, Floats]:
    """(weights, room): a law for each tariff, in GPUs. Without GPU a run takes CPUs and memory of the cheapest type."""
    shape, capacity = bound.shape, bound.capacity
    kinds = capacity.devices > 0
    weights = [
        np.where(
            shape.gain > 0,
            shape.gain - tariff.pod,
            (tariff.cpu[kinds, None] * shape.cpus + tariff.memory[kinds, None] * shape.memory).min(axis=0),
        )
        for tariff in bound.tariffs
    ]
    return np.array(weights), np.array([tariff.value(capacity, np.zeros(len(shape.gain))) for tariff in bound.tariffs])


def _places(pods: Sequence[Pod], nodes: Nodes) -> tuple[Floats, Floats]:
    """(weights, room): for each class of several GPUs, itself and all that need as much, and the places there are."""
    laws, room = [], []
    for pod in pods:
        if pod.gpus > 1:
            laws.append([float(_needs_as_much(other, pod)) for other in pods])
            there = np.minimum(nodes.gpus // pod.gpus, nodes.cpus // max(1, pod.cpus))
            there = np.minimum(there, nodes.memory // max(1, pod.memory))
            room.append(float(there[(pod.models >> nodes.model) & 1 > 0].sum()))
    return np.array(laws).reshape(len(laws), len(pods)), np.array(room)


def _needs_as_much(one: Pod, as_other: Pod) -> bool:
    """Whether no node holds more of the one than of the other."""
    more = all(mine >= its for mine, its in zip(one[:4], as_other[:4], strict=True))
    return more and not one.models & ~as_other.models
