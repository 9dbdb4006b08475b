"""The life of one simulated instance: what there is to see of it follows from what was asked and from the time alone.

A run says by two variables of its environment how its instances shall behave; nothing else of it matters:

    CUMULO_SIMULATED_SECONDS       it succeeds after so long; without it, it goes on until stopped or max_duration
    CUMULO_SIMULATED_STOP_SECONDS  it ends so long after it is told to stop (0), or is killed when its grace is over
"""

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from cumulo.domain.instance import InstanceSpec, ObservedInstance
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.domain.sharing import Slice

SECONDS: Final = "CUMULO_SIMULATED_SECONDS"
STOP_SECONDS: Final = "CUMULO_SIMULATED_STOP_SECONDS"


class End(NamedTuple):
    """When and how an instance ends, `at` epoch seconds."""

    at: float
    reason: EndReason
    message: str
    exit_code: int | None = None
    signal: int | None = None


@dataclass(slots=True, kw_only=True)
class Life:
    """One instance. Times are epoch seconds, `seconds` and `max_seconds` how long it goes on at most.

    `asked_at` None: it was stopped before anybody asked for it, so it never starts. `trouble` keeps it from starting.
    """

    instance_id: str
    cloud_id: str
    node: str = ""
    slices: tuple[Slice, ...] = ()
    asked_at: float | None = None
    seconds: float | None = None
    max_seconds: float | None = None
    stop_seconds: float = 0.0
    trouble: str = ""
    stop_at: float | None = None
    grace_s: float = 0.0
    _told: ObservedInstance | None = field(default=None, compare=False, repr=False)  # for as long as it stays true

    @classmethod
    def of(cls, spec: InstanceSpec, now: float) -> Self:
        """The life of an instance that is asked for at `now`."""
        trouble, seconds, stop_seconds = "", None, 0.0
        try:
            seconds = _seconds(spec.env, SECONDS)
            stop_seconds = _seconds(spec.env, STOP_SECONDS) or 0.0
        except ValueError as error:
            trouble = str(error)
        return cls(
            instance_id=spec.instance_id,
            cloud_id=spec.cloud_id,
            node=spec.node,
            slices=spec.slices,
            asked_at=now,
            seconds=seconds,
            max_seconds=spec.max_duration_s,
            stop_seconds=stop_seconds,
            trouble=trouble,
        )

    def stop(self, grace_s: float, now: float) -> None:
        """It is told to end. Told again, the earlier of the two ends counts."""
        if self.stop_at is None:
            self.stop_at, self.grace_s = now, grace_s
        else:
            self.grace_s = min(self.grace_s, now + grace_s - self.stop_at)
        self._told = None

    @property
    def end(self) -> End | None:
        """How it will end as things stand; None while nothing ends it."""
        if self.asked_at is None:
            return End(self.stop_at or 0.0, EndReason.CANCELLED, "it was stopped before it started")
        if self.trouble:
            return End(self.asked_at, EndReason.START_FAILED, self.trouble)
        ends = []
        if self.seconds is not None:
            ends.append(End(self.asked_at + self.seconds, EndReason.SUCCEEDED, "simulated: nothing was run", 0))
        if self.max_seconds is not None:
            text = f"max_duration of {self.max_seconds:g} s was over (simulated)"
            ends.append(End(self.asked_at + self.max_seconds, EndReason.TIMEOUT, text, None, signal.SIGTERM))
        if self.stop_at is not None:
            killed = self.stop_seconds > self.grace_s
            at = self.stop_at + min(self.stop_seconds, self.grace_s)
            number = signal.SIGKILL if killed else signal.SIGTERM
            ends.append(End(at, EndReason.CANCELLED, "", None, number))
        return min(ends, key=lambda end: end.at, default=None)

    def observed(self, now: float) -> ObservedInstance:
        """What there is to see of it. The same object for as long as nothing changes."""
        if self._told is not None and self._told.state is InstanceState.ENDED:
            return self._told
        end = self.end
        if end is not None and end.at <= now:
            self._told = self._ended(end)
        elif self._told is None:
            self._told = ObservedInstance(
                instance_id=self.instance_id,
                cloud_id=self.cloud_id,
                state=InstanceState.RUNNING if self.stop_at is None else InstanceState.STOPPING,
                node=self.node,
                started_at=self.asked_at,
                slices=self.slices,
            )
        return self._told

    def _ended(self, end: End) -> ObservedInstance:
        started = self.asked_at is not None and not self.trouble
        return ObservedInstance(
            instance_id=self.instance_id,
            cloud_id=self.cloud_id,
            state=InstanceState.ENDED,
            node=self.node,
            started_at=self.asked_at if started else None,
            ended_at=end.at,
            exit_code=end.exit_code,
            signal=end.signal,
            reason=end.reason,
            message=end.message,
            slices=self.slices,
        )

    def to_wire(self) -> dict[str, Any]:
        """Plain values that JSON can carry; those that are as usual are left out."""
        values = ((name, getattr(self, name), usual) for name, usual in _FIELDS.items())
        told = {name: value for name, value, usual in values if value != usual}
        return told | {"slices": [each.to_wire() for each in self.slices]} if self.slices else told

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "slices": tuple(map(Slice.from_wire, data.get("slices", ())))})


_FIELDS: Final = {name: kept.default for name, kept in Life.__dataclass_fields__.items() if not name.startswith("_")}


def _seconds(env: Mapping[str, str], name: str) -> float | None:
    """Raises ValueError, in words."""
    if name not in env:
        return None
    try:
        seconds = float(env[name])
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"{name} is {env[name]!r}: it must be a number of seconds, 0 or more")
    return seconds
