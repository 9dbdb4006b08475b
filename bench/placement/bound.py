"""An upper bound on what any policy can have allocated once so much has arrived, even one that knew it all before.

The linear program: choose how many pods of each class are let in, as patterns on the GPUs of a node type (column
generation, Gilmore and Gomory 1961), with each type's GPUs, CPUs and memory pooled and no more pods of a class than
arrived. By weak duality every set of prices bounds it, so prices that are near the best bound it from above however
they were found: those for a trace's mean arrivals serve every seed, and nothing here rests on a solver being exact.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.placement.openb_trace import MODELS, Nodes, Pod, Trace
from cumulo.placement.fleet.interior import NoSolution, central_prices

Floats = NDArray[np.float64]
_KINDS: Final = len(MODELS)
# Pods are rounded down to cells of a GPU, which can only raise the bound; the trace's own are multiples of ten.
_CELL: Final = 10
_CELLS: Final = 1000 // _CELL
_ROUNDS: Final = 25
# How far from the corner the prices are, first and later: central ones make for better patterns.
_GAPS: Final = (1e-5, 1e-6, 1e-7, 1e-8)
_SAME_GAP: Final = 3  # rounds, at most
_MOST_NEW: Final = 60  # patterns of each type in one round
_WORTHWHILE: Final = 1e-5
_GIB: Final = 1024.0  # MiB


class Tariff(NamedTuple):
    """Prices in GPUs: of a GPU, a CPU and a GiB of each type, and of a pod of each class that arrived."""

    device: Floats
    cpu: Floats
    memory: Floats
    pod: Floats

    def value(self, capacity: "Capacity", arrived: Floats) -> float:
        """The bound, in GPUs, where pods of each class have arrived so often."""
        there = self.device @ capacity.devices + self.cpu @ capacity.cpus + self.memory @ capacity.memory
        return float(there + self.pod @ arrived)


class Capacity(NamedTuple):
    """GPUs, CPUs and GiB of each type."""

    devices: Floats
    cpus: Floats
    memory: Floats


class _Shape(NamedTuple):
    """The classes as arrays: GPUs' worth, GPUs touched, cells, CPUs, GiB, and which types admit them."""

    gain: Floats
    gpus: Floats
    cells: NDArray[np.int64]
    cpus: Floats
    memory: Floats
    admits: NDArray[np.bool_]
    fraction: NDArray[np.bool_]


class Bound:
    """Bounds for one trace on some nodes."""

    def __init__(self, trace: Trace, nodes: Nodes, *, load: float = 1.0) -> None:
        self.capacity = Capacity(
            devices=np.bincount(nodes.model, weights=nodes.gpus, minlength=_KINDS).astype(np.float64),
            cpus=np.bincount(nodes.model, weights=nodes.cpus / 1000, minlength=_KINDS).astype(np.float64),
            memory=np.bincount(nodes.model, weights=nodes.memory / _GIB, minlength=_KINDS).astype(np.float64),
        )
        self.shape = _shape(trace.classes)
        asked = trace.counts @ self.shape.gain
        self.tariffs = _tariffs(self.shape, self.capacity, trace.counts * (load * self.capacity.devices.sum() / asked))

    def __call__(self, arrived: Floats) -> float:
        """% of all GPUs. `arrived[c]`: how many pods of the c-th class; a mean over moments bounds their mean."""
        found = min(tariff.value(self.capacity, arrived) for tariff in self.tariffs)
        return 100 * found / float(self.capacity.devices.sum())


def _shape(pods: Sequence[Pod]) -> _Shape:
    columns = np.array([tuple(pod) for pod in pods], dtype=np.int64)
    cpus, memory, gpus, milli, models = columns.T
    return _Shape(
        gain=gpus * milli / 1000,
        gpus=gpus.astype(float),
        cells=milli // _CELL,
        cpus=cpus / 1000,
        memory=memory / _GIB,
        admits=((models[None, :] >> np.arange(_KINDS)[:, None]) & 1 > 0) | (gpus == 0),
        fraction=(gpus == 1) & (milli < 1000),
    )


# A pattern: the type, and how often each class lies in it.
_Pattern = tuple[int, tuple[tuple[int, int], ...]]


def _tariffs(shape: _Shape, capacity: Capacity, expected: Floats) -> list[Tariff]:
    """Ever better prices; the last are within a few thousandths of a per cent of the best for `expected`."""
    patterns = _first_patterns(shape, capacity)
    found: list[Tariff] = []
    for turn in range(_ROUNDS):
        gap = _GAPS[min(turn // _SAME_GAP, len(_GAPS) - 1)]
        use, limits = _matrix(shape, capacity, patterns, expected)
        gain = np.array([sum(count * shape.gain[index] for index, count in items) for _, items in patterns])
        there = limits > 0
        prices = np.zeros(len(limits))
        try:
            prices[there] = central_prices(use[there], limits[there], gain, gap)
        except NoSolution:
            if found:
                break
            raise
        tariff, new = _covering(shape, capacity, prices)
        found.append(tariff)
        fresh = [pattern for pattern in new if pattern not in patterns]
        if not fresh and turn >= _SAME_GAP * (len(_GAPS) - 1):
            break
        patterns.update(dict.fromkeys(fresh))
    return found


def _first_patterns(shape: _Shape, capacity: Capacity) -> dict[_Pattern, None]:
    """Each class by itself where it is admitted, once and as often as a GPU takes it."""
    found: dict[_Pattern, None] = {}
    for kind in np.flatnonzero(capacity.devices).tolist():
        for index in np.flatnonzero(shape.admits[kind]).tolist():
            if shape.gain[index]:
                found[kind, ((index, 1),)] = None
            if shape.fraction[index] and shape.cells[index]:
                found[kind, ((index, _CELLS // int(shape.cells[index])),)] = None
    return found


def _matrix(
    shape: _Shape, capacity: Capacity, patterns: dict[_Pattern, None], expected: Floats
) -> tuple[Floats, Floats]:
    """(use, limits): rows are GPUs, CPUs and GiB of each type, then the classes, a fleet's GPUs being 1."""
    use = np.zeros((3 * _KINDS + len(expected), len(patterns)))
    for column, (kind, items) in enumerate(patterns):
        use[kind, column] = shape.gpus[items[0][0]]
        for index, count in items:
            use[_KINDS + kind, column] += count * shape.cpus[index]
            use[2 * _KINDS + kind, column] += count * shape.memory[index]
            use[3 * _KINDS + index, column] = count
    return use, np.concatenate([*capacity, np.where(shape.gain > 0, expected, 0.0)]) / capacity.devices.sum()


def _covering(shape: _Shape, capacity: Capacity, prices: Floats) -> tuple[Tariff, list[_Pattern]]:
    """Prices raised until they cover every pattern, so that they bound; and patterns that they did not cover."""
    device, cpu, memory = prices[:_KINDS].copy(), prices[_KINDS : 2 * _KINDS], prices[2 * _KINDS : 3 * _KINDS]
    pod = prices[3 * _KINDS :]
    net = shape.gain - pod - cpu[:, None] * shape.cpus - memory[:, None] * shape.memory
    net = np.where(shape.admits & (shape.gain > 0), net, -np.inf)
    new: list[_Pattern] = []
    for kind in np.flatnonzero(capacity.devices).tolist():
        whole = net[kind] / np.maximum(shape.gpus, 1)
        knapsack = _Knapsack(np.where(shape.fraction, net[kind], 0.0), shape.cells)
        new += [(kind, items) for items in knapsack.better(device[kind] + _WORTHWHILE)]
        device[kind] = max(device[kind], knapsack.best[_CELLS], float(whole[~shape.fraction].max(initial=0.0)))
    return Tariff(device, cpu, memory, pod), new


class _Knapsack:
    """The most value that so many free cells of one GPU may take, classes being put in any number of times."""

    def __init__(self, value: Floats, cells: NDArray[np.int64]) -> None:
        self.value, self.cells = value, cells
        self.usable = np.flatnonzero((value > 0) & (cells > 0))
        self.best, self.last = np.zeros(_CELLS + 1), np.full(_CELLS + 1, -1)
        for free in range(1, _CELLS + 1):
            self.best[free] = self.best[free - 1]
            fits = self.usable[cells[self.usable] <= free]
            if len(fits):
                filled = self.best[free - cells[fits]] + value[fits]
                most = int(filled.argmax())
                if filled[most] > self.best[free]:
                    self.best[free], self.last[free] = filled[most], fits[most]

    def better(self, than: float) -> list[tuple[tuple[int, int], ...]]:
        """For each class the best pattern that has it, the best first, where its value is above `than`."""
        having = self.value[self.usable] + self.best[_CELLS - self.cells[self.usable]]
        order = np.argsort(-having)[:_MOST_NEW]
        return [self._pattern(int(self.usable[index])) for index in order if having[index] > than]

    def _pattern(self, first: int) -> tuple[tuple[int, int], ...]:
        counts, free = {first: 1}, _CELLS - int(self.cells[first])
        while free > 0:
            if (item := int(self.last[free])) < 0:
                free -= 1
            else:
                counts[item] = counts.get(item, 0) + 1
                free -= int(self.cells[item])
        return tuple(sorted(counts.items()))
