"""What each ask costs on each state that a row can be in, worked out once: rows of a fleet are much alike.

Of the losses that replays of the openb trace ask for, 19 in 20 were worked out before. A few new ones are worked out by
plain arithmetic, which is faster there than arrays are; many at once by NumPy (`losses`), with the same result.
"""

from bisect import bisect_right
from operator import add, sub
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.placement.fleet import losses as arrays
from cumulo.placement.fleet.losses import MICRO, NEVER, Asked, Standing
from cumulo.placement.fleet.prices import CELL
from cumulo.placement.fleet.rows import EMPTY, Bools, Int8s, Int32s, Int64s, Rows, State
from cumulo.placement.fleet.worth import Worth

# So many new losses are worked out one by one.
FEW: Final = 48
# When there are more states, all are forgotten: at the least, and for each row. On a full fleet most changes make one.
_MOST_STATES: Final = 4096
_MOST_STATES_PER_ROW: Final = 2
_UNKNOWN: Final = np.int32(-(2**31))
_TOP: Final = 2**63 - 1
_NEVER: Final = int(NEVER)


class _Devices(NamedTuple):
    """What is free of a row's devices, in whatever order they are."""

    parts: tuple[tuple[int, int], ...]  # (free, mode) of devices with room, each once
    full: int
    largest: int
    value: list[int]  # their part of `sums` at each price per CPU
    free: list[int]
    idle: dict[int, int]  # by step of CPUs: what these cost while they are idle, blocks apart


class _Facts(NamedTuple):
    """A state in plain numbers; `sums` and `worth` as in `losses.Standing`."""

    kind: int
    cpus: int
    memory: int
    ready: bool
    first: bool
    in_order: list[tuple[int, int]]  # (free, mode) of each device
    devices: _Devices
    sums: list[int]
    worth: int


# What tells a state from others: the number of what of a row never changes, CPUs, memory, ready, free and mode of the
# devices as bytes.
_Key: TypeAlias = tuple[int, int, int, bool, bytes, bytes]


class States:
    """Every state that rows were in, by number, and the number of each row now."""

    def __init__(self, rows: Rows) -> None:
        state = rows.state
        parts = (state.kind, state.node_cpus, state.node_memory, state.devices, state.own, state.first)
        bases, numbers = np.unique(np.stack(parts, axis=1), axis=0, return_inverse=True)
        self.bases = [(int(base[0]), bool(base[-1])) for base in bases]  # the kind, and whether it is its node's first
        self._base: list[int] = numbers.ravel().tolist()
        self._numbers: dict[_Key, int] = {}
        self.keys: list[_Key] = []
        self.of_row = np.zeros(len(rows), dtype=np.int32)
        self.most = max(_MOST_STATES, _MOST_STATES_PER_ROW * len(rows))
        self._seen = -1

    def copy(self) -> "States":
        """For a copy of the rows; new states get the same numbers in both."""
        twin = object.__new__(States)
        twin.bases, twin._base, twin._numbers, twin.keys = self.bases, self._base, self._numbers, self.keys
        twin.of_row, twin.most, twin._seen = self.of_row.copy(), self.most, self._seen
        return twin

    def follow(self, rows: Rows) -> bool:
        """Takes in the rows that changed; False when there are too many states, so that all must begin anew."""
        changed = rows.since(self._seen) if self._seen >= 0 else None
        self._seen = rows.changes
        state, numbers, keys = rows.state, self._numbers, self.keys
        for row in range(len(rows)) if changed is None else changed.tolist():
            key = (
                self._base[row],
                int(state.cpus[row]),
                int(state.memory[row]),
                bool(state.ready[row]),
                state.free[row].tobytes(),
                state.mode[row].tobytes(),
            )
            number = numbers.setdefault(key, len(keys))
            if number == len(keys):
                keys.append(key)
            self.of_row[row] = number
        return len(keys) < self.most


class Memo:
    """The losses by one worth: of each ask, in each state."""

    def __init__(self, worth: Worth) -> None:
        self.worth = worth
        self.fragmented = bool(worth.idle.any())
        self._cpu: list[list[int]] = worth.cpu.tolist()
        self._whole: list[list[list[int]]] = worth.whole.tolist()
        self._part: list[list[list[int]]] = worth.part.tolist()
        self._steps: list[int] = worth.steps.tolist()
        self._idle: list[list[list[int]]] = worth.idle.tolist() if self.fragmented else []
        self._block: list[list[list[int]]] = worth.block.tolist() if self.fragmented else []
        self._facts: dict[int, _Facts] = {}
        self._devices: dict[tuple[int, tuple[tuple[int, int], ...]], _Devices] = {}
        self._ordered: dict[tuple[int, bytes, bytes], tuple[list[tuple[int, int]], _Devices]] = {}
        self._taken: dict[tuple[int, ...], list[int]] = {}
        self._loss: dict[int, Int32s] = {}
        self._device: dict[int, Int8s] = {}

    def look_up(
        self, number: int, asked: Asked, rows: Rows, standing: Standing, states: States, those: Int32s
    ) -> tuple[Int32s, Int8s]:
        """(loss, device) of an ask, known by its number, on each of those rows."""
        loss, device = self._room(number, states)
        numbers = states.of_row[those]
        found = loss[numbers]
        missing = (found == _UNKNOWN).nonzero()[0]
        if len(missing) > FEW:
            fits = _may_fit(rows.state, asked, those[missing])
            loss[numbers[missing[~fits]]] = NEVER
            missing = missing[fits]
            found = loss[numbers]
        if len(missing):
            self._work_out(asked, rows, standing, states, numbers[missing], those[missing], (loss, device))
            found = loss[numbers]
        return found, device[numbers]

    def _room(self, number: int, states: States) -> tuple[Int32s, Int8s]:
        loss, count = self._loss.get(number), len(states.keys)
        if loss is None or len(loss) < count:
            size = max(256, min(2 * count, states.most))
            more, where = np.full(size, _UNKNOWN, dtype=np.int32), np.full(size, -1, dtype=np.int8)
            if loss is not None:
                more[: len(loss)], where[: len(loss)] = loss, self._device[number]
            self._loss[number], self._device[number] = more, where
        return self._loss[number], self._device[number]

    def _work_out(
        self,
        asked: Asked,
        rows: Rows,
        standing: Standing,
        states: States,
        numbers: Int32s,
        those: Int32s,
        into: tuple[Int32s, Int8s],
    ) -> None:
        loss, device = into
        if len(numbers) > FEW:
            numbers, first = np.unique(numbers, return_index=True)
            those = those[first]
        if len(numbers) > FEW:
            standing.refresh(rows, self.worth)
            loss[numbers], device[numbers] = arrays.losses(rows.state, self.worth, standing, asked, those)
            return
        milli: list[int] = asked.milli.tolist()
        for number, row in dict(zip(numbers.tolist(), those.tolist(), strict=True)).items():
            facts = self._facts.get(number) or self._learn(states, number)
            loss[number], device[number] = self._one(asked, milli[facts.kind], facts, rows, row)

    def _one(self, asked: Asked, milli: int, facts: _Facts, rows: Rows, row: int) -> tuple[int, int]:
        gpus, cpus, memory, whole = asked.gpus, asked.cpus, asked.memory, asked.mode == EMPTY
        if not facts.ready or not (milli if gpus else facts.first):
            return _NEVER, -1
        if (facts.devices.full < gpus) if whole else (facts.devices.largest < milli):
            return _NEVER, -1
        if cpus < 0 or memory < 0:
            only: Int64s = np.array([milli * max(1, gpus)], dtype=np.int64)
            cpus, memory = (int(each[0]) for each in arrays.needs(rows.state, np.array([row], np.int32), asked, only))
        if cpus > facts.cpus or memory > facts.memory:
            return _NEVER, -1
        if whole:
            return self._whole_loss(facts, gpus, cpus), -1
        return self._fraction_loss(facts, asked.mode, milli, cpus)

    def _learn(self, states: States, state: int) -> _Facts:
        base, cpus, memory, ready, free, mode = states.keys[state]
        kind, first = states.bases[base]
        found = self._ordered.get((kind, free, mode)) or self._learn_order(kind, free, mode)
        devices = found[1]
        sums = [price * cpus + value for price, value in zip(self._cpu[kind], devices.value, strict=True)]
        worth = min(sums)
        if self.fragmented:
            step = bisect_right(self._steps, cpus)
            worth += self._blocks(kind, step, devices.full) - self._idle_of(kind, devices, step)
        facts = self._facts[state] = _Facts(kind, cpus, memory, ready, first, *found, sums, worth)
        return facts

    def _learn_order(self, kind: int, free: bytes, mode: bytes) -> tuple[list[tuple[int, int]], _Devices]:
        ordered = list(zip(memoryview(free).cast("h").tolist(), mode, strict=True))
        key = kind, tuple(sorted(ordered))
        found = self._ordered[kind, free, mode] = ordered, self._devices.get(key) or self._learn_devices(*key)
        return found

    def _learn_devices(self, kind: int, each: tuple[tuple[int, int], ...]) -> _Devices:
        free = [milli for milli, _ in each if milli]
        full = free.count(WHOLE_MILLI)
        value = self._whole[kind][full]
        for milli in free:
            if milli < WHOLE_MILLI:
                value = list(map(add, value, self._part[kind][milli // CELL]))
        parts = tuple({part: None for part in each if part[0]})
        devices = self._devices[kind, each] = _Devices(parts, full, max(free, default=0), value, free, {})
        return devices

    def _idle_of(self, kind: int, devices: _Devices, step: int) -> int:
        found = devices.idle.get(step)
        if found is None:
            rate = self._idle[kind][step]
            found = devices.idle[step] = sum([milli * rate[milli // CELL] for milli in devices.free])
        return found

    def _blocks(self, kind: int, step: int, full: int) -> int:
        return full * WHOLE_MILLI * self._block[kind][step][full]

    def _whole_loss(self, facts: _Facts, gpus: int, cpus: int) -> int:
        kind, full = facts.kind, facts.devices.full
        left = full - gpus
        taken = self._taken.get((kind, full, gpus, cpus))
        if taken is None:
            whole = self._whole[kind]
            taken = self._taken[kind, full, gpus, cpus] = [
                price * cpus + now - then
                for price, now, then in zip(self._cpu[kind], whole[full], whole[left], strict=True)
            ]
        after: int = min(map(sub, facts.sums, taken))
        if self.fragmented:
            step = bisect_right(self._steps, facts.cpus - cpus)
            after += gpus * WHOLE_MILLI * self._idle[kind][step][WHOLE_MILLI // CELL]
            after += self._blocks(kind, step, left) - self._idle_of(kind, facts.devices, step)
        return (facts.worth - after) // MICRO

    def _fraction_loss(self, facts: _Facts, mode: int, milli: int, cpus: int) -> tuple[int, int]:
        kind, full = facts.kind, facts.devices.full
        best, chosen, most = _TOP, None, 0  # the most worth left, of equals the fullest device, in one number
        step, idle, rate = 0, 0, list[int]()
        if self.fragmented:
            step = bisect_right(self._steps, facts.cpus - cpus)
            idle, rate = self._idle_of(kind, facts.devices, step), self._idle[kind][step]
        for part in facts.devices.parts:
            free, held = part
            if free < milli or (held != EMPTY and held != mode):
                continue
            opens, rest = free == WHOLE_MILLI, free - milli
            taken = self._taken.get((kind, full if opens else -1, free, milli, cpus))
            if taken is None:
                taken = self._taken_of_part(kind, full if opens else -1, free, milli, cpus)
            after = min(map(sub, facts.sums, taken))
            if self.fragmented:
                after += free * rate[free // CELL] - rest * rate[rest // CELL] - idle
                after += self._blocks(kind, step, full - opens)
            order = free - after * arrays.TIES
            if order < best:
                best, chosen, most = order, part, after
        if chosen is None:
            return _NEVER, -1
        return (facts.worth - most) // MICRO, facts.in_order.index(chosen)

    def _taken_of_part(self, kind: int, full: int, free: int, milli: int, cpus: int) -> list[int]:
        """What a fraction takes of `sums`. `full`: how many devices are free whole where it opens one, else −1."""
        whole, part = self._whole[kind], self._part[kind]
        gone = part[free // CELL] if full < 0 else list(map(sub, whole[full], whole[full - 1]))
        taken = self._taken[kind, full, free, milli, cpus] = [
            price * cpus + less - more
            for price, less, more in zip(self._cpu[kind], gone, part[(free - milli) // CELL], strict=True)
        ]
        return taken


def _may_fit(state: State, asked: Asked, rows: Int32s) -> Bools:
    """Which rows have what the ask names; those with too little of a default share are found later."""
    fits = state.ready[rows]
    if not asked.gpus:
        fits = fits & state.first[rows]
    else:
        milli = asked.milli[state.kind[rows]]
        fits = fits & (milli > 0)
        fits &= (state.full[rows] >= asked.gpus) if asked.mode == EMPTY else (state.largest[rows] >= milli)
    if asked.cpus > 0:
        fits &= state.cpus[rows] >= asked.cpus
    if asked.memory > 0:
        fits &= state.memory[rows] >= asked.memory
    return fits
