"""Who is stopped so that a run can start: spot work, and work that a project does beyond what it is guaranteed.

On-demand and reserved runs may take the place of spot runs; a spot run that of spot runs that bid less than it does,
once they have run for a while. A run that its project is sure of may also take that of borrowed work: where a project
holds more GPUs of a kind than it is guaranteed, what it started last is borrowed. The cheapest go (`victims`), whole
attempts, never more than needed.
"""

from collections import defaultdict
from dataclasses import dataclass

from cumulo.domain.ask import Ask
from cumulo.domain.run import PurchaseOption
from cumulo.placement.fit import Place
from cumulo.placement.policy import Policy
from cumulo.placement.reserve import Attempt
from cumulo.placement.shares import Shares, kinds_held
from cumulo.placement.victims import Candidate, candidate, cheapest
from cumulo.placement.world import Waiting, World, most_bid


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """An attempt that is stopped for another, and the GPU-seconds of work that it loses."""

    attempt: str
    run_id: str
    run_name: str
    instance_ids: tuple[str, ...]
    lost_gpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Who goes, and where `waiting` starts once they have gone. Places are in rank order."""

    waiting: Waiting
    victims: tuple[Victim, ...]
    places: tuple[Place, ...]

    @property
    def lost_gpu_s(self) -> float:
        return sum(victim.lost_gpu_s for victim in self.victims)


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose places a run may take. `borrowed_kinds` are the GPU kinds of which its project is sure of what it asks.

    `outbids`: those of spot runs that bid less than that many nano-USD per GPU-hour.
    """

    spot: bool = False
    borrowed_kinds: frozenset[str] = frozenset()
    outbids: float = 0.0

    def __bool__(self) -> bool:
        return self.spot or bool(self.borrowed_kinds) or self.outbids > 0


def claim(waiting: Waiting, sure_kinds: frozenset[str]) -> Claim:
    """What `waiting` may do to others, given the kinds that its project is sure of."""
    if waiting.purchase is PurchaseOption.SPOT:
        return Claim(outbids=most_bid(waiting.bid_nano_h))
    return Claim(spot=True, borrowed_kinds=sure_kinds)


def may_go(world: World, running: list[Attempt], by: Claim, *, policy: Policy, now: float) -> list[Candidate]:
    """Which of the running attempts the claim may stop."""
    borrowed = _borrowed(world, running, policy, by.borrowed_kinds) if by.borrowed_kinds else frozenset()
    may_end = (each for each in running if not any(hold.lasting for hold in each.holds))
    return [
        candidate(each, now)
        for each in may_end
        if each.id in borrowed or (each.spot and (by.spot or _outbid(each, by.outbids, policy.min_run_s, now)))
    ]


def _outbid(attempt: Attempt, bid_nano_h: float, min_run_s: float, now: float) -> bool:
    """Whether a bid that high takes its place. What has started a moment ago, or not yet, has its time first."""
    started = [now - hold.started_at >= min_run_s for hold in attempt.holds if hold.started_at is not None]
    bids = [most_bid(hold.bid_nano_h) for hold in attempt.holds]
    return len(started) == len(attempt.holds) and all(started) and max(bids) < bid_nano_h


def preempt(world: World, waiting: Waiting, ask: Ask, may_go: list[Candidate]) -> Preemption | None:
    """The cheapest preemption with which `waiting` fits; None if there is none."""
    found = cheapest(world, ask, may_go) if may_go else None
    if found is None:
        return None
    chosen, places = found
    victims = tuple(
        Victim(
            attempt=each.attempt.id,
            run_id=each.attempt.holds[0].run_id,
            run_name=each.attempt.holds[0].run_name,
            instance_ids=tuple(hold.instance_id for hold in each.attempt.holds),
            lost_gpu_s=each.lost_gpu_s,
        )
        for each in chosen
    )
    return Preemption(waiting=waiting, victims=victims, places=places)


def _borrowed(world: World, running: list[Attempt], policy: Policy, kinds: frozenset[str]) -> frozenset[str]:
    """The attempts with which their projects went beyond what they are guaranteed of any of the kinds."""
    theirs: dict[tuple[str, str], list[tuple[float, str, int]]] = defaultdict(list)
    for attempt in running:
        # All instances of an attempt have GPUs of one kind.
        for hold, kind, _ in kinds_held(world, attempt.holds[:1]):
            if kind in kinds:
                # What has not started yet was placed last.
                since = hold.started_at if hold.started_at is not None else float("inf")
                theirs[hold.project, kind].append((since, attempt.id, attempt.gpus_milli))
    borrowed: set[str] = set()
    for (project, kind), several in theirs.items():
        sure, held = policy.rules(project).guaranteed.get(kind, 0) * 1000, 0
        for _, name, gpus_milli in sorted(several):
            held += gpus_milli
            if held > sure:
                borrowed.add(name)
    return frozenset(borrowed)


def sure_kinds(waiting: Waiting, least: int, kinds: frozenset[str], shares: Shares) -> frozenset[str]:
    """The GPU kinds of which the project is sure of the `least` milli that the run asks."""
    return frozenset(kind for kind in kinds if shares.guaranteed(waiting.project, kind, least))
