"""Which row an ask goes to: the first whose loss is within a tolerance of the least.

First fit among near equals keeps the head of the list full and lets its tail run empty, which is what leaves whole
nodes to those who need them; the tolerance keeps differences that mean nothing from spreading runs over the fleet.

Losses are kept for every ask and row, and worked out anew for the rows that changed since.
"""

import importlib
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Final, NamedTuple

import numpy as np

from cumulo.placement.fleet.losses import NEVER, Asked, Standing
from cumulo.placement.fleet.memo import Memo, States
from cumulo.placement.fleet.rows import Int8s, Int32s, Rows, State
from cumulo.placement.fleet.worth import Worth

# Micro-devices; the second once as much leaves as comes.
TOLERANCE: Final = 60_000
TOLERANCE_CHURN: Final = 5_000
# Compiling takes seconds: it is for fleets of so many rows.
WORTH_COMPILING: Final = 256


class Pick(NamedTuple):
    """A row, the device of a fraction there (−1 for others), and what it costs, in micro-devices."""

    row: int
    device: int
    loss: int


@dataclass(slots=True)
class _Kept:
    """The losses of one ask on all rows, as of so many changes. `shared`: a copy of the chooser reads them too."""

    loss: Int32s
    device: Int8s
    seen: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows that were in the same state after so many changes: the group of each, and one row of each as it was."""

    of_row: Int32s
    state: State
    standing: Standing
    seen: int


def compiled_kernels() -> ModuleType | None:
    """The compiled kernels, where numba is installed."""
    try:
        return importlib.import_module("cumulo.placement.fleet.compiled")
    except ImportError:
        return None


class Chooser:
    """Chooses among `rows` by `worth`. `kernels` None: by NumPy."""

    def __init__(
        self, rows: Rows, worth: Worth, *, tolerance: int = TOLERANCE, kernels: ModuleType | None = None
    ) -> None:
        self.rows, self.worth, self.tolerance, self.kernels = rows, worth, tolerance, kernels
        self._asked: list[Asked] = []
        self._kept: list[_Kept | None] = []
        self._all = np.arange(len(rows), dtype=np.int32)
        self._forget()

    def _forget(self) -> None:
        """Nothing that was worked out holds any more."""
        self._states, self._memo = States(self.rows), Memo(self.worth)
        self._groups: _Groups | None = None
        self._stand()

    def _stand(self) -> None:
        """Nothing is known yet of what the rows are worth."""
        self._standing = Standing(len(self.rows), self.worth)
        self._bound = (self.rows.state, self.worth, self._standing.kept, self.rows.grown)

    def learn(self, asked: Asked) -> int:
        """The number by which an ask is known here from now on."""
        self._asked.append(asked)
        return len(self._asked) - 1

    def value_by(self, worth: Worth, *, tolerance: int) -> None:
        """Goes by another worth from now on."""
        self.worth, self.tolerance = worth, tolerance
        self._kept = [None] * len(self._kept)
        self._memo, self._groups = Memo(worth), None
        self._stand()

    def copy(self, rows: Rows) -> "Chooser":
        """The same over a copy of the rows; what was worked out stays known to both."""
        twin = object.__new__(Chooser)
        twin.rows, twin.worth, twin.tolerance, twin.kernels = rows, self.worth, self.tolerance, self.kernels
        # One list: what is known of an ask by its number, to both, must be of the same ask.
        twin._asked, twin._all = self._asked, self._all
        twin._groups, twin._states, twin._memo = self._groups, self._states.copy(), self._memo
        twin._stand()
        for kept in self._kept:
            if kept is not None:
                kept.shared = True
        twin._kept = [kept and replace(kept) for kept in self._kept]
        return twin

    def pick(self, number: int) -> Pick | None:
        """Where the ask goes; None where it fits nowhere now."""
        kept = self._kept_of(number)
        if self.kernels is not None and kept is not None and (rows := self.rows.since(kept.seen)) is not None:
            self._own(kept)
            row, device, loss = self.kernels.pick(
                *self._bound, *self._asked[number], kept.loss, kept.device, self._standing.stale(self.rows), rows,
                kept.seen, self.tolerance,
            )  # fmt: skip
            kept.seen = self.rows.changes
            return Pick(row, device, loss) if row >= 0 else None
        kept = self._refreshed(number)
        least = int(kept.loss[kept.loss.argmin()]) if len(kept.loss) else int(NEVER)
        if least == NEVER:
            return None
        row = int((kept.loss <= least + self.tolerance).argmax())
        return Pick(row, int(kept.device[row]), int(kept.loss[row]))

    def losses(self, number: int) -> Int32s:
        """What the ask would cost on each row, NEVER where it does not fit: to be read only."""
        return self._refreshed(number).loss

    def device(self, number: int, row: int) -> int:
        """The device of a row that a fraction would go to."""
        return int(self._refreshed(number).device[row])

    def _kept_of(self, number: int) -> _Kept | None:
        """What is kept of an ask, which a copy may have learnt."""
        if number >= len(self._kept):
            self._kept += [None] * (number + 1 - len(self._kept))
        return self._kept[number]

    def _refreshed(self, number: int) -> _Kept:
        kept = self._kept_of(number)
        rows: Int32s | None = None
        if kept is None:
            kept = self._kept[number] = self._begun(number)
        if kept.seen >= 0:
            rows = self.rows.since(kept.seen)
        if rows is None:
            rows = self._all
        elif len(rows):
            # What did not fit, and was not freed since, does not fit now.
            rows = rows[(kept.loss[rows] != NEVER) | (self.rows.grown[rows] > kept.seen)]
        if len(rows):
            self._own(kept)
            self._work_out(number, kept, rows)
        kept.seen = self.rows.changes
        return kept

    def _begun(self, number: int) -> _Kept:
        """What is known of an ask at first: its losses as of when the rows were last grouped, or nothing yet."""
        count = len(self.rows)
        if self.kernels is None:
            return _Kept(np.full(count, NEVER, np.int32), np.full(count, -1, np.int8), -1)
        groups = self._groups
        if groups is None or self.rows.since(groups.seen) is None:
            groups = self._groups = self._grouped(self.kernels)
        rows = len(groups.state.kind)
        loss, device = np.full(rows, NEVER, np.int32), np.full(rows, -1, np.int8)
        every = np.arange(rows, dtype=np.int32)
        grown = np.zeros(rows, dtype=np.int64)
        self.kernels.losses(
            groups.state, self.worth, groups.standing.kept, grown, *self._asked[number], loss, device, every
        )
        return _Kept(loss[groups.of_row], device[groups.of_row], groups.seen)

    def _grouped(self, kernels: ModuleType) -> _Groups:
        of_row, first = kernels.group(self.rows.state)
        state = State(*(array[first] for array in self.rows.state))
        standing = Standing(len(first), self.worth)
        every = np.arange(len(first), dtype=np.int32)
        kernels.stand(state, self.worth, every, standing.kept)
        return _Groups(of_row, state, standing, self.rows.changes)

    @staticmethod
    def _own(kept: _Kept) -> None:
        if kept.shared:
            kept.loss, kept.device, kept.shared = kept.loss.copy(), kept.device.copy(), False

    def _work_out(self, number: int, kept: _Kept, rows: Int32s) -> None:
        asked = self._asked[number]
        if self.kernels is not None:
            standing, state = self._standing, self.rows.state
            self.kernels.stand(state, self.worth, standing.stale(self.rows), standing.kept)
            self.kernels.losses(*self._bound, *asked, kept.loss, kept.device, rows)
        else:
            if not self._states.follow(self.rows):
                self._forget()
                self._states.follow(self.rows)
            found = self._memo.look_up(number, asked, self.rows, self._standing, self._states, rows)
            kept.loss[rows], kept.device[rows] = found
