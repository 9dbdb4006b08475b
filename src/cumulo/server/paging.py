"""Lists come in pages. A cursor is the key of the last row seen, opaque to who holds it, so that pages stay right while
rows come and go.
"""

import base64
import json
from typing import Annotated, Any

from fastapi import Query

from cumulo.domain.errors import CumuloError

MAX_LIMIT = 500

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="rows in a page")]
Cursor = Annotated[str | None, Query(max_length=4096, description="`next` of the page before")]


def cursor_of(*key: str | float) -> str:
    """A cursor that `key_of` reads back."""
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def key_of(cursor: str, *types: type) -> Any:
    """The key in a cursor: as many values as `types`, each of its type. Raises CumuloError (invalid_request)."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        key = json.loads(raw)
    except (ValueError, RecursionError):
        key = None
    if not isinstance(key, list) or [type(part) for part in key] != list(types):
        raise CumuloError("invalid_request", "the cursor is not one that this list gave", hint="start without it")
    if any(isinstance(part, int | float) and not -(2**63) <= part < 2**63 for part in key):
        raise CumuloError("invalid_request", "the cursor is not one that this list gave", hint="start without it")
    return tuple(key)
