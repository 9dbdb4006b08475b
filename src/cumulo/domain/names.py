"""Names people give, and ids Cumulo gives.

A name must be safe to print in a terminal, to put in a path and to type in a shell. An id sorts by time and is drawn
from bytes that the caller provides, since this package draws no randomness.
"""

import re
import unicodedata
from typing import Final

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
# Crockford's base 32: no i, l, o, u, so that an id can be read aloud.
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"


def check_name(name: str) -> str:
    """Returns `name` if it may name a run or project. Raises ValueError with a sentence."""
    if _NAME.fullmatch(name):
        return name
    shown = printable(name)
    raise ValueError(
        f"{shown!r} can't be a name: use 1 to 63 of a-z, 0-9, '-', '_' and '.', "
        "beginning and ending with a letter or digit"
    )


def name_from(text: str) -> str:
    """The nearest legal name to `text`, for names derived from a file or a command; `run` if nothing is left."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_text).strip("-")[:40].strip("-") or "run"


def printable(text: str, limit: int = 200) -> str:
    """`text` without control or escape characters and cut to `limit`, so that it can't act on a terminal."""
    safe = "".join(c if c.isprintable() else "?" for c in text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def make_id(at: float, random: bytes) -> str:
    """A 12-character id: 7 of time (seconds, sorts until 3058) and 5 of the given random bytes (at least 4).

    25 random bits a second: the store's primary key refuses the rare twin and the caller draws again.
    """
    number = (int(at) << 25) | (int.from_bytes(random[:4], "big") & 0x1FFFFFF)
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(55, -1, -5))


def is_id(text: str) -> bool:
    return len(text) == 12 and all(c in _ALPHABET for c in text)
