"""Making room: where a run fits only if small runs that can move do so, which of them, and where to.

A move costs what the moved run has done since its last checkpoint. The cheapest few that clear a node are looked for as
victims of a preemption are, except that each must find another place at once, beside the run that it makes room for.
"""

from dataclasses import dataclass, replace

from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.sharing import SharingMode
from cumulo.placement.fit import Place, choose
from cumulo.placement.quota import least_milli
from cumulo.placement.reserve import Attempt, held_places, release
from cumulo.placement.shares import kinds_held
from cumulo.placement.victims import MOST_NODES, Candidate, by_node, candidate, least_freed, sets
from cumulo.placement.world import Hold, Waiting, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """An instance that goes elsewhere, and the GPU-seconds of work that it loses."""

    instance_id: str
    run_id: str
    run_name: str
    from_node: str
    place: Place
    lost_gpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The moves that make room for `waiting`, and where it starts once they are done."""

    waiting: Waiting
    moves: tuple[Move, ...]
    places: tuple[Place, ...]

    @property
    def lost_gpu_s(self) -> float:
        return sum(move.lost_gpu_s for move in self.moves)


def make_room(
    world: World, waiting: Waiting, ask: Ask, running: list[Attempt], *, most_moves: int, now: float
) -> Room | None:
    """The cheapest moves, at most `most_moves`, with which `waiting` fits on one node; None if there are none.

    Only attempts of one instance move, and only those that hold less of a node's GPUs than the run that they make room
    for asks of it: else moving would only exchange who waits.
    """
    if ask.nodes > 1:
        return None
    asked = least_milli(ask)
    may_move = [
        candidate(attempt, now)
        for attempt in running
        if len(attempt.holds) == 1 and attempt.holds[0].migratable and attempt.gpus_milli < asked
    ]
    best: Room | None = None
    trial = world.copy()
    for node_id, _ in by_node(world, ask, may_move)[:MOST_NODES]:
        there = [each for each in may_move if each.attempt.holds[0].node_id == node_id]
        for chosen in sets(there, least_freed(world.nodes[node_id], ask), node_id):
            if best is not None and sum(each.lost_gpu_s for each in chosen) >= best.lost_gpu_s:
                break
            if len(chosen) > most_moves:
                continue
            room = _moved(trial, waiting, ask, chosen)
            if room is not None:
                best = room
                break
    return best


def _moved(trial: World, waiting: Waiting, ask: Ask, chosen: list[Candidate]) -> Room | None:
    """What comes of moving those; `trial` is left as it was."""
    moving = [each.attempt.holds[0] for each in chosen]
    asks = [ask_again(trial, hold) for hold in moving]
    for each in chosen:
        release(trial, each.attempt)
    taken: list[str] = []
    moves: list[Move] = []
    places = choose(trial, ask)
    if places is not None:
        for hold in held_places(waiting, places):
            trial.hold(hold)
            taken.append(hold.instance_id)
        for each, hold, again in zip(chosen, moving, asks, strict=True):
            found = choose(trial, again)
            if found is None:
                break
            trial.hold(replace(hold, node_id=found[0].node_id, slices=found[0].slices))
            taken.append(hold.instance_id)
            moves.append(
                Move(
                    instance_id=hold.instance_id,
                    run_id=hold.run_id,
                    run_name=hold.run_name,
                    from_node=hold.node_id,
                    place=found[0],
                    lost_gpu_s=each.lost_gpu_s,
                )
            )
    for instance_id in taken:
        trial.release(instance_id)
    for hold in moving:
        trial.hold(hold)
    if places is None or len(moves) < len(chosen):
        return None
    return Room(waiting=waiting, moves=tuple(moves), places=places)


def ask_again(world: World, hold: Hold) -> Ask:
    """An ask for just what a hold has: as much, of the same kind, shared in the same way."""
    return Ask(gpu=_gpu_again(world, hold), cpus_milli=hold.cpus_milli, memory_bytes=hold.memory_bytes)


def _gpu_again(world: World, hold: Hold) -> GpuAsk | None:
    [(_, kind, milli)] = kinds_held(world, [hold])
    if not hold.slices:
        return None
    first, count = hold.slices[0], len(hold.slices)
    if first.mode is SharingMode.MIG:
        return GpuAsk(names=(kind,), count_min=count, count_max=count, mig_profile=first.profile)
    if first.mode.fraction:
        return GpuAsk(names=(kind,), milli=milli, sharing=first.mode)
    return GpuAsk(names=(kind,), count_min=count, count_max=count)
