"""The picture the control loop works on: all that is not over, in memory.

It is read from the store at the start (`loading`) and kept by the loop's own steps; after any failed write it is thrown
away and read again, so that it never runs ahead of the store. Only the control thread touches it.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cumulo.control.attempts import MOST_KEPT, Attempt, Ending, attempt_of
from cumulo.control.learning import Learning
from cumulo.control.ledger import Ledger
from cumulo.control.prices import SpotPrices
from cumulo.control.rules import DEFAULT_HALF_LIFE_S, Rules
from cumulo.domain.instance import ObservedInstance
from cumulo.domain.lifecycle import EndReason, InstanceState, RunStatus
from cumulo.domain.progress import Progress
from cumulo.domain.reservation import Reservation
from cumulo.domain.run import PurchaseOption, RunSpec
from cumulo.domain.sharing import Slice, device_uuids
from cumulo.market.course import Course
from cumulo.placement.preempt import Preemption
from cumulo.placement.room import Room
from cumulo.placement.world import Hold, Waiting, World

MOST_REMEMBERED: Final = 512
# The place that stands for all units of a run that were never placed.
FRESH: Final = -1


class Metered(NamedTuple):
    """A segment of use: from when until when (None: it is open), at which price."""

    since: float
    until: float | None
    price_nano_h: int


class Charted(NamedTuple):
    """What was decided for a unit with a deadline, when, and by how much work in all and left (None: nobody knows)."""

    course: Course
    at: float
    work_s: float | None
    work_left_s: float | None
    on_demand_nano_h: int  # what it costs an hour on-demand; 0 where nothing is charged


@dataclass(slots=True, kw_only=True)
class LiveInstance:
    """An instance that has not ended, or whose attempt has not. Once it has ended only its unit knows it."""

    id: str
    run_id: str
    unit: int
    attempt: int
    rank: int
    node_id: str
    region: str
    state: InstanceState
    slices: tuple[Slice, ...]  # that it holds; none once it has ended
    device_model: str
    cpus_milli: int
    memory_bytes: int
    address: str
    master_port: int
    price_nano_h: int
    rental_nano_h: int
    placed_at: float
    purchase: PurchaseOption = PurchaseOption.ON_DEMAND
    reservation_id: str | None = None  # that it draws on
    checkpointed_at: float | None = None  # when it last saved what it has done, as far as it told
    started_at: float | None = None
    ended_at: float | None = None
    stop_reason: EndReason | None = None
    stop_grace_s: float | None = None
    stopped_for: str | None = None  # the attempt that it makes room for
    preempt_at: float | None = None  # until when it may stay, as it was told
    reason: EndReason | None = None
    exit_code: int | None = None
    message: str = ""
    metered: list[Metered] = field(default_factory=list)  # what it costs so far; the last segment is open
    last_seen: ObservedInstance | None = field(default=None, compare=False, repr=False)  # and taken in

    @property
    def devices(self) -> tuple[str, ...]:
        return device_uuids(self.slices)

    @property
    def ended(self) -> bool:
        return self.state is InstanceState.ENDED


@dataclass(slots=True, kw_only=True)
class LiveUnit:
    """A unit that is not over: in an attempt, or waiting for the next one until `not_before`."""

    place: int
    status: RunStatus
    attempts: int
    preemptions: int = 0  # attempts that ended to make room for others
    purchase: PurchaseOption | None = None  # as what it is placed now; None: as its run says
    not_before: float | None = None
    placed_at: float | None = None
    started_at: float | None = None
    instances: dict[str, LiveInstance] = field(default_factory=dict)
    past: tuple[Attempt, ...] = ()  # the last of its attempts that are over

    def attempt_over(self) -> None:
        """All instances of its attempt have ended: what it came to is remembered, the instances are not."""
        over = attempt_of(self.attempts, map(ending_of, self.instances.values()))
        self.past = (*self.past, over)[-MOST_KEPT:]
        self.instances = {}


def ending_of(instance: LiveInstance) -> Ending:
    """How an instance that is over ended."""
    began_at = instance.placed_at if instance.started_at is None else instance.started_at
    return Ending(
        rank=instance.rank,
        reason=instance.reason or EndReason.LOST,
        stop_reason=instance.stop_reason,
        exit_code=instance.exit_code,
        began_at=began_at,
        ended_at=began_at if instance.ended_at is None else instance.ended_at,
        saved_at=instance.checkpointed_at,
        stopped_for=instance.stopped_for,
        told_at=None if instance.preempt_at is None else instance.preempt_at - (instance.stop_grace_s or 0.0),
    )


@dataclass(slots=True, kw_only=True)
class LiveRun:
    """A run that is not over. `units` are those with a row that are not over; `outcomes` counts those that are."""

    id: str
    spec: RunSpec
    account: str
    unix_uid: int | None
    status: RunStatus
    wanted: str
    accepted_at: float
    waits_for: set[str]
    units_started: int
    attempts: int
    placed_at: float | None
    started_at: float | None
    cost_nano: int
    rental_nano: int
    units: dict[int, LiveUnit] = field(default_factory=dict)
    # Of the units that ended since this was read.
    last_ended_at: float | None = field(default=None, compare=False)
    skipped: set[int] = field(default_factory=set)
    outcomes: Counter[RunStatus] = field(default_factory=Counter)
    first_progress: Progress | None = field(default=None, compare=False)
    last_progress: Progress | None = None
    furthest: Progress | None = None  # its progress when it had come further than ever before
    # Of a run with a deadline, by place: what was decided, who holds off, and as what those are bought that are FRESH.
    charted: dict[int, Charted] = field(default_factory=dict, compare=False, repr=False)
    held: set[int] = field(default_factory=set, compare=False)
    first_purchase: PurchaseOption | None = field(default=None, compare=False)
    asked: dict[int, Waiting] = field(default_factory=dict, compare=False, repr=False)  # what waits or waited, by place

    @property
    def project(self) -> str:
        return self.spec.project

    @property
    def all_started(self) -> bool:
        return self.units_started >= self.spec.units()

    def waiting(self, now: float, most: int) -> list[Waiting]:
        """The units that wait to be placed now, at most `most`: those that recover first, then the next places."""
        if self.wanted != "running" or self.waits_for or self.status is RunStatus.STOPPED:
            return []
        found = [
            self._wait(unit.place, unit.attempts + 1)
            for unit in self.units.values()
            if not unit.instances and (unit.not_before or 0) <= now and unit.place not in self.held
        ]
        parallel = (self.spec.array and self.spec.array.parallel) or self.spec.units()
        room = 0 if FRESH in self.held else min(most, parallel - len(self.units))
        place, last = self.units_started, self.spec.units()
        while room > 0 and place < last:
            if place not in self.skipped:
                found.append(self._wait(place, 1))
                room -= 1
            place += 1
        return found

    def _wait(self, place: int, attempt: int) -> Waiting:
        """Made once: with 500 runs in the queue, every step asks each of them."""
        known = self.asked.get(place)
        if known is not None and known.key[2] == attempt and known.purchase is self.purchase_of(place):
            return known
        if len(self.asked) > MOST_REMEMBERED:
            self.asked.clear()
        self.asked[place] = new = self.waits_as(place, attempt)
        return new

    def waits_as(self, place: int, attempt: int) -> Waiting:
        """An attempt of a unit as it stands in the queue."""
        return Waiting(
            key=(self.id, place, attempt),
            name=self.spec.name,
            ask=self.spec.ask,
            priority=self.spec.priority,
            accepted_at=self.accepted_at,
            duration_s=self.spec.max_duration_s,
            project=self.project,
            account=self.account,
            purchase=self.purchase_of(place),
            bid_nano_h=self.spec.max_price_nano_h,
            reservation=self.spec.reservation,
            migratable=self.spec.migratable,
        )

    def purchase_of(self, place: int) -> PurchaseOption:
        """As what a unit is placed now."""
        unit = self.units.get(place)
        return (unit and unit.purchase) or self.first_purchase or self.spec.purchase


@dataclass(slots=True, kw_only=True)
class Picture:
    """Everything that is not over.

    `leaked` are attempts of which an engine has an instance that the store forgot. `promises` is for whom room is made,
    until those who make it have left. Rules, `learning` and `ledger` are not the picture's own: they outlast it.
    """

    runs: dict[str, LiveRun] = field(default_factory=dict)
    instances: dict[str, LiveInstance] = field(default_factory=dict)
    world: World = field(default_factory=World)
    leaked: set[tuple[str, int, int]] = field(default_factory=set, compare=False)
    promises: list[Preemption | Room] = field(default_factory=list, compare=False)
    rules: Rules = field(default_factory=Rules, compare=False)
    learning: Learning = field(default_factory=Learning, compare=False)
    ledger: Ledger = field(default_factory=lambda: Ledger(DEFAULT_HALF_LIFE_S), compare=False)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    prices: SpotPrices = field(default_factory=SpotPrices, compare=False)

    def waiting(self, now: float, most: int) -> list[Waiting]:
        """What waits to be placed now, at most `most` units of each run.

        An attempt that leaked is not placed: its instances would get the ids of those that run.
        """
        found = [waiting for run in self.runs.values() for waiting in run.waiting(now, most)]
        return [waiting for waiting in found if waiting.key not in self.leaked] if self.leaked else found

    def unit_of(self, instance: LiveInstance) -> tuple[LiveRun, LiveUnit]:
        run = self.runs[instance.run_id]
        return run, run.units[instance.unit]


def hold_of(instance: LiveInstance, run: LiveRun) -> Hold:
    """What a live instance holds, until when at the latest as far as it declared."""
    limit = run.spec.max_duration_s
    until = (instance.started_at or instance.placed_at) + limit if limit is not None else None
    return Hold(
        instance_id=instance.id,
        run_id=run.id,
        run_name=run.spec.name,
        node_id=instance.node_id,
        cpus_milli=instance.cpus_milli,
        memory_bytes=instance.memory_bytes,
        slices=instance.slices,
        until=until,
        project=run.project,
        account=run.account,
        purchase=instance.purchase,
        bid_nano_h=run.spec.max_price_nano_h,
        reservation=instance.reservation_id,
        checkpointed_at=instance.checkpointed_at,
        priority=run.spec.priority,
        started_at=instance.started_at,
        migratable=run.spec.migratable,
    )
