"""What each ask costs on each state that a row can be in, worked out once: rows of a fleet are much alike.

Of the losses that replays of the openb trace ask for, 19 in 20 were worked out before. A few new ones are worked out by
plain arithmetic, which is faster there than arrays are; many at once by NumPy (`losses`), with the same result.
"""

from typing import Final, NamedTuple

import numpy as np

from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.placement.fleet import losses as arrays
from cumulo.placement.fleet.losses import MICRO, NEVER, Asked, Standing
from cumulo.placement.fleet.prices import CELL
from cumulo.placement.fleet.rows import EMPTY, Bools, Int8s, Int32s, Int64s, Rows, State
from cumulo.placement.fleet.worth import Worth

# So many new losses are worked out one by one.
FEW: Final = 24
_MOST_STATES: Final = 1 << 16
_UNKNOWN: Final = np.int32(-(2**31))
_TOP: Final = 2**63 - 1


class _Facts(NamedTuple):
    """A state in plain numbers; `sums` and `worth` as in `losses.Standing`."""

    kind: int
    cpus: int
    free: list[int]
    held: list[int]
    full: int
    sums: list[int]
    worth: int
    idle: dict[int, int]  # by step of CPUs: what its free parts cost while they are idle, blocks apart


class States:
    """Every state that rows were in, by number, and the number of each row now."""

    def __init__(self, rows: Rows) -> None:
        state = rows.state
        parts = (state.kind, state.node_cpus, state.node_memory, state.devices, state.own, state.first)
        self._base = np.unique(np.stack(parts, axis=1), axis=0, return_inverse=True)[1].ravel().tolist()
        self._numbers: dict[tuple[int, int, int, bool, bytes, bytes], int] = {}
        self.of_row = np.zeros(len(rows), dtype=np.int32)
        self.count = 0
        self._seen = -1

    def copy(self) -> "States":
        """For a copy of the rows; new states get the same numbers in both."""
        twin = object.__new__(States)
        twin._base, twin._numbers, twin.of_row = self._base, self._numbers, self.of_row.copy()
        twin.count, twin._seen = self.count, self._seen
        return twin

    def follow(self, rows: Rows) -> bool:
        """Takes in the rows that changed; False when there are too many states, so that all must begin anew."""
        changed = rows.since(self._seen) if self._seen >= 0 else None
        self._seen = rows.changes
        state, numbers = rows.state, self._numbers
        for row in range(len(rows)) if changed is None else changed.tolist():
            key = (
                self._base[row],
                int(state.cpus[row]),
                int(state.memory[row]),
                bool(state.ready[row]),
                state.free[row].tobytes(),
                state.mode[row].tobytes(),
            )
            self.of_row[row] = numbers.setdefault(key, len(numbers))
        self.count = len(numbers)
        return self.count < _MOST_STATES


class Memo:
    """The losses by one worth: of each ask, in each state."""

    def __init__(self, worth: Worth) -> None:
        self.worth = worth
        self.fragmented = bool(worth.idle.any())
        self._cpu: list[list[int]] = worth.cpu.tolist()
        self._whole: list[list[list[int]]] = worth.whole.tolist()
        self._part: list[list[list[int]]] = worth.part.tolist()
        self._idle: list[list[list[int]]] = worth.idle.tolist() if self.fragmented else []
        self._block: list[list[list[int]]] = worth.block.tolist() if self.fragmented else []
        self._facts: dict[int, _Facts] = {}
        self._loss: dict[int, Int32s] = {}
        self._device: dict[int, Int8s] = {}

    def look_up(
        self, number: int, asked: Asked, rows: Rows, standing: Standing, states: States, those: Int32s
    ) -> tuple[Int32s, Int8s]:
        """(loss, device) of an ask, known by its number, on each of those rows."""
        loss, device = self._room(number, states.count)
        numbers = states.of_row[those]
        found = loss[numbers]
        missing = (found == _UNKNOWN).nonzero()[0]
        if len(missing):
            fits = _may_fit(rows.state, asked, those[missing])
            loss[numbers[missing[~fits]]] = NEVER
            missing = missing[fits]
            self._work_out(asked, rows, standing, numbers[missing], those[missing], (loss, device))
            found = loss[numbers]
        return found, device[numbers]

    def _room(self, number: int, count: int) -> tuple[Int32s, Int8s]:
        loss = self._loss.get(number)
        if loss is None or len(loss) < count:
            size = max(256, 2 * count)
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
        numbers: Int32s,
        those: Int32s,
        into: tuple[Int32s, Int8s],
    ) -> None:
        if not len(numbers):
            return
        loss, device = into
        if len(numbers) > FEW:
            numbers, first = np.unique(numbers, return_index=True)
            those = those[first]
        if len(numbers) > FEW:
            standing.refresh(rows, self.worth)
            loss[numbers], device[numbers] = arrays.losses(rows.state, self.worth, standing, asked, those)
            return
        for number, row in dict(zip(numbers.tolist(), those.tolist(), strict=True)).items():
            loss[number], device[number] = self._one(asked, rows, number, row)

    def _one(self, asked: Asked, rows: Rows, number: int, row: int) -> tuple[int, int]:
        state = rows.state
        milli = int(asked.milli[state.kind[row]])
        if asked.cpus >= 0 and asked.memory >= 0:
            cpus, memory = asked.cpus, asked.memory
        else:
            only: Int64s = np.array([milli * max(1, asked.gpus)], dtype=np.int64)
            cpus, memory = (int(each[0]) for each in arrays.needs(state, np.array([row], np.int32), asked, only))
        if cpus > state.cpus[row] or memory > state.memory[row]:
            return int(NEVER), -1
        facts = self._facts.get(number) or self._learn(rows, number, row)
        if asked.mode == EMPTY:
            return self._whole_loss(facts, asked.gpus, cpus), -1
        return self._fraction_loss(facts, asked.mode, milli, cpus)

    def _learn(self, rows: Rows, number: int, row: int) -> _Facts:
        state = rows.state
        kind, cpus, full = int(state.kind[row]), int(state.cpus[row]), int(state.full[row])
        free = state.free[row].tolist()
        sums = [price * cpus + whole for price, whole in zip(self._cpu[kind], self._whole[kind][full], strict=True)]
        part = self._part[kind]
        for each in free:
            if 0 < each < WHOLE_MILLI:
                sums = [total + more for total, more in zip(sums, part[each // CELL], strict=True)]
        facts = _Facts(kind, cpus, free, state.mode[row].tolist(), full, sums, min(sums), {})
        if self.fragmented:
            step = int(self.worth.steps.searchsorted(cpus, side="right"))
            facts = facts._replace(worth=facts.worth - self._idle_of(facts, step) + self._blocks(kind, step, full))
        self._facts[number] = facts
        return facts

    def _idle_of(self, facts: _Facts, step: int) -> int:
        found = facts.idle.get(step)
        if found is None:
            rate = self._idle[facts.kind][step]
            found = facts.idle[step] = sum(each * rate[each // CELL] for each in facts.free if each)
        return found

    def _blocks(self, kind: int, step: int, full: int) -> int:
        return full * WHOLE_MILLI * self._block[kind][step][full]

    def _whole_loss(self, facts: _Facts, gpus: int, cpus: int) -> int:
        left = facts.full - gpus
        if left < 0:
            return int(NEVER)
        whole = self._whole[facts.kind]
        after = min(
            total - price * cpus + then - now
            for total, price, then, now in zip(
                facts.sums, self._cpu[facts.kind], whole[left], whole[facts.full], strict=True
            )
        )
        if self.fragmented:
            step = int(self.worth.steps.searchsorted(facts.cpus - cpus, side="right"))
            taken = gpus * WHOLE_MILLI * self._idle[facts.kind][step][WHOLE_MILLI // CELL]
            after -= self._idle_of(facts, step) - taken - self._blocks(facts.kind, step, left)
        return (facts.worth - after) // MICRO

    def _fraction_loss(self, facts: _Facts, mode: int, milli: int, cpus: int) -> tuple[int, int]:
        whole, part = self._whole[facts.kind], self._part[facts.kind]
        base = [total - price * cpus for total, price in zip(facts.sums, self._cpu[facts.kind], strict=True)]
        best, chosen, left = (
            _TOP,
            -1,
            0,
        )  # the most worth left, of equals the fullest device, in one number; the first of equals
        step, idle, rate = 0, 0, list[int]()
        if self.fragmented:
            step = int(self.worth.steps.searchsorted(facts.cpus - cpus, side="right"))
            idle, rate = self._idle_of(facts, step), self._idle[facts.kind][step]
        tried: set[tuple[int, int]] = set()
        for device, (free, held) in enumerate(zip(facts.free, facts.held, strict=True)):
            if free < milli or held not in (EMPTY, mode) or (free, held) in tried:
                continue
            tried.add((free, held))
            opens, rest = free == WHOLE_MILLI, free - milli
            come = part[rest // CELL]
            if opens:
                lost = [more - less for more, less in zip(whole[facts.full], whole[facts.full - 1], strict=True)]
            else:
                lost = part[free // CELL]
            after = min(total - gone + more for total, gone, more in zip(base, lost, come, strict=True))
            if self.fragmented:
                after -= idle - free * rate[free // CELL] + rest * rate[rest // CELL]
                after += self._blocks(facts.kind, step, facts.full - opens)
            order = free - after * arrays.TIES
            if order < best:
                best, chosen, left = order, device, after
        return (int(NEVER), -1) if chosen < 0 else ((facts.worth - left) // MICRO, chosen)


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
