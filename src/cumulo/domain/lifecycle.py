"""The lifecycles: which state may follow which, one table each.

A run (and each of its units) goes from `queued` to exactly one terminal status. An instance goes forward only, may skip
phases that its engine lacks, and is never revived: recovery is a new attempt with new instances.
"""

from enum import StrEnum
from typing import Final


class RunStatus(StrEnum):
    """Where a run, or one unit of it, stands."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    STOPPING = "stopping"
    STOPPED = "stopped"  # dev only: may start again
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class InstanceState(StrEnum):
    """How far an instance has come."""

    PLACED = "placed"
    PROVISIONING = "provisioning"
    PULLING = "pulling"
    PREPARING = "preparing"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class EndReason(StrEnum):
    """Why an instance ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # its command exited with a code other than 0, or by a signal
    OUT_OF_MEMORY = "out_of_memory"
    SETUP_FAILED = "setup_failed"
    START_FAILED = "start_failed"  # the command could not be started at all
    TIMEOUT = "timeout"  # max_duration was over
    CANCELLED = "cancelled"
    STOPPED = "stopped"  # a dev run was stopped; it may start again
    PREEMPTED = "preempted"
    PEER_ENDED = "peer_ended"  # another instance of its attempt ended first
    DEPENDENCY_FAILED = "dependency_failed"  # a run it comes after did not succeed
    LOST = "lost"  # the node rebooted, its lease ran out, or its supervisor was killed


TERMINAL: Final = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.LOST})
ACTIVE: Final = frozenset(RunStatus) - TERMINAL - {RunStatus.STOPPED}

_R = RunStatus
RUN_TRANSITIONS: Final[dict[RunStatus, frozenset[RunStatus]]] = {
    _R.QUEUED: frozenset({_R.STARTING, _R.STOPPED, _R.FAILED, _R.CANCELLED, _R.LOST}),
    _R.STARTING: frozenset({_R.QUEUED, _R.RUNNING, _R.RECOVERING, _R.STOPPING, *TERMINAL}),
    _R.RUNNING: frozenset({_R.RECOVERING, _R.STOPPING, *TERMINAL}),
    _R.RECOVERING: frozenset({_R.STARTING, _R.RUNNING, _R.STOPPING, _R.STOPPED, *TERMINAL}),
    _R.STOPPING: frozenset({_R.STOPPED, *TERMINAL}),
    # Failed: what it comes after did not succeed, while it was stopped before its first start.
    _R.STOPPED: frozenset({_R.QUEUED, _R.FAILED, _R.CANCELLED, _R.LOST}),
    **{status: frozenset() for status in TERMINAL},
}

_ORDER: Final = tuple(InstanceState)
INSTANCE_TRANSITIONS: Final[dict[InstanceState, frozenset[InstanceState]]] = {
    state: frozenset(_ORDER[place + 1 :]) for place, state in enumerate(_ORDER)
}


class IllegalTransition(ValueError):
    """A change that the lifecycle does not allow. It is a fault in Cumulo, never in what a person did."""


def check_run(before: RunStatus, after: RunStatus) -> None:
    """Raises IllegalTransition unless a run may go from `before` to `after` (staying is allowed)."""
    if before != after and after not in RUN_TRANSITIONS[before]:
        raise IllegalTransition(f"a run can't go from {before} to {after}")


def check_instance(before: InstanceState, after: InstanceState) -> None:
    """Raises IllegalTransition unless an instance may go from `before` to `after` (staying is allowed)."""
    if before != after and after not in INSTANCE_TRANSITIONS[before]:
        raise IllegalTransition(f"an instance can't go from {before} to {after}")


# What a unit becomes when its last attempt ended for a reason and no further attempt follows.
UNIT_OUTCOME: Final[dict[EndReason, RunStatus]] = {
    EndReason.SUCCEEDED: RunStatus.SUCCEEDED,
    EndReason.FAILED: RunStatus.FAILED,
    EndReason.OUT_OF_MEMORY: RunStatus.FAILED,
    EndReason.SETUP_FAILED: RunStatus.FAILED,
    EndReason.START_FAILED: RunStatus.FAILED,
    EndReason.TIMEOUT: RunStatus.FAILED,
    EndReason.CANCELLED: RunStatus.CANCELLED,
    EndReason.STOPPED: RunStatus.STOPPED,
    EndReason.PREEMPTED: RunStatus.FAILED,
    EndReason.PEER_ENDED: RunStatus.FAILED,
    EndReason.DEPENDENCY_FAILED: RunStatus.FAILED,
    EndReason.LOST: RunStatus.LOST,
}

# Which of retry's `on_events` words covers a reason; reasons not listed are never retried.
RETRY_EVENT: Final[dict[EndReason, str]] = {
    EndReason.FAILED: "error",
    EndReason.OUT_OF_MEMORY: "error",
    EndReason.SETUP_FAILED: "error",
    EndReason.PREEMPTED: "interruption",
    EndReason.LOST: "lost",
}
