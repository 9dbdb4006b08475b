"""What a stream of logs brings besides progress: text, changes of status, and the end."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogText:
    """A piece of log; it may end in the middle of a line. `cursor` resumes right after it."""

    text: str = ""
    source: str = ""
    unit: int = 0
    attempt: int = 1
    rank: int = 0
    cursor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """The run (or one unit of it) went to another status."""

    status: str = ""
    unit: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is terminal, and all of its log has been given."""

    status: str = ""
    exit_code: int | None = None
    reason: str | None = None
    message: str = ""
