"""Runs of one policy by number, as the churn benchmark starts and ends them; and the same with room made for some."""

from typing import Final, NamedTuple, Protocol

import numpy as np

from bench.placement.cumulo_policy import CumuloPolicy
from bench.placement.policies import Policy
from cumulo.placement.fleet.room import Movable, Moves, make_room

_SAVED: Final = 10.0


class Placed(NamedTuple):
    """The class of a run, and what it holds."""

    number: int
    row: int
    devices: list[int]


class Runs(Protocol):
    """What the benchmark drives. `moves` counts the runs moved so far."""

    moves: int

    def start(self, run: int, number: int) -> bool:
        """Places a run of a class; False where it is turned away."""

    def end(self, run: int) -> None:
        """A run that was placed is over."""


class Staying:
    """Runs that stay where they were placed."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.placed: dict[int, Placed] = {}
        self.moves = 0

    def start(self, run: int, number: int) -> bool:
        found = self.policy.arrive(number)
        if found is not None:
            self.placed[run] = Placed(number, *found)
        return found is not None

    def end(self, run: int) -> None:
        self.policy.leave(*self.placed.pop(run))


class Moving:
    """Cumulo's choice, and small runs that are moved where a run for several GPUs does not fit.

    What moves holds less than a GPU, or with `whole` at most one. `per_100` may move for 100 arrivals on the long
    average. What is not spent is saved up, until ten runs could take the most; one run may take a tenth of the savings,
    so that where they are short they go to the runs that need the fewest.
    """

    def __init__(self, policy: CumuloPolicy, *, whole: bool, most: int, per_100: float) -> None:
        self.policy, self.whole, self.most, self.per_arrival = policy, whole, most, per_100 / 100
        self.placed: dict[int, Placed] = {}
        self.small: dict[int, tuple[int, int, int, int, int, int]] = {}
        self.moves, self.saved = 0, 0.0

    def start(self, run: int, number: int) -> bool:
        self.saved = min(self.saved + self.per_arrival, _SAVED * self.most)
        found = self.policy.arrive(number)
        if found is None and self.policy.asked[number].gpus > 1 and self.saved >= _SAVED:
            found = self._with_room(number)
        if found is not None:
            self._keep(run, Placed(number, *found))
        return found is not None

    def end(self, run: int) -> None:
        self.small.pop(run, None)
        self.policy.leave(*self.placed.pop(run))

    def _keep(self, run: int, placed: Placed) -> None:
        self.placed[run] = placed
        cpus, memory, gpus, milli, fraction = self.policy.needs[placed.number]
        if fraction or (self.whole and gpus == 1):
            self.small[run] = (placed.row, placed.devices[0], milli, cpus, memory, placed.number)

    def _with_room(self, number: int) -> tuple[int, list[int]] | None:
        if not self.small:
            return None
        policy, runs = self.policy, list(self.small)
        columns = np.array(list(self.small.values()), dtype=np.int64).T
        movable = Movable(*(column.astype(of) for column, of in zip(columns, _TYPES, strict=True)))
        most = int(self.saved / _SAVED)
        found = make_room(policy.rows, policy.chooser, policy.asked[number], movable, most=most)
        return None if found is None else self._make(number, found, runs)

    def _make(self, number: int, found: Moves, runs: list[int]) -> tuple[int, list[int]]:
        rows, needs = self.policy.rows, self.policy.needs
        moving = [self.placed[runs[move.which]] for move in found.moves]
        for old in moving:
            cpus, memory, _, milli, _ = needs[old.number]
            rows.give(old.row, cpus=cpus, memory=memory, milli=milli, devices=old.devices)
        cpus, memory, gpus, milli, _ = needs[number]
        taken = rows.take(found.row, cpus=cpus, memory=memory, gpus=gpus, milli=milli)
        for move, old in zip(found.moves, moving, strict=True):
            cpus, memory, gpus, milli, fraction = needs[old.number]
            device = move.device if fraction else -1
            there = rows.take(move.row, cpus=cpus, memory=memory, gpus=gpus, milli=milli, device=device)
            self._keep(runs[move.which], Placed(old.number, move.row, there))
        self.policy.appraisal.note(placed=1)
        self.moves += len(found.moves)
        self.saved -= len(found.moves)
        return found.row, taken


_TYPES = (np.int32, np.int8, np.int16, np.int64, np.int64, np.int32)
