"""The same losses in loops that numba compiles (`pip install cumulo[scale]`), for fleets of thousands of nodes."""

from typing import Any

import numba
import numpy as np

from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.placement.fleet import losses as plain
from cumulo.placement.fleet.prices import CELL
from cumulo.placement.fleet.rows import EMPTY

_NEVER = int(plain.NEVER)
_MICRO = plain.MICRO
_LEAST_CPUS, _LEAST_MEMORY = plain.LEAST_CPUS, plain.LEAST_MEMORY
_SHARE_CPUS, _SHARE_MEMORY = plain.LEAST_SHARE_CPUS, plain.LEAST_SHARE_MEMORY
_TOP = int(np.iinfo(np.int64).max)
_compile: Any = numba.njit(cache=True, nogil=True)


@_compile
def _need(asked, total, free, milli, devices, least, least_share):  # type: ignore[no-untyped-def]
    if asked >= 0:
        return asked
    share = max(least_share, total * milli // (WHOLE_MILLI * devices))
    return min(min(share, max(free, least)), total)


@_compile
def _idle(worth, kind, step, free):  # type: ignore[no-untyped-def]
    """What the free parts of a row's devices cost while they are idle, blocks apart."""
    found = 0
    for device in range(free.shape[0]):
        if free[device] > 0:
            found += np.int64(free[device]) * worth.idle[kind, step, free[device] // CELL]
    return found


@_compile
def stand(state, worth, rows, fragmented, sums, worths):  # type: ignore[no-untyped-def]
    """Works out anew what `rows` are worth as they are: `losses.Standing` in loops."""
    prices = worth.cpu.shape[1]
    for index in range(rows.shape[0]):
        row = rows[index]
        kind, cpus, full, free = state.kind[row], state.cpus[row], np.int64(state.full[row]), state.free[row]
        before = _TOP
        for j in range(prices):
            found = worth.cpu[kind, j] * cpus + worth.whole[kind, full, j]
            for device in range(free.shape[0]):
                if 0 < free[device] < WHOLE_MILLI:
                    found += worth.part[kind, free[device] // CELL, j]
            sums[row, j] = found
            before = min(before, found)
        if fragmented:
            step = np.searchsorted(worth.steps, cpus, side="right")
            before -= _idle(worth, kind, step, free) - full * WHOLE_MILLI * worth.block[kind, step, full]
        worths[row] = before


@_compile
def _row(state, worth, gpus, asked_milli, asked_cpus, asked_memory, mode, row, fragmented, standing):  # type: ignore[no-untyped-def]
    """(loss in micro-devices, device) of one row. `standing` is what the rows' value sums to, and their worth."""
    kind = state.kind[row]
    milli = np.int64(asked_milli[kind])
    if not state.ready[row] or (gpus > 0 and milli == 0) or (gpus == 0 and not state.first[row]):
        return _NEVER, -1
    total, free_cpus, count = milli * max(1, gpus), state.cpus[row], np.int64(state.devices[row])
    cpus = _need(asked_cpus, state.node_cpus[row], free_cpus, total, count, _LEAST_CPUS, _SHARE_CPUS)
    if cpus > free_cpus:
        return _NEVER, -1
    least = _LEAST_MEMORY * max(1, gpus)
    memory = state.memory[row]
    if _need(asked_memory, state.node_memory[row], memory, total, count, least, _SHARE_MEMORY) > memory:
        return _NEVER, -1
    full = np.int64(state.full[row])
    if mode == EMPTY and full < gpus:
        return _NEVER, -1
    free = state.free[row]
    prices = worth.cpu.shape[1]
    sums, before = standing[0][row], standing[1][row]
    step, idle = 0, 0
    if fragmented:
        step = np.searchsorted(worth.steps, free_cpus - cpus, side="right")
        idle = _idle(worth, kind, step, free)
    if mode == EMPTY:
        after = _TOP
        for j in range(prices):
            found = sums[j] - worth.cpu[kind, j] * cpus + worth.whole[kind, full - gpus, j] - worth.whole[kind, full, j]
            after = min(after, found)
        if fragmented:
            idle -= gpus * WHOLE_MILLI * worth.idle[kind, step, WHOLE_MILLI // CELL]
            after -= idle - (full - gpus) * WHOLE_MILLI * worth.block[kind, step, full - gpus]
        return (before - after) // _MICRO, -1
    best, chosen, best_free = -_TOP, -1, WHOLE_MILLI
    for device in range(free.shape[0]):
        here = int(free[device])
        held = state.mode[row, device]
        if here < milli or (held != EMPTY and held != mode):
            continue
        repeated = False
        for other in range(device):
            repeated = repeated or (free[other] == here and state.mode[row, other] == held)
        if repeated:
            continue
        rest = here - milli
        after = _TOP
        for j in range(prices):
            found = sums[j] - worth.cpu[kind, j] * cpus + worth.part[kind, rest // CELL, j]
            if here == WHOLE_MILLI:
                found -= worth.whole[kind, full, j] - worth.whole[kind, full - 1, j]
            else:
                found -= worth.part[kind, here // CELL, j]
            after = min(after, found)
        if fragmented:
            still = full - (here == WHOLE_MILLI)
            after += here * worth.idle[kind, step, here // CELL] - rest * worth.idle[kind, step, rest // CELL]
            after -= idle - still * WHOLE_MILLI * worth.block[kind, step, still]
        if chosen < 0 or after > best or (after == best and here < best_free):
            best, chosen, best_free = after, device, here
    if chosen < 0:
        return _NEVER, -1
    return (before - best) // _MICRO, chosen


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
def losses(state, worth, gpus, milli, cpus, memory, mode, rows, fragmented, loss, device, standing):  # type: ignore[no-untyped-def]
    """Writes loss and device of each of `rows` into the arrays of all rows."""
    for index in range(rows.shape[0]):
        row = rows[index]
        loss[row], device[row] = _row(state, worth, gpus, milli, cpus, memory, mode, row, fragmented, standing)


@_compile
def pick(  # type: ignore[no-untyped-def]
    state,
    worth,
    gpus,
    milli,
    cpus,
    memory,
    mode,
    rows,
    fragmented,
    loss,
    device,
    standing,
    stale,
    grown,
    seen,
    tolerance,
):
    """Brings the losses of the changed `rows` up to date and gives the first row within `tolerance` of the least.

    `stale` are the rows whose `standing` is to be worked out anew.
    """
    stand(state, worth, stale, fragmented, standing[0], standing[1])
    for index in range(rows.shape[0]):
        row = rows[index]
        if loss[row] != _NEVER or grown[row] > seen:
            loss[row], device[row] = _row(state, worth, gpus, milli, cpus, memory, mode, row, fragmented, standing)
    least = loss.min()
    if least == _NEVER:
        return -1
    most = np.int64(least) + tolerance
    for row in range(loss.shape[0]):
        if loss[row] <= most:
            return row
    return -1
