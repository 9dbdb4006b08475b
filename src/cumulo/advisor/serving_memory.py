"""What serving keeps in memory: weights, cache, and what the engine leaves free."""

from dataclasses import dataclass
from typing import Final

from cumulo.advisor.serving_plan import ServingPlan
from cumulo.advisor.topology import Cluster

ENGINE_SHARE: Final = 0.9
"""Of a GPU's memory that engines take (vLLM's and TensorRT-LLM's usual setting)."""
_RESERVE_BYTES: Final = 2 * 2**30
"""Of that, on each GPU: context, workspaces, activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMemory:
    """Bytes on each GPU of a replica. `sequences` is how many of the context asked for fit beside the weights."""

    weights: float
    cache: float
    reserve: float
    there: int
    sequences: float

    @property
    def needed(self) -> float:
        """Of the GPU, with what the engine leaves free."""
        return (self.weights + self.cache + self.reserve) / ENGINE_SHARE

    def fits(self) -> bool:
        """Whether the weights and the cache of all the sequences asked for fit."""
        return self.needed <= self.there


def serving_memory(plan: ServingPlan, cluster: Cluster, *, context: int, sequences: int = 1) -> ServingMemory:
    """Of one replica with so many sequences of `context` tokens at once."""
    each = plan.cache_bytes(context) / plan.gpus
    weights = plan.weight_bytes / plan.gpus
    room = ENGINE_SHARE * cluster.memory_bytes - _RESERVE_BYTES - weights
    return ServingMemory(
        weights=weights,
        cache=each * sequences,
        reserve=float(_RESERVE_BYTES),
        there=cluster.memory_bytes,
        sequences=max(room / each, 0.0) if each else float("inf"),
    )
