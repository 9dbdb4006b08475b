"""The pass over the queue, as this cloud runs it: with its rules, what projects used, and when what runs should end.

Whoever asks what would happen (`explain`, `listing`) asks here too, so that what people are told is what is done.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from cumulo.control.live import Picture
from cumulo.control.promising import market_of
from cumulo.domain.ask import Ask
from cumulo.placement.clearing import leaving, take
from cumulo.placement.fit import admitted_kinds
from cumulo.placement.order import Decision, Pass, place
from cumulo.placement.policy import Policy
from cumulo.placement.quota import least_milli, narrowed
from cumulo.placement.reserve import Attempt, attempts, held_places
from cumulo.placement.shares import Holding, Shares
from cumulo.placement.traits import started, traits_held
from cumulo.placement.turns import Turns
from cumulo.placement.world import OverHeld, Waiting, World

# How many attempts one pass may place: keeps a step, and so the wait of everybody else, short.
MOST_PER_STEP = 256


def decide(seen: Picture, queue: Iterable[Waiting], now: float) -> Pass:
    """What the pass over `queue` decides at `now`; nothing is changed."""
    decided = place(
        seen.world,
        queue,
        limit=MOST_PER_STEP,
        policy=seen.rules.policy,
        usage=seen.ledger.usage,
        now=now,
        ends=LearntEnds(seen, now),
        under_way=seen.promises,
        market=market_of(seen),
    )
    if not (decided.preemptions or decided.rooms or seen.promises):
        return decided
    return replace(decided, decisions=tuple(_possible(seen.world, decided)))


def _possible(world: World, decided: Pass) -> Iterator[Decision]:
    """The decisions that can be carried out now: none where others have yet to leave, or that it stops itself again.

    What is not carried out now is decided again once they have left.
    """
    trial, gone = world.copy(), doomed(decided)
    for decision in decided.decisions:
        holds = held_places(decision.waiting, decision.places)
        if holds[0].instance_id not in gone:
            with suppress(OverHeld):
                take(trial, holds)
                yield decision


def doomed(decided: Pass) -> frozenset[str]:
    """The instances that make room for others by what was decided."""
    return frozenset(name for found in (decided.preemptions, decided.rooms) for each in found for name in leaving(each))


def decider(seen: Picture, now: float) -> Callable[[World, Sequence[Waiting]], Pass]:
    """`decide` for who asks it of other queues on the same world."""
    return lambda _, queue: decide(seen, queue, now)


def beyond_quota(policy: Policy, world: World, project: str, ask: Ask) -> str:
    """Why a project may never hold what is asked; empty where it may."""
    quota = policy.rules(project).quota
    if not quota.limits:
        return ""
    kinds = world.models() & (admitted_kinds(ask.gpu, world) or world.models()) if ask.gpu else frozenset[str]()
    found = narrowed(project, quota, Holding(), ask, kinds)
    return "" if isinstance(found, Ask) else found


def in_turn(seen: Picture, queue: Iterable[Waiting], now: float) -> Iterator[Waiting]:
    """`queue` in the order in which the pass gives turns, if each got the least that it asks for."""
    units, policy = list(queue), seen.rules.policy
    fair = len({waiting.project for waiting in units}) > 1 or policy.guarantees
    shares = Shares(seen.world, policy, seen.ledger.usage, now) if fair else None
    for waiting in Turns(units, seen.world, policy, shares, policy.stretch):
        yield waiting
        if shares is not None:
            ask = waiting.ask
            cpus, memory = (ask.cpus_milli or 0) * ask.nodes, (ask.memory_bytes or 0) * ask.nodes
            shares.holding(waiting.project).change("", least_milli(ask), cpus, memory)


class LearntEnds(Mapping[str, float]):
    """When instances that declared no end should end: the median by what was learnt. Worked out when it is asked."""

    def __init__(self, seen: Picture, now: float) -> None:
        self._world, self._past, self._now = seen.world, seen.learning.past, now
        self._attempts: dict[str, Attempt] | None = None

    def __getitem__(self, instance_id: str) -> float:
        attempt = self._attempt(self._world, instance_id)
        traits = traits_held(attempt.holds, self._now)
        if not self._past.can_tell(traits):
            raise KeyError(instance_id)
        age = max(0.0, self._now - started(attempt.holds[0], self._now))
        return self._now + self._past.durations.left(traits, age).at(0.5)

    def _attempt(self, world: World, instance_id: str) -> Attempt:
        if self._attempts is None:
            self._attempts = {each.id: each for each in attempts(world.holds.values())}
        return self._attempts[world.holds[instance_id].attempt]

    def __iter__(self) -> Iterator[str]:
        return iter(self._world.holds)

    def __len__(self) -> int:
        return len(self._world.holds)
