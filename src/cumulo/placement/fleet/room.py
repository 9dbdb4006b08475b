"""Making room on arrays: the fewest small runs to move off one row so that several whole devices are free there.

An ask for several devices waits for a node to empty by itself, which with many small runs about hardly ever happens;
moving a few of them, each to the best place that it can have now, lets it in at once. What moves holds a fraction of a
device or one whole device.
"""

from typing import Final, NamedTuple

import numpy as np

from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.placement.fleet.chooser import Chooser
from cumulo.placement.fleet.losses import Asked, needs
from cumulo.placement.fleet.rows import Bools, Int8s, Int16s, Int32s, Int64s, Rows

# So many rows are tried, those of the fewest moves first.
_TRIED: Final = 8
_TOO_MANY: Final = 1 << 20


class Movable(NamedTuple):
    """Runs that may move, M long: where they are, what they hold of one device, the chooser's number of their ask."""

    row: Int32s
    device: Int8s
    milli: Int16s
    cpus: Int64s
    memory: Int64s
    ask: Int32s


class Move(NamedTuple):
    """The `which`-th movable goes to a device of a row."""

    which: int
    row: int
    device: int


class Moves(NamedTuple):
    """Once these are made, in this order after all have left, the ask fits on `row`, on devices that are free whole."""

    row: int
    moves: tuple[Move, ...]


class _Clearing(NamedTuple):
    """For every row: how many must move, and the devices that are emptied; `fits` where that would do."""

    moves: Int64s
    devices: Int64s
    fits: Bools


def make_room(rows: Rows, chooser: Chooser, asked: Asked, movable: Movable, *, most: int) -> Moves | None:
    """The fewest moves, at most `most`, that let in an ask for whole devices; None if none do.

    Each goes where the chooser puts it, the largest first, beside the ask that it makes room for.
    `rows` and `chooser` are left as they are.
    """
    clearing = _clearing(rows, asked, movable)
    worthwhile = np.flatnonzero(clearing.fits & (clearing.moves <= most))
    order = worthwhile[np.argsort(clearing.moves[worthwhile], kind="stable")][:_TRIED]
    for row in order.tolist():
        leaving = np.flatnonzero((movable.row == row) & np.isin(movable.device, clearing.devices[row]))
        if (moves := _moved(rows, chooser, asked, movable, row, leaving)) is not None:
            return Moves(row, moves)
    return None


def _clearing(rows: Rows, asked: Asked, movable: Movable) -> _Clearing:
    state = rows.state
    shape = state.free.shape
    there = movable.row.astype(np.int64) * shape[1] + movable.device
    size = shape[0] * shape[1]
    held = np.bincount(there, weights=movable.milli, minlength=size).reshape(shape)
    count = np.bincount(there, minlength=size).reshape(shape)
    cost = np.where(state.free + held == WHOLE_MILLI, count, _TOO_MANY)
    devices = np.argsort(cost, axis=1, kind="stable")[:, : asked.gpus]
    total = np.take_along_axis(cost, devices, axis=1).sum(axis=1)
    freed = [
        np.take_along_axis(np.bincount(there, weights=each, minlength=size).reshape(shape), devices, axis=1).sum(axis=1)
        for each in (movable.cpus, movable.memory)
    ]
    milli = asked.milli[state.kind].astype(np.int64)
    every = np.arange(len(rows), dtype=np.int32)
    cpus, memory = needs(state, every, asked, milli * asked.gpus)
    fits = state.ready & (milli == WHOLE_MILLI) & (devices.shape[1] == asked.gpus) & (total < _TOO_MANY)
    fits &= (cpus <= state.cpus + freed[0]) & (memory <= state.memory + freed[1])
    return _Clearing(total, devices, fits)


def _moved(
    rows: Rows, chooser: Chooser, asked: Asked, movable: Movable, row: int, leaving: Int64s
) -> tuple[Move, ...] | None:
    """Where those that leave go, None where one of them finds no place."""
    trial = rows.copy()
    choice = chooser.copy(trial)
    for which in leaving.tolist():
        _give(trial, movable, which)
    here = np.array([row], dtype=np.int32)
    cpus, memory = needs(trial.state, here, asked, np.array([asked.gpus * WHOLE_MILLI]))
    trial.take(row, cpus=int(cpus[0]), memory=int(memory[0]), gpus=asked.gpus, milli=WHOLE_MILLI)
    moves: list[Move] = []
    for which in leaving[np.argsort(-movable.milli[leaving].astype(np.int64), kind="stable")].tolist():
        pick = choice.pick(int(movable.ask[which]))
        if pick is None:
            return None
        [device] = trial.take(
            pick.row,
            cpus=int(movable.cpus[which]),
            memory=int(movable.memory[which]),
            gpus=1,
            milli=int(movable.milli[which]),
            device=pick.device,
        )
        moves.append(Move(which, pick.row, device))
    return tuple(moves)


def _give(rows: Rows, movable: Movable, which: int) -> None:
    rows.give(
        int(movable.row[which]),
        cpus=int(movable.cpus[which]),
        memory=int(movable.memory[which]),
        milli=int(movable.milli[which]),
        devices=(int(movable.device[which]),),
    )
