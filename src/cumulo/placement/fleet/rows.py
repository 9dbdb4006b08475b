"""A fleet as arrays: one row for each node and kind of GPU on it, and a log of the rows that changed.

Most nodes have one kind and so one row; a node of several kinds has a row for each, which share its CPUs and memory.
The order of rows is the order of first fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cumulo.domain.sharing import WHOLE_MILLI

Int64s: TypeAlias = NDArray[np.int64]
Int32s: TypeAlias = NDArray[np.int32]
Int16s: TypeAlias = NDArray[np.int16]
Int8s: TypeAlias = NDArray[np.int8]
Bools: TypeAlias = NDArray[np.bool_]

# How a device is shared, as the kernels know it.
EMPTY: Final = 0
MPS: Final = 1
TIMESLICE: Final = 2
CLOSED: Final = 3  # nothing of it may be given as a whole or as a fraction: held whole, cut into MIG, unusable

_LOG: Final = 1 << 16


class Kind(NamedTuple):
    """Devices that are alike in all that an ask may name."""

    model: str
    memory_bytes: int
    modes: tuple[str, ...]


class State(NamedTuple):
    """The arrays that the kernels read, R rows of at most G devices: `free[r, d]` thousandths (0 where CLOSED).

    `cpus`, `memory` are what is free of the row's node; `node_cpus`, `node_memory`, `devices` what all of the node has.
    `full[r]` counts the devices that are free whole, `largest[r]` is the most that is free of one.
    """

    kind: Int32s
    cpus: Int64s
    memory: Int64s
    free: Int16s
    mode: Int8s
    full: Int32s
    largest: Int16s
    node_cpus: Int64s
    node_memory: Int64s
    devices: Int32s
    own: Int32s  # devices of the row itself
    ready: Bools
    first: Bools  # the one row of its node that stands for it when no GPU is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row as it is made. `devices` are (free thousandths, mode) in the node's order of devices of this kind."""

    kind: int
    node_cpus: int
    node_memory: int
    node_devices: int
    devices: tuple[tuple[int, int], ...] = ()
    cpus: int
    memory: int
    ready: bool = True
    first: bool = True


class Rows:
    """The rows of a fleet, and which of them changed since when."""

    def __init__(self, kinds: Sequence[Kind], rows: Sequence[Row]) -> None:
        self.kinds = tuple(kinds)
        most = max((len(row.devices) for row in rows), default=0) or 1
        count = len(rows)
        self.state = State(
            kind=np.array([row.kind for row in rows], dtype=np.int32),
            cpus=np.array([row.cpus for row in rows], dtype=np.int64),
            memory=np.array([row.memory for row in rows], dtype=np.int64),
            free=np.zeros((count, most), dtype=np.int16),
            mode=np.full((count, most), CLOSED, dtype=np.int8),
            full=np.zeros(count, dtype=np.int32),
            largest=np.zeros(count, dtype=np.int16),
            node_cpus=np.array([row.node_cpus for row in rows], dtype=np.int64),
            node_memory=np.array([row.node_memory for row in rows], dtype=np.int64),
            devices=np.array([max(1, row.node_devices) for row in rows], dtype=np.int32),
            own=np.array([len(row.devices) for row in rows], dtype=np.int32),
            ready=np.array([row.ready for row in rows], dtype=np.bool_),
            first=np.array([row.first for row in rows], dtype=np.bool_),
        )
        for index, row in enumerate(rows):
            for place, (free, mode) in enumerate(row.devices):
                self.state.free[index, place], self.state.mode[index, place] = free, mode
        self.state.full[:] = (self.state.free == WHOLE_MILLI).sum(axis=1)
        self.state.largest[:] = self.state.free.max(axis=1, initial=0)
        self.log = np.zeros(_LOG, dtype=np.int32)  # rows in the order in which they changed, a ring
        self.changes = 0
        self.grown = np.zeros(count, dtype=np.int64)  # the number of the last change that freed something of the row

    def __len__(self) -> int:
        return len(self.state.kind)

    def copy(self) -> "Rows":
        """Rows to try things on."""
        twin = object.__new__(Rows)
        twin.kinds = self.kinds
        fixed = {"kind", "node_cpus", "node_memory", "devices", "own", "first"}
        twin.state = State(
            **{name: array if name in fixed else array.copy() for name, array in self.state._asdict().items()}
        )
        twin.log, twin.changes, twin.grown = self.log.copy(), self.changes, self.grown.copy()
        return twin

    def take(self, row: int, *, cpus: int, memory: int, gpus: int = 0, milli: int = 0, device: int = -1) -> list[int]:
        """Takes `milli` of one device, or `gpus` whole devices, of a row that stands for its whole node.

        Returns the devices taken. For replays: the control plane's rows follow its world by `refresh`.
        """
        state = self.state
        state.cpus[row] -= cpus
        state.memory[row] -= memory
        free = state.free[row].tolist()
        taken = [device]
        if gpus and device < 0:
            taken = [place for place, each in enumerate(free) if each == WHOLE_MILLI][:gpus]
            for place in taken:
                free[place] = state.free[row, place] = 0
                state.mode[row, place] = CLOSED
            state.full[row] -= gpus
        elif gpus:
            state.full[row] -= free[device] == WHOLE_MILLI
            free[device] = state.free[row, device] = free[device] - milli
            state.mode[row, device] = MPS
        state.largest[row] = max(free)
        self.changed(row, grew=False)
        return taken

    def give(self, row: int, *, cpus: int, memory: int, milli: int = 0, devices: Sequence[int] = ()) -> None:
        """Gives back what `take` took: `milli` of each of the devices."""
        state = self.state
        state.cpus[row] += cpus
        state.memory[row] += memory
        for device in devices if milli else ():
            state.free[row, device] += milli
            if state.free[row, device] == WHOLE_MILLI:
                state.mode[row, device] = EMPTY
                state.full[row] += 1
        state.largest[row] = WHOLE_MILLI if state.full[row] else state.free[row].max()
        self.changed(row, grew=True)

    def refresh(self, index: int, row: Row) -> None:
        """Makes a row what it has become; nothing where it is that already."""
        state = self.state
        free = np.zeros(state.free.shape[1], dtype=np.int16)
        mode = np.full(state.free.shape[1], CLOSED, dtype=np.int8)
        for place, (milli, shared) in enumerate(row.devices):
            free[place], mode[place] = milli, shared
        before, was_ready = state.free[index], bool(state.ready[index])
        grew = bool((free > before).any()) or row.cpus > state.cpus[index] or row.memory > state.memory[index]
        grew = grew or row.ready > was_ready or bool((mode != state.mode[index]).any())
        same = row.ready == was_ready and row.cpus == state.cpus[index] and row.memory == state.memory[index]
        if same and not grew and bool((free == before).all()):
            return
        state.free[index], state.mode[index] = free, mode
        state.cpus[index], state.memory[index], state.ready[index] = row.cpus, row.memory, row.ready
        state.full[index], state.largest[index] = int((free == WHOLE_MILLI).sum()), free.max()
        self.changed(index, grew=grew)

    def changed(self, row: int, *, grew: bool) -> None:
        """Notes that a row is not what it was. `grew`: something of it was freed, so it may fit what it did not."""
        self.log[self.changes % _LOG] = row
        self.changes += 1
        if grew:
            self.grown[row] = self.changes

    def since(self, change: int) -> Int32s | None:
        """The rows changed after that many changes, some perhaps twice; None where all rows must be looked at."""
        count = self.changes - change
        if count > min(_LOG, len(self) // 2 + 16):
            return None
        begin, end = change % _LOG, self.changes % _LOG
        return self.log[begin:end] if begin <= end else np.concatenate([self.log[begin:], self.log[:end]])
