"""What an ask would cost on each of some rows: the worth of the row before less the worth after, by NumPy.

`compiled` has the same in loops; a test holds the two to the same answers.
"""

from typing import Final, NamedTuple

import numpy as np

from cumulo.domain.quantities import GIB, MIB
from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.placement.fleet.prices import CELL
from cumulo.placement.fleet.rows import EMPTY, Int8s, Int16s, Int32s, Int64s, Rows, State
from cumulo.placement.fleet.worth import Worth

# Losses are told in micro-devices; this one where the ask does not fit.
NEVER: Final = np.int32(2**31 - 1)
MICRO: Final = 1000  # nano in a micro
# An ask that names no CPUs or memory gets its devices' share of the node, cut to what is free, down to this.
LEAST_CPUS: Final = 1000
LEAST_MEMORY: Final = 2 * GIB
# A part of a GPU brings at least this much of its node, unless less is asked for.
LEAST_SHARE_CPUS: Final = 100
LEAST_SHARE_MEMORY: Final = 256 * MIB
# Above the thousandths of a device: of devices where the ask costs the same the fullest is taken, then the first.
TIES: Final = 1024
_TOP: Final = np.iinfo(np.int64).max


class Asked(NamedTuple):
    """An ask for one instance on one row. `milli[k]`: thousandths of each of `gpus` devices of kind k, 0 where it won't
    do. `cpus` (milli) and `memory` (bytes) are −1 for the default share. `mode`: how a fraction is shared.
    """

    gpus: int
    milli: Int16s
    cpus: int
    memory: int
    mode: int


def needs(state: State, rows: Int32s, asked: Asked, milli: Int64s) -> tuple[Int64s, Int64s]:
    """CPUs and memory that the ask takes of each row's node (`placement.fit.need_of` in arrays)."""
    cpus = _need(
        asked.cpus, state.node_cpus[rows], state.cpus[rows], milli, state.devices[rows], LEAST_CPUS, LEAST_SHARE_CPUS
    )
    least = LEAST_MEMORY * max(1, asked.gpus)
    memory = _need(
        asked.memory,
        state.node_memory[rows],
        state.memory[rows],
        milli,
        state.devices[rows],
        least,
        LEAST_SHARE_MEMORY,
    )
    return cpus, memory


def _need(
    asked: int, total: Int64s, free: Int64s, milli: Int64s, devices: Int32s, least: int, least_share: int
) -> Int64s:
    if asked >= 0:
        return np.full(len(total), asked, dtype=np.int64)
    share = np.maximum(least_share, total * milli // (WHOLE_MILLI * devices.astype(np.int64)))
    found: Int64s = np.minimum(np.minimum(share, np.maximum(free, least)), total)
    return found


class Stood(NamedTuple):
    """What R rows are worth as they are: `sums[r, j]` of the value at each price per CPU, `worth[r]`, and `idle[r, b]`,
    what the free parts of their devices cost while idle, blocks apart, where CPUs for b steps are left (B 0: nothing).
    """

    sums: Int64s
    worth: Int64s
    idle: Int64s


class Standing:
    """What rows are worth as they are, kept for all asks."""

    def __init__(self, count: int, worth: Worth) -> None:
        steps = len(worth.steps) + 1 if worth.idle.any() else 0
        self.kept = Stood(
            sums=np.zeros((count, worth.cpu.shape[1]), dtype=np.int64),
            worth=np.zeros(count, dtype=np.int64),
            idle=np.zeros((count, steps), dtype=np.int64),
        )
        self.seen = -1

    def stale(self, rows: Rows) -> Int32s:
        """The rows that changed since the last time, which are to be worked out anew now."""
        changed = rows.since(self.seen) if self.seen >= 0 else None
        self.seen = rows.changes
        return np.arange(len(rows), dtype=np.int32) if changed is None else changed

    def refresh(self, rows: Rows, worth: Worth) -> None:
        """Works out anew the rows that changed since the last time."""
        changed = self.stale(rows)
        if not len(changed):
            return
        state = rows.state
        kind, cpus, free, full = state.kind[changed], state.cpus[changed], state.free[changed], state.full[changed]
        cells = np.where(free < WHOLE_MILLI, free // CELL, 0)
        sums = worth.cpu[kind] * cpus[:, None] + worth.whole[kind, full] + worth.part[kind[:, None], cells].sum(axis=1)
        self.kept.sums[changed] = sums
        value = sums.min(axis=1)
        if self.kept.idle.shape[1]:
            idle, every = np.zeros((len(changed), self.kept.idle.shape[1]), dtype=np.int64), np.arange(len(changed))
            for milli in free.T:
                idle += milli[:, None] * worth.idle[kind, :, milli // CELL]
            self.kept.idle[changed] = idle
            step = worth.steps.searchsorted(cpus, side="right")
            value -= idle[every, step] - full * WHOLE_MILLI * worth.block[kind, step, full]
        self.kept.worth[changed] = value


def losses(state: State, worth: Worth, standing: Standing, asked: Asked, rows: Int32s) -> tuple[Int32s, Int8s]:
    """(the loss on each row in micro-devices, NEVER where it does not fit; the device of a fraction, −1 otherwise)."""
    loss, device = np.full(len(rows), NEVER, dtype=np.int32), np.full(len(rows), -1, dtype=np.int8)
    kind = state.kind[rows]
    milli = asked.milli[kind].astype(np.int64)
    fits = state.ready[rows] & ((milli > 0) if asked.gpus else state.first[rows])
    if asked.gpus:
        fits &= (state.full[rows] >= asked.gpus) if asked.mode == EMPTY else (state.largest[rows] >= milli)
    cpus: Int64s | int = asked.cpus
    if asked.cpus >= 0 and asked.memory >= 0:
        fits &= (state.cpus[rows] >= asked.cpus) & (state.memory[rows] >= asked.memory)
    else:
        cpus, memory = needs(state, rows, asked, milli * max(1, asked.gpus))
        fits &= (cpus <= state.cpus[rows]) & (memory <= state.memory[rows])
    there = fits.nonzero()[0]
    if not len(there):
        return loss, device
    if not isinstance(cpus, int):
        cpus = cpus[there]
    if asked.mode == EMPTY:
        left = _after_whole(state, worth, standing, asked.gpus, rows[there], kind[there], cpus)
    else:
        left, best = _after_fraction(state, worth, standing, asked.mode, rows[there], kind[there], milli[there], cpus)
        there, left, best = there[best >= 0], left[best >= 0], best[best >= 0]
        device[there] = best
    loss[there] = (standing.kept.worth[rows[there]] - left) // MICRO
    return loss, device


def _after_whole(
    state: State, worth: Worth, standing: Standing, gpus: int, rows: Int32s, kind: Int32s, cpus: Int64s | int
) -> Int64s:
    """The worth of rows of which `gpus` whole devices are taken."""
    after = standing.kept.sums[rows] - worth.cpu[kind] * (cpus if isinstance(cpus, int) else cpus[:, None])
    full = state.full[rows]
    if gpus:
        after += worth.whole[kind, full - gpus] - worth.whole[kind, full]
    value: Int64s = after.min(axis=1)
    idle = standing.kept.idle
    if idle.shape[1]:
        step = worth.steps.searchsorted(state.cpus[rows] - cpus, side="right")
        left = full - gpus
        value += gpus * WHOLE_MILLI * worth.idle[kind, step, WHOLE_MILLI // CELL] - idle[rows, step]
        value += left * WHOLE_MILLI * worth.block[kind, step, left]
    return value


def _after_fraction(
    state: State,
    worth: Worth,
    standing: Standing,
    mode: int,
    rows: Int32s,
    kind: Int32s,
    milli: Int64s,
    cpus: Int64s | int,
) -> tuple[Int64s, Int8s]:
    """(the worth of rows once the fraction is on the best device of each, that device, −1 where none will do).

    Worked out for the pairs of a row and a device that has room.
    """
    free, held = state.free[rows], state.mode[rows]
    row, device = ((free >= milli[:, None]) & ((held == EMPTY) | (held == mode))).nonzero()
    now, its_kind = free[row, device].astype(np.int64), kind[row]
    rest = now - milli[row]
    whole = now == WHOLE_MILLI
    full = state.full[rows][row]
    come = worth.part[its_kind, rest // CELL]
    gone = worth.part[its_kind, now // CELL]
    opened = whole.nonzero()[0]
    if len(opened):
        of = its_kind[opened], full[opened]
        gone[opened] = worth.whole[of] - worth.whole[of[0], of[1] - 1]
    base = standing.kept.sums[rows] - worth.cpu[kind] * (cpus if isinstance(cpus, int) else cpus[:, None])
    value = (base[row] + (come - gone)).min(axis=1)
    if standing.kept.idle.shape[1]:
        step = worth.steps.searchsorted(state.cpus[rows] - cpus, side="right")
        before = standing.kept.idle[rows, step]
        its_step, still = step[row], full - whole
        value += now * worth.idle[its_kind, its_step, now // CELL] - rest * worth.idle[its_kind, its_step, rest // CELL]
        value -= before[row] - still * WHOLE_MILLI * worth.block[its_kind, its_step, still]
    # The most worth is left; of equals the fullest device, then the first.
    order = np.full(free.shape, _TOP)
    order[row, device] = now - value * TIES
    best = order.argmin(axis=1)
    chosen = order[np.arange(len(rows)), best]
    left = -(chosen // TIES)
    return left, np.where(chosen < _TOP, best, -1).astype(np.int8)
