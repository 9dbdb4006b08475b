"""The same losses in loops that numba compiles (`pip install cumulo[scale]`), for fleets of thousands of nodes."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.placement.fleet import losses as plain
from cumulo.placement.fleet.prices import CELL
from cumulo.placement.fleet.rows import EMPTY

_NEVER = int(plain.NEVER)
_MICRO, _TIES = plain.MICRO, plain.TIES
_LEAST_CPUS, _LEAST_MEMORY = plain.LEAST_CPUS, plain.LEAST_MEMORY
_SHARE_CPUS, _SHARE_MEMORY = plain.LEAST_SHARE_CPUS, plain.LEAST_SHARE_MEMORY
_TOP = int(np.iinfo(np.int64).max)
_compile: Any = numba.njit(cache=True, nogil=True)


class _Direct:
    """A kernel of one signature, called past the look at its arguments' types: that takes longer than most kernels."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._kernel: Any = _compile(function)
        self._entry: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._entry is not None:
            return self._entry(*arguments)
        result = self._kernel(*arguments)
        if len(self._kernel.overloads) == 1:
            self._entry = next(iter(self._kernel.overloads.values())).entry_point
        return result


# Tuples of arrays are taken apart before each loop: passed on for each row they would be copied, a thousand bytes each.


@_compile
def _need(asked, total, free, milli, devices, least, least_share):  # type: ignore[no-untyped-def]
    if asked >= 0:
        return asked
    share = max(least_share, total * milli // (WHOLE_MILLI * devices))
    return min(min(share, max(free, least)), total)


@_compile
def stand(state, worth, rows, kept):  # type: ignore[no-untyped-def]
    """Works out anew what `rows` are worth as they are: `losses.Standing` in loops, into its `kept`."""
    kinds, cpus, full, free = state.kind, state.cpus, state.full, state.free
    price, whole, part, idle, block = worth.cpu, worth.whole, worth.part, worth.idle, worth.block
    sums, values, wasted, thresholds = kept.sums, kept.worth, kept.idle, worth.steps
    for index in range(rows.shape[0]):
        row = rows[index]
        kind, still = kinds[row], np.int64(full[row])
        for j in range(price.shape[1]):
            sums[row, j] = price[kind, j] * cpus[row] + whole[kind, still, j]
        wasted[row] = 0
        for device in range(free.shape[1]):
            milli = np.int64(free[row, device])
            if 0 < milli < WHOLE_MILLI:
                for j in range(price.shape[1]):
                    sums[row, j] += part[kind, milli // CELL, j]
            if milli:
                for step in range(wasted.shape[1]):
                    wasted[row, step] += milli * idle[kind, step, milli // CELL]
        values[row] = sums[row].min()
        if wasted.shape[1]:
            step = np.searchsorted(thresholds, cpus[row], side="right")
            values[row] -= wasted[row, step] - still * WHOLE_MILLI * block[kind, step, still]


@_compile
def _fitting(state, gpus, asked_milli, asked_cpus, asked_memory, mode, rows, grown, seen, loss, device):  # type: ignore[no-untyped-def]
    """(those of `rows` on which the ask fits, the CPUs that it takes of each); on the others its loss is NEVER.

    What did not fit after `seen` changes, and was not freed since, is left as it is.
    """
    kinds, free_cpus, free_memory = state.kind, state.cpus, state.memory
    node_cpus, node_memory, devices = state.node_cpus, state.node_memory, state.devices
    full, largest, ready, first = state.full, state.largest, state.ready, state.first
    there, taken = np.empty(rows.shape[0], dtype=np.int32), np.empty(rows.shape[0], dtype=np.int64)
    count, least = 0, _LEAST_MEMORY * max(1, gpus)
    for index in range(rows.shape[0]):
        row = rows[index]
        if loss[row] == _NEVER and grown[row] <= seen:
            continue
        loss[row], device[row] = _NEVER, -1
        milli = np.int64(asked_milli[kinds[row]])
        if not ready[row] or (gpus > 0 and milli == 0) or (gpus == 0 and not first[row]):
            continue
        if (mode == EMPTY and full[row] < gpus) or (mode != EMPTY and largest[row] < milli):
            continue
        total, all_devices = milli * max(1, gpus), np.int64(devices[row])
        cpus = _need(asked_cpus, node_cpus[row], free_cpus[row], total, all_devices, _LEAST_CPUS, _SHARE_CPUS)
        memory = _need(asked_memory, node_memory[row], free_memory[row], total, all_devices, least, _SHARE_MEMORY)
        if cpus <= free_cpus[row] and memory <= free_memory[row]:
            there[count], taken[count] = row, cpus
            count += 1
    return there[:count], taken[:count]


@_compile
def _whole(state, worth, kept, gpus, rows, taken, loss):  # type: ignore[no-untyped-def]
    """Writes the losses of `gpus` whole devices and the CPUs taken, on rows that have them."""
    kinds, cpus, full = state.kind, state.cpus, state.full
    price, whole, idle, block, thresholds = worth.cpu, worth.whole, worth.idle, worth.block, worth.steps
    sums, values, wasted = kept.sums, kept.worth, kept.idle
    for index in range(rows.shape[0]):
        row = rows[index]
        kind, still = kinds[row], np.int64(full[row])
        left, after = still - gpus, _TOP
        for j in range(price.shape[1]):
            gone = price[kind, j] * taken[index] + whole[kind, still, j] - whole[kind, left, j]
            after = min(after, sums[row, j] - gone)
        if wasted.shape[1]:
            step = np.searchsorted(thresholds, cpus[row] - taken[index], side="right")
            after += gpus * WHOLE_MILLI * idle[kind, step, WHOLE_MILLI // CELL] - wasted[row, step]
            after += left * WHOLE_MILLI * block[kind, step, left]
        loss[row] = (values[row] - after) // _MICRO


@_compile
def _fraction(state, worth, kept, asked_milli, mode, rows, taken, loss, chosen):  # type: ignore[no-untyped-def]
    """Writes the losses of a fraction and the CPUs taken, and the device of each row that it is best on."""
    kinds, cpus, full, free, modes = state.kind, state.cpus, state.full, state.free, state.mode
    price, whole, part, idle, block = worth.cpu, worth.whole, worth.part, worth.idle, worth.block
    sums, values, wasted, thresholds = kept.sums, kept.worth, kept.idle, worth.steps
    for index in range(rows.shape[0]):
        row = rows[index]
        kind, milli, best, step = kinds[row], np.int64(asked_milli[kinds[row]]), np.int64(_TOP), 0
        if wasted.shape[1]:
            step = np.searchsorted(thresholds, cpus[row] - taken[index], side="right")
        for device in range(free.shape[1]):
            here, held = np.int64(free[row, device]), modes[row, device]
            if here < milli or (held != EMPTY and held != mode):
                continue
            rest, opens, still = here - milli, here == WHOLE_MILLI, np.int64(full[row])
            after = _TOP
            for j in range(price.shape[1]):
                gone = price[kind, j] * taken[index] - part[kind, rest // CELL, j]
                if opens:
                    gone += whole[kind, still, j] - whole[kind, still - 1, j]
                else:
                    gone += part[kind, here // CELL, j]
                after = min(after, sums[row, j] - gone)
            if wasted.shape[1]:
                after += here * idle[kind, step, here // CELL] - rest * idle[kind, step, rest // CELL]
                after -= wasted[row, step] - (still - opens) * WHOLE_MILLI * block[kind, step, still - opens]
            # The most worth is left; of equals the fullest device, then the first.
            order = here - after * _TIES
            if order < best:
                best = order
                loss[row], chosen[row] = (values[row] - after) // _MICRO, device


@_compile
def _mixed(mark, part):  # type: ignore[no-untyped-def]
    mark = (mark ^ np.uint64(part)) * np.uint64(1099511628211)
    return mark ^ (mark >> np.uint64(29))


@_compile
def _mark(state, row):  # type: ignore[no-untyped-def]
    """A number that rows in the same state share."""
    mark = _mixed(np.uint64(1469598103934665603), np.int64(state.kind[row]))
    mark = _mixed(_mixed(mark, state.cpus[row]), state.memory[row])
    for device in range(state.free.shape[1]):
        mark = _mixed(mark, np.int64(state.free[row, device]) * 4 + np.int64(state.mode[row, device]))
    return mark


@_compile
def _alike(state, one, other):  # type: ignore[no-untyped-def]
    for device in range(state.free.shape[1]):
        if state.free[one, device] != state.free[other, device] or state.mode[one, device] != state.mode[other, device]:
            return False
    return (
        state.kind[one] == state.kind[other]
        and state.cpus[one] == state.cpus[other]
        and state.memory[one] == state.memory[other]
        and state.node_cpus[one] == state.node_cpus[other]
        and state.node_memory[one] == state.node_memory[other]
        and state.devices[one] == state.devices[other]
        and state.ready[one] == state.ready[other]
        and state.first[one] == state.first[other]
    )


@_compile
def group(state):  # type: ignore[no-untyped-def]
    """(the number of each row's group, the first row of each group): the rows of a group are in the same state."""
    count = state.kind.shape[0]
    size = 1
    while size < 2 * count:
        size *= 2
    known = np.full(size, -1, dtype=np.int32)
    number = np.empty(count, dtype=np.int32)
    first = np.empty(count, dtype=np.int32)
    groups = 0
    for row in range(count):
        place = np.int64(_mark(state, row) & np.uint64(size - 1))
        while known[place] >= 0 and not _alike(state, first[known[place]], row):
            place = (place + 1) & (size - 1)
        if known[place] < 0:
            known[place] = groups
            first[groups] = row
            groups += 1
        number[row] = known[place]
    return number, first[:groups]


@_compile
def _work_out(state, worth, kept, grown, gpus, milli, cpus, memory, mode, loss, device, rows, seen):  # type: ignore[no-untyped-def]
    there, taken = _fitting(state, gpus, milli, cpus, memory, mode, rows, grown, seen, loss, device)
    if mode == EMPTY:
        _whole(state, worth, kept, gpus, there, taken, loss)
    else:
        _fraction(state, worth, kept, milli, mode, there, taken, loss, device)


@_compile
def losses(state, worth, kept, grown, gpus, milli, cpus, memory, mode, loss, device, rows):  # type: ignore[no-untyped-def]
    """Writes loss and device of each of `rows` into the arrays of all rows."""
    _work_out(state, worth, kept, grown, gpus, milli, cpus, memory, mode, loss, device, rows, -1)


@_Direct
def pick(  # type: ignore[no-untyped-def]
    state, worth, kept, grown, gpus, milli, cpus, memory, mode, loss, device, stale, rows, seen, tolerance
):
    """(row, device, loss) of the first row within `tolerance` of the least loss, row −1 where there is none.

    Brings up to date what the `stale` rows are worth, and then the losses of the ask on `rows`, which may have changed
    since `seen` changes.
    """
    stand(state, worth, stale, kept)
    _work_out(state, worth, kept, grown, gpus, milli, cpus, memory, mode, loss, device, rows, seen)
    least = loss.min()
    if least == _NEVER:
        return -1, -1, 0
    most = np.int64(least) + tolerance
    for row in range(loss.shape[0]):
        if loss[row] <= most:
            return row, np.int64(device[row]), np.int64(loss[row])
    return -1, -1, 0
