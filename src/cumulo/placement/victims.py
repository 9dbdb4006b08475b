"""The cheapest of what could leave so that an ask fits: the search that preemption and making room share.

Attempts leave whole. A set of them is cheaper if it costs nobody of a higher priority, then nobody who bids more, then
if it loses fewer GPU-seconds, then if it is smaller. On the nodes that promise most the sets are tried from the
cheapest on, so that the first found there is the best; a gang, or an ask that no single node can be cleared for, gets a
greedy set. Whoever need not leave then stays: no victim is superfluous.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final

from cumulo.domain.ask import Ask
from cumulo.domain.sharing import share_milli
from cumulo.placement.fit import Place, choose
from cumulo.placement.quota import least_milli
from cumulo.placement.reserve import Attempt, release, restore
from cumulo.placement.world import Hold, NodeUse, World, most_bid

# How many nodes are searched in full, and how many sets on each of them.
MOST_NODES: Final = 16
MOST_SETS: Final = 512

Cost = tuple[int, float, float, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An attempt that may leave, and what is lost if it does."""

    attempt: Attempt
    priority: int
    bid_nano_h: float
    lost_gpu_s: float

    @property
    def order(self) -> tuple[int, float, float, str]:
        return self.priority, self.bid_nano_h, self.lost_gpu_s, self.attempt.id


def candidate(attempt: Attempt, now: float) -> Candidate:
    priority = max(hold.priority for hold in attempt.holds)
    bid = max(most_bid(hold.bid_nano_h) for hold in attempt.holds)
    return Candidate(attempt, priority, bid, sum(lost_gpu_s(hold, now) for hold in attempt.holds))


def lost_gpu_s(hold: Hold, now: float) -> float:
    """GPU-seconds since its last checkpoint, or since its start where none is known; 0 before it has started."""
    since = hold.checkpointed_at if hold.checkpointed_at is not None else hold.started_at
    return 0.0 if since is None else share_milli(hold.slices) / 1000 * max(0.0, now - since)


def cost(chosen: Iterable[Candidate]) -> Cost:
    several = list(chosen)
    priority, bid = max(each.priority for each in several), max(each.bid_nano_h for each in several)
    return priority, bid, sum(each.lost_gpu_s for each in several), len(several)


def cheapest(world: World, ask: Ask, candidates: list[Candidate]) -> tuple[list[Candidate], tuple[Place, ...]] | None:
    """Which candidates leave, none without need, and where the ask goes then; None if that is not enough.

    The ask must not fit as things are. `world` is left as it was.
    """
    found = _on_one_node(world, ask, candidates) if ask.nodes == 1 else []
    if not found:
        trial = world.copy()
        for each in candidates:
            release(trial, each.attempt)
        if choose(trial, ask) is None:
            return None
        for each in candidates:
            restore(trial, each.attempt)
        found = [_greedy(trial, ask, candidates)]
    best = min(found, key=lambda chosen: (cost(chosen), [each.attempt.id for each in chosen]))
    for each in best:
        release(world, each.attempt)
    places = choose(world, ask)
    for each in best:
        restore(world, each.attempt)
    return (best, places) if places is not None else None


def _greedy(trial: World, ask: Ask, candidates: list[Candidate]) -> list[Candidate]:
    """Nodes are cleared one after another, the cheapest first, until it fits; then who need not have left stays."""
    released: dict[str, Candidate] = {}
    for _, each in by_node(trial, ask, candidates):
        for one in each:
            if one.attempt.id not in released:
                released[one.attempt.id] = one
                release(trial, one.attempt)
        if choose(trial, ask) is not None:
            break
    else:
        for one in sorted(candidates, key=lambda each: each.order):
            if one.attempt.id not in released:
                released[one.attempt.id] = one
                release(trial, one.attempt)
    return _needed(trial, ask, list(released.values()))


def _needed(trial: World, ask: Ask, released: list[Candidate]) -> list[Candidate]:
    """Those of the released without which the ask does not fit. All are back in `trial` afterwards."""
    needed = []
    for each in sorted(released, key=lambda one: one.order, reverse=True):
        restore(trial, each.attempt)
        if choose(trial, ask) is None:
            needed.append(each)
            release(trial, each.attempt)
    for each in needed:
        restore(trial, each.attempt)
    return sorted(needed, key=lambda one: one.order)


def _on_one_node(world: World, ask: Ask, candidates: list[Candidate]) -> list[list[Candidate]]:
    """The cheapest set on each of the nodes that promise most."""
    found: list[list[Candidate]] = []
    best: Cost | None = None
    for node_id, _ in by_node(world, ask, candidates)[:MOST_NODES]:
        there = [each for each in candidates if any(hold.node_id == node_id for hold in each.attempt.holds)]
        alone = _alone(world, node_id, there)
        for chosen in sets(there, least_freed(world.nodes[node_id], ask), node_id):
            if best is not None and cost(chosen) >= best:
                break
            if _fits_without(alone, ask, chosen, node_id):
                needed = chosen
                if any(len(each.attempt.holds) > 1 for each in chosen):
                    # Where a gang leaves, it may fit on another of its nodes, and need fewer.
                    needed = _without_need(world, ask, chosen)
                found.append(needed)
                best = min(best, cost(needed)) if best else cost(needed)
                break
    return found


def _without_need(world: World, ask: Ask, chosen: list[Candidate]) -> list[Candidate]:
    trial = world.copy()
    for each in chosen:
        release(trial, each.attempt)
    return _needed(trial, ask, chosen)


def _alone(world: World, node_id: str, there: list[Candidate]) -> World:
    """One node of a world, and of what is held of it what may leave, to try things on."""
    holds = {hold.instance_id: hold for each in there for hold in each.attempt.on(node_id).holds}
    nodes = {node_id: world.nodes[node_id].copy()}
    return World(nodes=nodes, holds=holds, may_change_mode=world.may_change_mode)


def _fits_without(alone: World, ask: Ask, chosen: list[Candidate], node_id: str) -> bool:
    parts = [each.attempt.on(node_id) for each in chosen]
    for part in parts:
        release(alone, part)
    fits = choose(alone, ask) is not None
    for part in parts:
        restore(alone, part)
    return fits


def by_node(world: World, ask: Ask, candidates: list[Candidate]) -> list[tuple[str, list[Candidate]]]:
    """The nodes that could be cleared for one instance by amounts alone, the cheapest first, and by whom at a guess."""
    there: dict[str, list[Candidate]] = defaultdict(list)
    for each in sorted(candidates, key=lambda one: one.order):
        for node_id in {hold.node_id for hold in each.attempt.holds}:
            there[node_id].append(each)
    found: list[tuple[Cost, str, list[Candidate]]] = []
    for node_id, several in there.items():
        need = least_freed(world.nodes[node_id], ask)
        chosen: list[Candidate] = []
        for each in several:
            if need <= 0 and chosen:
                break
            chosen.append(each)
            need -= each.attempt.on(node_id).gpus_milli
        if need <= 0:
            found.append((cost(chosen), node_id, chosen))
    found.sort(key=lambda each: each[:2])
    return [(node_id, chosen) for _, node_id, chosen in found]


def least_freed(use: NodeUse, ask: Ask) -> int:
    """How many milli of GPUs must be freed on a node for one instance, at the least."""
    free = sum(1000 - use.held(device).milli for device in use.node.devices if use.usable(device))
    return least_milli(replace(ask, nodes=1)) - free


def sets(candidates: list[Candidate], need: int, node_id: str) -> Iterator[list[Candidate]]:
    """Sets of candidates that free at least `need` milli of GPUs on the node, from the cheapest on; not all of many."""
    ordered = sorted(candidates, key=lambda each: each.order)
    freed = [each.attempt.on(node_id).gpus_milli for each in ordered]
    heap: list[tuple[Cost, tuple[int, ...]]] = []

    def push(chosen: tuple[int, ...]) -> None:
        heappush(heap, (cost(ordered[index] for index in chosen), chosen))

    if ordered:
        push((0,))
    for _ in range(MOST_SETS):
        if not heap:
            return
        _, chosen = heappop(heap)
        if sum(freed[index] for index in chosen) >= need:
            yield [ordered[index] for index in chosen]
        # Each set comes from one other only: by the next one added, or by the last one exchanged for the next.
        if (after := chosen[-1] + 1) < len(ordered):
            push((*chosen, after))
            push((*chosen[:-1], after))
