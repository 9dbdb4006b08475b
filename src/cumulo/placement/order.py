"""One pass over the queue: who starts where, who is stopped for whom, what is kept for whom, and who is held back.

Units come in their turn (`turns`). One that fits starts. One that doesn't is made room for by moving others (`room`) or
by stopping them (`preempt`), where the policy lets it; else the first such is the head of the queue (`head`): room is
kept for it, and what comes behind it starts only where that does not delay it. Gangs start whole or not at all. A
distinct ask is tried once per pass: with 500 equal ones waiting, one refusal speaks for all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from cumulo.domain.ask import Ask
from cumulo.domain.run import PurchaseOption
from cumulo.placement.clearing import Clearing, clear, keep
from cumulo.placement.fit import Place, choose, prepare
from cumulo.placement.head import Heads
from cumulo.placement.policy import Policy
from cumulo.placement.preempt import Claim, Preemption, claim, sure_kinds
from cumulo.placement.purchase import Market, Purchases
from cumulo.placement.quota import exceeded, least_milli, narrowed
from cumulo.placement.refuse import Constraint
from cumulo.placement.reserve import Reservation, held_places
from cumulo.placement.room import Room
from cumulo.placement.shares import Shares, Usage
from cumulo.placement.turns import Turns
from cumulo.placement.world import Waiting, World

# So many distinct asks of a queue are worked out before the world is copied.
MOST_PREPARED: Final = 256
# Nobody is named, nobody is sure of anything, and no clock is needed.
PLAIN: Final = Policy()
NO_MARKET: Final = Market()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Places for the instances of one attempt, in rank order, and the id of the reservation that they draw on."""

    waiting: Waiting
    places: tuple[Place, ...]
    reservation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """Why a unit waits though the nodes might have room: a quota, a reservation, its bid, or what the head is kept."""

    waiting: Waiting
    constraint: Constraint
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass decided; iterated over, its decisions. No reservations: nothing had to be kept from anybody."""

    decisions: tuple[Decision, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    rooms: tuple[Room, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    held_back: tuple[HeldBack, ...] = ()

    @property
    def reservation(self) -> Reservation | None:
        """What is kept for the first that waits."""
        return next(iter(self.reservations), None)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)


def place(
    world: World,
    queue: Iterable[Waiting],
    *,
    limit: int = 1000,
    policy: Policy = PLAIN,
    usage: Usage | None = None,
    now: float | None = None,
    ends: Mapping[str, float] | None = None,
    under_way: Sequence[Preemption | Room] = (),
    market: Market = NO_MARKET,
) -> Pass:
    """Decides on a copy of `world`; at most `limit` attempts, so that one pass stays short.

    Without `now` nothing is known of time: what fits starts, the oldest first; nothing is reserved, preempted or moved.
    `ends` are estimated ends, by instance id, of what declared none. `under_way` is what earlier passes decided and
    what still waits for its victims or movers to leave, or has just seen them leave. `market` tells spot prices, and
    what is reserved.
    """
    units = list(queue)
    if not units:
        return Pass()
    return _Pass(world, units, policy, usage, now, ends or {}, market).run(under_way, limit)


def hold_places(world: World, waiting: Waiting, places: tuple[Place, ...], until: float | None = None) -> list[str]:
    """Takes the places in `world` under instance ids made from the key, which are returned."""
    holds = held_places(waiting, places, until)
    for hold in holds:
        world.hold(hold)
    return [hold.instance_id for hold in holds]


class _Pass:
    """The state of one pass."""

    def __init__(
        self,
        world: World,
        queue: list[Waiting],
        policy: Policy,
        usage: Usage | None,
        now: float | None,
        ends: Mapping[str, float],
        market: Market,
    ) -> None:
        prepare(world, islice(dict.fromkeys(waiting.ask for waiting in queue), MOST_PREPARED))
        self.trial = world.copy()
        self.queue, self.policy, self.now = queue, policy, now
        projects = {waiting.project for waiting in queue}
        fair = len(projects) > 1 or policy.guarantees or any(policy.rules(each).quota.limits for each in projects)
        self.shares = Shares(world, policy, usage, now or 0.0) if fair else None
        self.turns = Turns(queue, world, policy, self.shares, 0.0 if now is None else policy.stretch)
        most = policy.reservations
        firm = Heads(self.trial, now, ends, most=most, spot_yields=policy.preemption)
        # Where nothing is preempted, spot runs stand in the queue like all others.
        spot = Heads(self.trial, now, ends, most=most, spot_yields=False) if policy.preemption else firm
        self.heads = {option: spot if option is PurchaseOption.SPOT else firm for option in PurchaseOption}
        self.clearing = Clearing(self.trial, policy, now)
        self.purchases = Purchases(world, market, now or 0.0)
        self.refused: set[tuple[Ask, Claim]] = set()  # no room, and none to be made
        self.over_quota: dict[tuple[str, Ask], str] = {}
        self.decisions: list[Decision] = []
        self.preemptions: list[Preemption] = []
        self.rooms: list[Room] = []
        self.held_back: list[HeldBack] = []

    def run(self, under_way: Sequence[Preemption | Room], limit: int) -> Pass:
        going = self._keep_under_way(under_way)
        behind = 0
        for waiting in self.turns:
            if len(self.decisions) + len(self.preemptions) + len(self.rooms) >= limit:
                break
            if waiting.key in going:
                continue
            head = self.heads[waiting.purchase]
            behind += head.there
            if behind > self.policy.backfill_depth:
                break
            self._consider(waiting)
            if not self.policy.backfill and head.kept():
                break
        return Pass(
            decisions=tuple(self.decisions),
            preemptions=tuple(self.preemptions),
            rooms=tuple(self.rooms),
            reservations=tuple(each for heads in dict.fromkeys(self.heads.values()) for each in heads.reservations),
            held_back=tuple(self.held_back),
        )

    def _keep_under_way(self, under_way: Sequence[Preemption | Room]) -> set[tuple[str, int, int]]:
        """The units that need no turn: they start now where others left, or what is kept for them is not free yet."""
        going: set[tuple[str, int, int]] = set()
        for each in under_way:
            for waiting, places, free in keep(self.trial, self.queue, each):
                going.add(waiting.key)
                drawn = self.purchases.take(waiting, places)
                if free:
                    self.decisions.append(Decision(waiting=waiting, places=places, reservation=drawn))
                if self.shares:
                    self.shares.take(waiting.project, places)
        return going

    def _consider(self, waiting: Waiting) -> None:
        ask = self._as_bought(waiting)
        if ask is None:
            return
        by = self._claim(waiting, ask)
        if (ask, by) in self.refused:
            return
        places = choose(self.trial, ask)
        if places is not None:
            self._start(waiting, ask, places)
        elif not self._make_room(waiting, ask, by):
            self.refused.add((ask, by))
            self.heads[waiting.purchase].blocked(waiting, ask)

    def _as_bought(self, waiting: Waiting) -> Ask | None:
        """The ask within the quota and what its purchase option admits."""
        ask = self._within_quota(waiting)
        if ask is None or ask.gpu is None or not self.purchases.bind(waiting):
            return ask
        found = self.purchases.narrowed(replace(waiting, ask=ask), self.turns.kinds(ask))
        if isinstance(found, Ask):
            return found
        self.held_back.append(HeldBack(waiting=waiting, constraint=found[0], text=found[1]))
        return None

    def _within_quota(self, waiting: Waiting) -> Ask | None:
        quota = self.policy.rules(waiting.project).quota
        if self.shares is None or not quota.limits:
            return waiting.ask
        # What a project holds only grows during a pass, but by preemption: then the next pass sees it.
        known = self.over_quota.get((waiting.project, waiting.ask))
        if known is None:
            held, kinds = self.shares.holding(waiting.project), self.turns.kinds(waiting.ask)
            found = narrowed(waiting.project, quota, held, waiting.ask, kinds)
            if isinstance(found, Ask):
                return found
            known = self.over_quota[waiting.project, waiting.ask] = found
        self.held_back.append(HeldBack(waiting=waiting, constraint=Constraint.QUOTA, text=known))
        return None

    def _claim(self, waiting: Waiting, ask: Ask) -> Claim:
        if self.now is None or not self.policy.preemption:
            return Claim()
        sure: frozenset[str] = frozenset()
        if self.shares is not None and self.policy.guarantees:
            sure = sure_kinds(waiting, least_milli(ask), self.turns.kinds(ask), self.shares)
        return claim(waiting, sure)

    def _start(self, waiting: Waiting, ask: Ask, places: tuple[Place, ...]) -> None:
        found = self.heads[waiting.purchase].beside(waiting, ask, places)
        if isinstance(found, str):
            self.held_back.append(HeldBack(waiting=waiting, constraint=Constraint.RESERVATION, text=found))
        elif self._admitted(waiting, found):
            drawn = self.purchases.take(waiting, found)
            self.decisions.append(Decision(waiting=waiting, places=found, reservation=drawn))
            hold_places(self.trial, waiting, found, self._until(waiting))
            self._took(waiting, found)
            if self.shares:
                self.shares.take(waiting.project, found)

    def _admitted(self, waiting: Waiting, places: tuple[Place, ...]) -> bool:
        """Whether quota and purchase option admit the places too: they may take what the ask did not name."""
        if refused := self.purchases.exceeded(waiting, places):
            self.held_back.append(HeldBack(waiting=waiting, constraint=refused[0], text=refused[1]))
            return False
        quota = self.policy.rules(waiting.project).quota
        if self.shares is None or not quota.limits:
            return True
        text = exceeded(waiting.project, quota, self.shares.holding(waiting.project), places)
        if text:
            self.held_back.append(HeldBack(waiting=waiting, constraint=Constraint.QUOTA, text=text))
        return not text

    def _make_room(self, waiting: Waiting, ask: Ask, by: Claim) -> bool:
        """Moves or stops others for it, if the policy lets it, it is enough, and the head is not delayed."""
        found = self.clearing.room(waiting, ask) or (self.clearing.preemption(waiting, ask, by) if by else None)
        if found is None or not self._admitted(waiting, found.places):
            return False
        heads = self.heads[waiting.purchase]
        heads.kept()
        cleared = clear(self.trial, found, self._until(waiting))
        if not heads.stands(waiting, cleared):
            cleared.undo(self.trial)
            return False
        self._overtaken(waiting)
        if isinstance(found, Room):
            self.rooms.append(found)
        else:
            self.preemptions.append(found)
        self.purchases.take(waiting, found.places)
        if self.shares:
            # What was moved is held as before; what was stopped is not.
            if isinstance(found, Preemption):
                self.shares.give_back(self.trial, cleared.gone)
            self.shares.take(waiting.project, found.places)
        return True

    def _took(self, waiting: Waiting, places: tuple[Place, ...]) -> None:
        self.heads[waiting.purchase].took(waiting, places)
        self._overtaken(waiting)

    def _overtaken(self, waiting: Waiting) -> None:
        """Spot runs that wait get what is left; what is kept for others does not change: they may stop spot runs."""
        spot = self.heads[PurchaseOption.SPOT]
        if spot is not self.heads[waiting.purchase]:
            spot.overtaken()

    def _until(self, waiting: Waiting) -> float | None:
        return None if self.now is None or waiting.duration_s is None else self.now + waiting.duration_s
