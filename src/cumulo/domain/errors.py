"""Every failure a person can meet, under one stable code each.

The table below is the whole contract: the HTTP API answers with the status and the code (RFC 9457 problems), the
command line exits with the exit code, and documentation lists the same rows.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What a failure code means to programs: an HTTP status and the exit code of the command line."""

    code: str
    http_status: int
    exit_code: int
    title: str


_KINDS = (
    ErrorKind("invalid_request", 422, 2, "The request is not valid"),
    ErrorKind("invalid_run_file", 422, 2, "The run file is not valid"),
    ErrorKind("invalid_ask", 422, 2, "The ask for hardware is not valid"),
    ErrorKind("unknown_gpu", 422, 2, "No GPU of that name is known"),
    ErrorKind("not_supported_yet", 422, 2, "A feature that has not landed yet was asked for"),
    ErrorKind("unauthenticated", 401, 3, "No valid token"),
    ErrorKind("forbidden", 403, 3, "Not allowed"),
    ErrorKind("run_not_found", 404, 102, "No such run"),
    ErrorKind("not_found", 404, 102, "No such thing"),
    ErrorKind("unsatisfiable", 409, 4, "No node could ever satisfy the ask"),
    ErrorKind("quota_exceeded", 409, 4, "The project's quota would be exceeded"),
    ErrorKind("no_capacity", 409, 4, "Nothing is free for the ask"),
    ErrorKind("conflict", 409, 1, "The thing is not in a state that allows this"),
    ErrorKind(
        "idempotency_mismatch",
        409,
        1,
        "The idempotency key was used for another request",
    ),
    ErrorKind("path_not_allowed", 422, 2, "A path may not be used"),
    ErrorKind("too_large", 413, 1, "Too large"),
    ErrorKind("storage_full", 507, 1, "The disk is full"),
    ErrorKind("storage_read_only", 507, 1, "The state folder cannot be written"),
    ErrorKind("engine_unreachable", 503, 1, "The engine does not answer"),
    ErrorKind("starting", 503, 1, "The server is not ready yet"),
    ErrorKind("unreachable", 503, 1, "The server does not answer"),
    ErrorKind("internal", 500, 1, "Something went wrong inside Cumulo"),
)

KINDS: dict[str, ErrorKind] = {kind.code: kind for kind in _KINDS}


class CumuloError(Exception):
    """A failure with a stable code and a sentence for a person.

    `message` says what is wrong and where; `hint` what to do about it; `details` is data for programs.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = KINDS[code]
        self.message = message
        self.hint = hint
        self.details = details or {}

    @property
    def code(self) -> str:
        return self.kind.code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message
