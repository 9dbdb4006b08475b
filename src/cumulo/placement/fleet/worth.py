"""What the state of a node is worth, in tables of integers: a choice costs the worth it takes away.

Two measures are added, each a sum over a node's devices of a number looked up by what is free of the device:

- The value of what is free at the fluid prices (`prices`): the best the free room of a node may be filled with, each
  ask counting its `net`. The node's CPUs couple its devices; the coupling is relaxed by a price per CPU (Lagrange), and
  of a few such prices the one that gives the lowest, so the tightest, bound counts for a node. While nothing leaves
  none is below the fluid price. As runs come and go that no longer holds: CPUs beside GPUs that are all taken may be
  had for nothing, so that runs without GPU go there and leave CPUs to GPUs that are free.
- The fragmentation of FGD (Weng et al., USENIX ATC 2023): the idle part of devices that an ask drawn from the mix could
  not use. It matters as runs come and go, for holes that nothing fills at once stay open until something leaves; and
  where devices are not what is scarce, so that the prices say nothing of them. Otherwise it counts little. FGD draws by
  heads; as runs come and go, an ask is drawn by how much it takes, to a power: a hole that turns away one run of eight
  GPUs loses as much as eight that each turn away one, and opens more rarely. That is worth half a point of the GPUs.
  Where those who insist on a few kinds would fill them, such an ask is drawn the more often the fewer these devices
  are: what a hole turns away there goes nowhere else.

Everything is in nano-devices, so that no two implementations round differently.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.placement.fleet.mix import gpu_share, weight
from cumulo.placement.fleet.prices import CELLS, Capacity, Prices, cells_of, fill
from cumulo.placement.fleet.rows import Int64s

NANO: Final = 1_000_000_000
# The prices per CPU that are tried, as shares of what a device's worth of CPUs would cost if they were all that counts.
_CPU_SHARES: Final = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8)
# The power once as much leaves as comes; none while nothing leaves. 1.5 and 2 do better than 1 and 3 on openb's traces.
_BIG: Final = 1.5
# One in so many devices is few enough: losses must fit 32 bits.
_FEWEST: Final = 64.0
# The least that fragmentation counts, and the price of a device from which on no more is needed.
_ALWAYS: Final = 0.06
_DEAR: Final = 0.5
_CONVEX: Final = 0.05


class Worth(NamedTuple):
    """The tables. K kinds, J prices per CPU, B thresholds of CPUs, G devices on a row.

    `cpu[k, j]`: worth of a free milli-CPU. `whole[k, n, j]`: of n devices that are free whole. `part[k, cell, j]`: of a
    device of which so many cells are free. `steps[b]`: CPUs that asks need, ascending. `idle[k, b, cell]`: what each
    free thousandth of a device costs while it is idle, where the node has CPUs for the first b steps; `block[k, b, n]`:
    what of it asks for several devices do not, n being free whole.
    """

    cpu: Int64s
    whole: Int64s
    part: Int64s
    steps: Int64s
    idle: Int64s
    block: Int64s


def worth_of(prices: Prices, capacity: Capacity, *, devices: int, ended: float) -> Worth:
    """`devices`: the most on one row. `ended`: the share of what was placed that has left again, 0 to 1."""
    cpu, whole, part = _values(prices, capacity, devices, ended)
    steps, idle, block = _fragmentation(prices, capacity, devices, ended)
    holes = _weight_of_holes(whole, capacity, ended) if len(prices.net) else 0.0
    return Worth(
        cpu=_nano(cpu / 1000),
        whole=_nano(whole.transpose(0, 2, 1)),
        part=_nano(part.transpose(0, 2, 1)),
        steps=steps,
        idle=_nano(idle * holes / WHOLE_MILLI),
        block=_nano(block * holes / WHOLE_MILLI),
    )


def _weight_of_holes(whole: NDArray[np.float64], capacity: Capacity, ended: float) -> float:
    """How much fragmentation counts, 0 to 1: more as runs come and go, and all where devices have no price."""
    device = float(whole[:, :, 1].max(axis=1) @ capacity.devices / capacity.devices.sum())
    return max(_ALWAYS, ended, 1.0 - device / _DEAR)


def _nano(array: NDArray[np.float64]) -> Int64s:
    return np.ascontiguousarray(np.rint(array * NANO).astype(np.int64))


def _values(prices: Prices, capacity: Capacity, devices: int, ended: float) -> tuple[NDArray[np.float64], ...]:
    kinds, shares = len(capacity.devices), np.array(_CPU_SHARES)
    per_cpu = np.divide(1000 * capacity.devices, capacity.cpus, out=np.zeros(kinds), where=capacity.cpus > 0)
    cpu = per_cpu[:, None] * shares
    if not len(prices.net):
        return _unseen(per_cpu, devices)
    cpu = np.maximum(cpu, (1.0 - ended) * prices.cpu[:, None])
    cells = cells_of(prices.demands, kinds)
    gpus = np.array([demand.shape.gpus for demand in prices.demands])
    cores = np.array([demand.shape.cpus / 1000 for demand in prices.demands])
    value = np.where(cells[:, None, :] > 0, prices.net - cpu[:, :, None] * cores, 0.0)
    fractions = np.where((gpus == 1) & (cells < CELLS), cells, 0)
    flat = value.reshape(kinds * len(shares), -1)
    part = fill(flat, np.repeat(fractions, len(shares), axis=0))[0].reshape(kinds, len(shares), -1)
    whole = np.zeros((kinds, len(shares), devices + 1))
    best = np.zeros_like(whole)  # of one ask for so many whole devices
    best[:, :, 1] = part[:, :, CELLS]
    for index in np.flatnonzero((gpus > 0) & (cells.max(axis=0) == CELLS) & (gpus <= devices)):
        best[:, :, gpus[index]] = np.maximum(best[:, :, gpus[index]], value[:, :, index])
    for count in range(1, devices + 1):
        filled = [best[:, :, first] + whole[:, :, count - first] for first in range(1, count + 1)]
        whole[:, :, count] = np.maximum(whole[:, :, count - 1], np.max(filled, axis=0))
    return cpu, whole, part


def _unseen(per_cpu: NDArray[np.float64], devices: int) -> tuple[NDArray[np.float64], ...]:
    """The worth while nothing is known of what is asked: best fit, parts beside parts, CPU-only runs off the GPUs."""
    count, share = np.arange(devices + 1.0), np.arange(CELLS + 1.0) / CELLS
    whole = count + _CONVEX * count**2 / devices
    part = 0.9 * share + _CONVEX * share**2
    kinds = len(per_cpu)
    return (
        (_CONVEX * per_cpu)[:, None],
        np.broadcast_to(whole, (kinds, 1, devices + 1)),
        np.broadcast_to(part, (kinds, 1, CELLS + 1)),
    )


def _fragmentation(
    prices: Prices, capacity: Capacity, devices: int, ended: float
) -> tuple[Int64s, NDArray[np.float64], NDArray[np.float64]]:
    kinds = len(capacity.devices)
    steps = np.unique(np.array([demand.shape.cpus for demand in prices.demands], dtype=np.int64))
    usable = np.zeros((kinds, len(steps) + 1, CELLS + 1))
    block = np.zeros((kinds, len(steps) + 1, devices + 1))
    cells = cells_of(prices.demands, kinds)
    drawn = np.array([demand.share * weight(demand.shape) ** (_BIG * ended) for demand in prices.demands])
    drawn = drawn / drawn.sum() * _insistence(prices, capacity, cells) ** ended
    for index, (demand, share) in enumerate(zip(prices.demands, drawn, strict=True)):
        step = int(np.searchsorted(steps, demand.shape.cpus, side="right"))
        for kind in np.flatnonzero(cells[:, index]):
            if demand.shape.gpus == 1:
                usable[kind, step:, cells[kind, index] :] += share
            elif demand.shape.gpus <= devices:
                block[kind, step:, demand.shape.gpus :] += share
    return steps, drawn.sum() - usable, block


def _insistence(prices: Prices, capacity: Capacity, cells: Int64s) -> NDArray[np.float64]:
    """How much more often an ask comes to a device that it may have than if all would do, where that matters.

    A power tells where: the square of how far the kinds that admit it are filled by asks that no other kind admits.
    """
    admits = (cells > 0) & (capacity.devices > 0)[:, None]
    asked = np.array([demand.share * gpu_share(demand.shape) for demand in prices.demands])
    # inside[d, c]: what admits the d-th admits the c-th too.
    inside = ~(admits[:, :, None] & ~admits[:, None, :]).any(axis=0)
    devices = capacity.devices @ admits / capacity.devices.sum()
    few = np.divide(1.0, devices, out=np.ones(len(devices)), where=devices > 0)
    filled = np.minimum(1.0, (asked / asked.sum()) @ inside * few)
    found: NDArray[np.float64] = few**filled**2
    return found
