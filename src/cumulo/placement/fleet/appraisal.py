"""Keeps the worth of a fleet's room up to date with what it is asked for and what leaves it."""

from dataclasses import dataclass, field

import numpy as np

from cumulo.placement.fleet.chooser import TOLERANCE, TOLERANCE_CHURN
from cumulo.placement.fleet.mix import MEMORY, AskShape, Mix
from cumulo.placement.fleet.prices import NO_PRICES, Capacity, Prices, prices_of
from cumulo.placement.fleet.rows import Rows
from cumulo.placement.fleet.worth import Worth, worth_of


@dataclass(slots=True)
class Appraisal:
    """What was asked for, what was placed and what of it has ended, and the prices of the last review."""

    mix: Mix = field(default_factory=Mix)
    placed: float = 0.0
    ended: float = 0.0
    prices: Prices = NO_PRICES

    def see(self, shape: AskShape, memory: int) -> bool:
        """Counts an ask (memory in bytes); True when the worth should be worked out anew."""
        return self.mix.see(shape, memory)

    def note(self, *, placed: int = 0, ended: int = 0) -> None:
        """Counts what was placed and what ended. What was long ago counts less."""
        self.placed += placed
        self.ended += ended
        if self.placed > MEMORY:
            self.placed, self.ended = self.placed / 2, self.ended / 2

    @property
    def churn(self) -> float:
        """How much has left of as much as came, 0 to 1."""
        return min(1.0, self.ended / self.placed) if self.placed else 0.0

    @property
    def tolerance(self) -> int:
        """For the chooser, in micro-devices."""
        if not len(self.prices.net):
            return 0
        return round(TOLERANCE + (TOLERANCE_CHURN - TOLERANCE) * self.churn)

    def review(self, capacity: Capacity, devices: int) -> Worth:
        """Prices what is expected now. `devices`: the most on one row."""
        self.prices = prices_of(self.mix.review(), capacity, self.prices)
        return self.worth(capacity, devices)

    def worth(self, capacity: Capacity, devices: int) -> Worth:
        """The worth at the prices of the last review."""
        return worth_of(self.prices, capacity, devices=devices, ended=self.churn)


def capacity_of(rows: Rows) -> Capacity:
    """What all of a fleet's nodes have, by kind. A node's CPUs and memory are shared out among its kinds by devices."""
    state, kinds = rows.state, len(rows.kinds)
    devices = state.own
    share = np.where(devices > 0, devices / state.devices, state.first)
    total = [
        np.bincount(state.kind, weights=each, minlength=kinds).astype(np.float64)
        for each in (devices, state.node_cpus * share, state.node_memory * share)
    ]
    most = np.zeros((2, kinds))
    np.maximum.at(most[0], state.kind, devices)
    np.maximum.at(most[1], state.kind, state.node_cpus)
    return Capacity(*total, *most)
