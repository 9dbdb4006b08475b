"""The policies that the openb benchmarks compare, by name, all driven the same way."""

from typing import Final, Protocol

from bench.placement.cumulo_policy import CumuloPolicy
from bench.placement.openb_trace import Nodes, Trace

REFERENCES: Final = ("fgd", "bestfit")
NAMES: Final = (*REFERENCES, "cumulo")


class Policy(Protocol):
    """Places pods of one trace, told by the numbers of their classes, on nodes in a fixed order."""

    def arrive(self, number: int) -> tuple[int, list[int]] | None:
        """(node, devices) of a pod that is placed, None where it does not fit."""

    def leave(self, number: int, node: int, devices: list[int]) -> None:
        """Gives back what it took."""


def policy(name: str, trace: Trace, nodes: Nodes) -> Policy:
    """A fresh policy. Raises ValueError for an unknown name, and where it needs numba and that is missing."""
    if name == "cumulo":
        return CumuloPolicy(trace, nodes)
    if name in REFERENCES:
        try:
            from bench.placement.reference import Reference
        except ModuleNotFoundError as missing:
            raise ValueError(f"{name} needs {missing.name}: pip install 'cumulo[scale]'") from missing
        return Reference(name, trace, nodes)
    raise ValueError(f"no policy is called {name!r}; there are {', '.join(NAMES)}")
