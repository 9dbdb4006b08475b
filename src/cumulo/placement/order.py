"""One pass over the queue: who is placed where, in the queue's order.

Runs behind one that does not fit may start if they fit (backfill). A distinct ask is tried once per pass: with 500
equal ones waiting, one refusal speaks for all.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from cumulo.domain.ask import Ask
from cumulo.domain.instance import instance_id
from cumulo.placement.fit import Place, choose
from cumulo.placement.world import Hold, Waiting, World, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Places for the instances of one attempt, in rank order."""

    waiting: Waiting
    places: tuple[Place, ...]


def place(world: World, queue: Iterable[Waiting], *, limit: int = 1000) -> list[Decision]:
    """Decides on a copy of `world`; at most `limit` attempts, so that one pass stays short."""
    trial: World | None = None
    refused: set[Ask] = set()
    decisions: list[Decision] = []
    for waiting in in_order(queue):
        if waiting.ask in refused:
            continue
        trial = trial or world.copy()
        places = choose(trial, waiting.ask)
        if places is None:
            refused.add(waiting.ask)
            continue
        decisions.append(Decision(waiting=waiting, places=places))
        hold_places(trial, waiting, places)
        if len(decisions) >= limit:
            break
    return decisions


def hold_places(world: World, waiting: Waiting, places: tuple[Place, ...], until: float | None = None) -> list[str]:
    """Takes the places in `world` under instance ids made from the key, which are returned."""
    ids = [instance_id(*waiting.key, rank) for rank in range(len(places))]
    for name, spot in zip(ids, places, strict=True):
        world.hold(
            Hold(
                instance_id=name,
                run_id=waiting.key[0],
                run_name=waiting.name,
                node_id=spot.node_id,
                cpus_milli=spot.cpus_milli,
                memory_bytes=spot.memory_bytes,
                slices=spot.slices,
                until=until,
                project=waiting.project,
                account=waiting.account,
                purchase=waiting.purchase,
                priority=waiting.priority,
                migratable=waiting.migratable,
            )
        )
    return ids
