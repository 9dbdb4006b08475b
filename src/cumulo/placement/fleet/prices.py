"""What a place is worth: the dual prices of a fluid model in which the expected mix flows into the fleet.

Maximise the GPUs put to use, when demand just exceeds what is there, over patterns of asks on a device (column
generation: Gilmore and Gomory, Operations Research 9(6), 1961), within each kind's devices, CPUs and memory and each
ask's share of the demand. The price of an ask's demand is what one more such ask would add; the rest of what it brings,
its `net`, is what the room it takes is worth to others. Of asks that fill the room whole the net is all they bring; of
small ones, of which there are too few for the holes that others leave, it is little. CPU-only asks come whatever they
cost, so they are given a gain that is always met.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cumulo.domain.quantities import GIB
from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.placement.fleet.interior import Floats, NoSolution, central_prices
from cumulo.placement.fleet.mix import AskShape, Demand, gpu_share

# The thousandths of a device in which residues are told: asks are rounded up to them, what is free down.
CELL: Final = 10
CELLS: Final = WHOLE_MILLI // CELL
# Demand beside capacity; how far from the corner to stop, a device being 1 and the fleet too; a CPU's forced gain.
_LOAD: Final = 1.03
_MU: Final = 5e-5
_CPU_GAIN: Final = 0.15
_ROUNDS: Final = 6
_WORTHWHILE: Final = 1e-3
# A pattern that costs so much more than it gains won't be needed soon.
_FAR: Final = 0.05


class Capacity(NamedTuple):
    """What there is of each kind, K long: devices, CPUs (milli), memory (bytes); and the most that one node of it has.

    Kind −1 of CPU-only nodes is last.
    """

    devices: Floats
    cpus: Floats
    memory: Floats
    node_devices: Floats
    node_cpus: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """`net[c]`: what the c-th demand costs others, in devices; `cpu[k]`: the price of a CPU of kind k, in devices.

    `filled`: how devices of each kind may well be filled at these prices, for the next review to begin with.
    """

    demands: tuple[Demand, ...]
    net: Floats
    cpu: Floats
    filled: tuple[tuple[int, tuple[tuple[AskShape, int], ...]], ...] = ()


NO_PRICES: Final = Prices(demands=(), net=np.zeros(0), cpu=np.zeros(0))

# A pattern: on which kind, and which demands lie there how often.
Pattern = tuple[int, tuple[tuple[int, int], ...]]


class _Fluid:
    """The program, with the patterns found so far."""

    def __init__(self, demands: Sequence[Demand], capacity: Capacity) -> None:
        self.demands, self.capacity = demands, capacity
        self.patterns: list[Pattern] = []
        self.known: set[Pattern] = set()
        self.cells = cells_of(demands, len(capacity.devices))
        self.gpus = np.array([gpu_share(demand.shape) for demand in demands])
        self.cores = np.array([demand.shape.cpus / 1000 for demand in demands])
        self.memory = np.array([demand.memory / GIB for demand in demands])
        self.gain = np.where(self.gpus > 0, self.gpus, _CPU_GAIN * self.cores)
        self.fractions = np.array([0 < demand.shape.gpus * max(demand.shape.milli) < WHOLE_MILLI for demand in demands])

    def begin(self, before: Prices) -> None:
        """Each demand by itself, where it is admitted, and as often as a device takes it; and what was good before."""
        for index, demand in enumerate(self.demands):
            for kind, milli in enumerate(demand.shape.milli):
                if milli and not self.capacity.devices[kind]:
                    continue
                if milli or not demand.shape.gpus:
                    self.add((kind, ((index, 1),)))
                if 0 < milli < WHOLE_MILLI:
                    self.add((kind, ((index, WHOLE_MILLI // milli),)))
        numbers = {demand.shape: index for index, demand in enumerate(self.demands)}
        for kind, items in before.filled:
            if all(shape in numbers for shape, _ in items):
                self.add((kind, tuple(sorted((numbers[shape], count) for shape, count in items))))

    def add(self, pattern: Pattern) -> bool:
        if pattern in self.known:
            return False
        self.known.add(pattern)
        self.patterns.append(pattern)
        return True

    def matrix(self) -> tuple[Floats, Floats, Floats]:
        """(use, limits, gain): rows are devices, CPUs and memory of each kind, then the demands; a device is 1."""
        kinds, demands = len(self.capacity.devices), len(self.demands)
        use, gain = np.zeros((3 * kinds + demands, len(self.patterns))), np.zeros(len(self.patterns))
        for column, (kind, items) in enumerate(self.patterns):
            use[kind, column] = self.demands[items[0][0]].shape.gpus
            for index, count in items:
                use[kinds + kind, column] += count * self.cores[index]
                use[2 * kinds + kind, column] += count * self.memory[index]
                use[3 * kinds + index, column] = count
                gain[column] += count * self.gain[index]
        total = self.capacity.devices.sum()
        shares = np.array([demand.share for demand in self.demands])
        asked = shares / (shares @ self.gpus) * _LOAD
        there = np.concatenate([self.capacity.devices, self.capacity.cpus / 1000, self.capacity.memory / GIB]) / total
        return use, np.concatenate([there, asked]), gain

    def better(self, prices: Floats) -> int:
        """Adds each kind's most gainful pattern of fractions at these prices; how many are new."""
        kinds = len(self.capacity.devices)
        device, core, memory = prices[:kinds], prices[kinds : 2 * kinds], prices[2 * kinds : 3 * kinds]
        value = self.gain - prices[3 * kinds :] - core[:, None] * self.cores - memory[:, None] * self.memory
        best, choice = fill(np.where(self.fractions & (self.cells > 0), value, 0.0), self.cells)
        new = 0
        for kind in range(kinds):
            if self.capacity.devices[kind] and best[kind, CELLS] > device[kind] + _WORTHWHILE:
                new += self.add((kind, _pattern(choice[kind], self.cells[kind])))
        return new

    def filled(
        self, prices: Floats, use: Floats, gain: Floats
    ) -> tuple[tuple[int, tuple[tuple[AskShape, int], ...]], ...]:
        """`Prices.filled` at these prices, of the patterns that they were found with."""
        near = np.flatnonzero(prices @ use - gain < _FAR)
        patterns = [self.patterns[column] for column in near.tolist()]
        return tuple(
            (kind, tuple((self.demands[index].shape, count) for index, count in items))
            for kind, items in patterns
            if len(items) > 1
        )


def prices_of(demands: Sequence[Demand], capacity: Capacity, before: Prices = NO_PRICES) -> Prices:
    """The prices of a mix on a fleet, found sooner from those `before`.

    Without devices, or where the program has no solution, there are none.
    """
    demands = [fitted for demand in demands if (fitted := _on_one_node(demand, capacity)) is not None]
    if not any(demand.shape.gpus for demand in demands):
        return NO_PRICES
    fluid = _Fluid(demands, capacity)
    fluid.begin(before)
    kinds = len(capacity.devices)
    prices = np.zeros(3 * kinds + len(demands))
    for _ in range(_ROUNDS):
        use, limits, gain = fluid.matrix()
        there = limits > 0
        possible = ~use[~there].any(axis=0)
        try:
            prices[there] = central_prices(use[there][:, possible], limits[there], gain[possible], _MU)
        except NoSolution:
            return NO_PRICES
        if not fluid.better(prices):
            break
    net = np.where(fluid.gpus > 0, np.maximum(fluid.gpus - prices[3 * kinds :], 0.0), 0.0)
    return Prices(
        demands=tuple(demands), net=net, cpu=prices[kinds : 2 * kinds], filled=fluid.filled(prices, use, gain)
    )


def _on_one_node(demand: Demand, capacity: Capacity) -> Demand | None:
    """The demand, for the kinds only of which a node is large enough for it; None where there is none."""
    shape = demand.shape
    if not shape.gpus:
        return demand
    fits = (capacity.devices > 0) & (capacity.node_devices >= shape.gpus) & (capacity.node_cpus >= shape.cpus)
    milli = tuple(each if there else 0 for each, there in zip(shape.milli, fits.tolist(), strict=True))
    return demand._replace(shape=shape._replace(milli=milli)) if any(milli) else None


def cells_of(demands: Sequence[Demand], kinds: int) -> NDArray[np.int64]:
    """(kinds, demands): how many cells of a device each demand takes, 0 where it takes none of that kind."""
    milli = np.array([demand.shape.milli for demand in demands], dtype=np.int64).reshape(len(demands), kinds)
    return -(-milli.T // CELL)


def fill(value: Floats, cells: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """The unbounded knapsack of devices: (best[row, free cells], choice[row, free cells]).

    `value[row, item]` counts where above 0, `cells` is (rows, items), 0 where an item does not go. A choice is the item
    put in last, −1 for none.
    """
    rows = np.arange(len(value))
    best = np.zeros((len(value), CELLS + 1))
    choice = np.full((len(value), CELLS + 1), -1)
    usable = (value > 0) & (cells > 0)
    items = np.flatnonzero(usable.any(axis=0))
    if not len(items):
        return best, choice
    value, cells = np.where(usable, value, -np.inf)[:, items], np.where(usable, cells, CELLS + 1)[:, items]
    # For each free, row and item: where in `known` the best of what the item leaves is. What does not fit is last.
    known = np.zeros((CELLS + 1) * len(value) + 1)
    known[-1] = -np.inf
    left = np.arange(CELLS + 1)[:, None, None] - cells
    place = np.where(left >= 0, left * len(value) + rows[:, None], len(known) - 1)
    best = known[:-1].reshape(CELLS + 1, len(value))
    most = np.zeros((CELLS + 1, len(value)), dtype=np.int64)
    for free in range(1, CELLS + 1):
        filled = known[place[free]]
        filled += value
        filled.argmax(axis=1, out=most[free])
        np.maximum(filled[rows, most[free]], best[free - 1], out=best[free])
    choice[:, 1:] = np.where(best[1:] > best[:-1], items[most[1:]], -2).T
    return np.ascontiguousarray(best.T), choice


def _pattern(choice: NDArray[np.int64], cells: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    free, counts = CELLS, dict[int, int]()
    while free > 0 and choice[free] != -1:
        item = int(choice[free])
        if item == -2:
            free -= 1
            continue
        counts[item] = counts.get(item, 0) + 1
        free -= int(cells[item])
    return tuple(sorted(counts.items()))
