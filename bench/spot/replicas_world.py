"""Zones whose spot availability was recorded side by side, and a service's replicas replayed in them.

What a rule may know: the replicas it has, which of them were just lost, and whether a launch it asks for is refused.
What is to be had in zones where it asks for nothing stays hidden.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bench.spot.traces import BadTrace, Trace

UNLIMITED = 1_000_000


class Zones(NamedTuple):
    """`counts[tick, zone]`: how many spot replicas can be had."""

    names: tuple[str, ...]
    regions: tuple[str, ...]
    gap_s: float
    counts: NDArray[np.int64]

    def during(self, first: int, last: int) -> "Zones":
        return self._replace(counts=self.counts[first:last])


@dataclass(slots=True)
class Held:
    """One replica; `zone` None: on-demand."""

    id: str
    zone: int | None
    began: int


class Outcome(NamedTuple):
    """Shares of time and of the cost of on-demand alone. `missing` is the mean share of wanted replicas not ready."""

    ready: float
    cost: float
    missing: float
    none_ready: float
    launches: int
    refusals: int


class Rule(Protocol):
    """A rule for one replay."""

    def step(self, cloud: "Cloud", lost: Sequence[int]) -> None:
        """Launches and drops for this tick; `lost` holds the zone of each replica that was just taken."""


@dataclass(slots=True)
class Cloud:
    """What a rule sees and does in one tick."""

    zones: Zones
    cold_ticks: int
    tick: int = 0
    held: list[Held] = field(default_factory=list)
    launches: int = 0
    refusals: int = 0
    _ids: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def spot(self) -> list[Held]:
        return [each for each in self.held if each.zone is not None]

    @property
    def on_demand(self) -> list[Held]:
        return [each for each in self.held if each.zone is None]

    def is_ready(self, replica: Held) -> bool:
        return self.tick - replica.began >= self.cold_ticks

    def launch(self, zone: int | None) -> bool:
        """Whether it was granted: on-demand always is."""
        if zone is not None:
            there = sum(each.zone == zone for each in self.held)
            if there >= self.zones.counts[self.tick, zone]:
                self.refusals += 1
                return False
        self.held.append(Held(str(next(self._ids)), zone, self.tick))
        self.launches += 1
        return True

    def drop(self, replica: Held) -> None:
        self.held.remove(replica)

    def preempt(self) -> list[int]:
        """Takes what there is no longer room for, the youngest first."""
        lost: list[int] = []
        for zone in {each.zone for each in self.held if each.zone is not None}:
            own = [each for each in self.held if each.zone == zone]
            for each in own[int(self.zones.counts[self.tick, zone]) :]:
                self.held.remove(each)
                lost.append(zone)
        return sorted(lost)


def aligned(traces: Sequence[Trace]) -> Zones:
    """The traces as zones of one clock, cut to the shortest. Raises BadTrace if their ticks differ in length.

    A trace of single instances says whether spot can be had, so of as many as one likes; others say of how many.
    """
    gaps = sorted({trace.gap_s for trace in traces})
    if len(gaps) > 1:
        raise BadTrace(
            f"traces of one clock are needed, and these tick every {', '.join(f'{gap:g}' for gap in gaps)} s"
        )
    ticks = min(len(trace.counts) for trace in traces)
    counts = [trace.counts[:ticks] * (UNLIMITED if trace.needs == 1 else 1) for trace in traces]
    names = tuple(trace.name for trace in traces)
    return Zones(names, tuple(_region(name) for name in names), gaps[0], np.stack(counts, axis=1))


def _region(name: str) -> str:
    """`us-west-2` of `us-west-2a_v100_1` and of `us-west1-b_c3-88` its zone's name without the letter."""
    return name.partition("_")[0][:-1].rstrip("-")


def replay(zones: Zones, rule: Rule, *, target: int, cold_start_s: float, on_demand: float) -> Outcome:
    """The rule over all of `zones`, spot at a price of 1. A replica is paid for from its launch on."""
    cloud = Cloud(zones, cold_ticks=int(np.ceil(cold_start_s / zones.gap_s - 1e-9)))
    ticks = len(zones.counts)
    ready = np.zeros(target + 1)
    cost = 0.0
    for cloud.tick in range(ticks):
        rule.step(cloud, cloud.preempt())
        ready[min(target, sum(cloud.is_ready(each) for each in cloud.held))] += 1
        cost += sum(1.0 if each.zone is not None else on_demand for each in cloud.held)
    share = ready / ticks
    return Outcome(
        ready=float(share[target]),
        cost=cost / (ticks * target * on_demand),
        missing=float(share @ (target - np.arange(target + 1)) / target),
        none_ready=float(share[0]),
        launches=cloud.launches,
        refusals=cloud.refusals,
    )
