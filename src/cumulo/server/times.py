"""Points in time as people and programs write them in a query."""

import time
from datetime import datetime

from cumulo.domain.errors import CumuloError


def parse_time(name: str, text: str) -> float:
    """Epoch seconds of an ISO 8601 time with its zone. Raises CumuloError (invalid_request) about `name`."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.timestamp()
    except (ValueError, OverflowError):
        pass
    raise CumuloError("invalid_request", f"{name}: write a time with its zone, such as 2026-05-01T12:00:00Z")


def parse_since(name: str, text: str) -> float:
    """Likewise, or of so many seconds ago."""
    try:
        ago = float(text)
    except ValueError:
        return parse_time(name, text)
    if not 0 <= ago < 1e10:
        raise CumuloError("invalid_request", f"{name}: seconds ago must be 0 or more")
    return time.time() - ago
