"""Deadlines as people write them: `20h` from when the run is accepted, `18:00`, or a date and a time.

A time of day, and a date without an offset, mean a person's own time zone, which only their machine knows: the client
makes a date and time with an offset of them (`resolved`) before they are sent, and the server takes nothing else.
No pydantic here: the command line reads a deadline without paying for models.
"""

import re
from datetime import datetime, timedelta
from typing import Final

from cumulo.domain.names import printable
from cumulo.domain.quantities import parse_duration

_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
HOW: Final = "write a duration such as 20h, a time such as 18:00, or 2026-12-24T18:00+01:00"


def resolved(value: object, now: datetime) -> object:
    """What to send for what was written; `now` is the time of day here, without an offset. Other things stay as is.

    A time of day is the next one. Which offset from UTC holds at that time is for this machine's clock to say.
    """
    text = value.strip() if isinstance(value, str) else ""
    if found := _CLOCK.fullmatch(text):
        today = now.replace(hour=int(found[1]), minute=int(found[2]), second=int(found[3] or 0), microsecond=0)
        return (today if today > now else today + timedelta(days=1)).astimezone().isoformat()
    if not _DATE.match(text):
        return value
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return value
    return (at if at.tzinfo else at.astimezone()).isoformat()


def read_deadline(value: object) -> str:
    """A deadline in canonical form: seconds (`72000s`), or a date and time with its offset. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{_shown(value)} is not a deadline; {HOW}")
    text = str(value).strip()
    if _DATE.match(text):
        return _date(text).isoformat()
    if _CLOCK.fullmatch(text):
        raise ValueError(f"{_shown(value)} has no date: only the command line knows your time zone; {HOW}")
    try:
        return f"{parse_duration(text):.15g}s"
    except ValueError:
        raise ValueError(f"{_shown(value)} is not a deadline; {HOW}") from None


def _date(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{_shown(text)} is not a date and time; {HOW}") from None
    if at.tzinfo is None:
        raise ValueError(f"{_shown(text)} needs an offset from UTC, such as {text}+01:00 or {text}Z")
    return at


def deadline_at(canonical: str, accepted_at: float) -> float:
    """Epoch seconds of what `read_deadline` gave."""
    if _DATE.match(canonical):
        return datetime.fromisoformat(canonical).timestamp()
    return accepted_at + float(canonical.removesuffix("s"))


def _shown(value: object) -> str:
    return printable(repr(value), 60)
