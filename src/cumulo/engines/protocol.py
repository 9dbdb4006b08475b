"""The Engine protocol: level-triggered, safe to call twice, and nothing but data crosses it.

The control plane compares what an engine observes with what the store wants and closes the difference by `ensure`
and `stop`. It never relies on having heard something. Nothing here assumes a shared file system or a local process:
files come to an engine as content-addressed blobs through a `BlobSource`, logs and files leave it as byte streams.

Two rules that every engine keeps: a stopped id never starts, and a call with an epoch older than the newest seen is
refused, which fences an old leader.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from cumulo.domain.check import Check
from cumulo.domain.instance import InstanceSpec, Observation
from cumulo.domain.node import DeviceReading, InstanceReading, Node, Pool
from cumulo.domain.streams import ByteStream, ExecRequest, FilesRequest, PortRequest, StreamRequest


class StaleEpoch(Exception):
    """The caller is no longer the leader: a newer epoch has been seen."""


class BlobSource(Protocol):
    """Where an engine gets the files of a run from, by SHA-256 digest (hex)."""

    def read(self, digest: str) -> bytes:
        """The blob's bytes. Raises KeyError if it is not there."""
        ...

    def chunks(self, digest: str) -> Iterator[bytes]:
        """The same in pieces, for files that may be larger than memory. Raises KeyError, also at the end if spoilt."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What devices and instances are doing now."""

    devices: tuple[DeviceReading, ...]
    instances: tuple[InstanceReading, ...]


class Engine(Protocol):
    """One engine: `name` is unique in this cloud (it is the region's name), `kind` says what it is."""

    name: str
    kind: str

    def pools(self) -> tuple[Pool, ...]: ...

    def nodes(self) -> tuple[Node, ...]:
        """Its nodes as they are now, use by others included."""
        ...

    def ensure(self, spec: InstanceSpec, epoch: int) -> None:
        """Sees to it that the instance has been started. Idempotent by id; returns before it has started.

        What goes wrong while starting is reported by `observe` as an ended instance with a message.
        Raises StaleEpoch.
        """
        ...

    def stop(self, instance_id: str, grace_s: float, epoch: int, preempt_at: float | None = None) -> None:
        """Sees to it that the instance ends: SIGTERM, the grace, then everything of it is killed. Raises StaleEpoch.

        With `preempt_at` (epoch seconds) it makes room for others: its notice file says so before the SIGTERM, and it
        is killed then instead, the same moment for a whole gang. An engine that hears of it so late that less than
        half of the grace is left gives a whole grace from then on. The first moment that it was told stays.
        """
        ...

    def release(self, instance_id: str, epoch: int) -> None:
        """The end of the instance is in the store, and its log: the engine may stop reporting it. Raises StaleEpoch."""
        ...

    def observe(self, only: frozenset[str] | None = None) -> Observation:
        """What is there. With `only`, a quick look at those ids (never complete)."""
        ...

    def read_log(self, instance_id: str, offset: int, limit: int = 1 << 20) -> bytes:
        """Log bytes from `offset`, b"" when there are none yet. Raises KeyError for an unknown instance."""
        ...

    def stream(self, instance_id: str, request: StreamRequest) -> ByteStream:
        """Opens a stream into an instance. Raises KeyError (unknown instance) or CumuloError (in words)."""
        ...

    def telemetry(self) -> Readings: ...

    def doctor(self) -> tuple[Check, ...]:
        """Findings about its nodes: what is enforced there, what is not, and how to get it."""
        ...

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Calls `listener(instance_id)` soon after a change of an instance; a hint that may be missed or repeated."""
        ...

    def close(self) -> None:
        """Lets go of the engine. Touches no workload."""
        ...


__all__ = [
    "BlobSource",
    "ByteStream",
    "Engine",
    "ExecRequest",
    "FilesRequest",
    "PortRequest",
    "Readings",
    "StaleEpoch",
    "StreamRequest",
]
