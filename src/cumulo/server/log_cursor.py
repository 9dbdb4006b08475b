"""Where a reader of a run's logs is: how far in each log, in a cursor that any later connection can go on from.

Units that are over and read to their end are kept as ranges, so that a cursor into an array of thousands stays short.
"""

from dataclasses import dataclass, field
from typing import Self

from cumulo.domain.errors import CumuloError
from cumulo.server.paging import cursor_of, key_of
from cumulo.store.logs import LogRef


@dataclass(slots=True)
class LogPosition:
    """`offsets` by log; `done` are places of units read to the end; `status` is the last one that was told."""

    run_id: str
    offsets: dict[LogRef, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    status: str = ""

    def cursor(self) -> str:
        at = ",".join(f"{ref.unit}.{ref.attempt}.{ref.rank}.{offset}" for ref, offset in self.offsets.items())
        return cursor_of(self.run_id, self.status, _ranges(self.done), at)

    @classmethod
    def read(cls, cursor: str, run_id: str) -> Self:
        """Raises CumuloError (invalid_request)."""
        run, status, done, at = key_of(cursor, str, str, str, str)
        try:
            if run != run_id:
                raise ValueError(run)
            offsets = dict(_offset(run_id, part) for part in at.split(",") if part)
            return cls(run_id, offsets, _places(done), status)
        except ValueError:
            raise CumuloError("invalid_request", "the cursor is not one of this run's log") from None

    def first_attempt(self, unit: int) -> int | None:
        """The earliest attempt of a unit that is not read to its end; None when none was begun."""
        return min((ref.attempt for ref in self.offsets if ref.unit == unit), default=None)


def _offset(run_id: str, part: str) -> tuple[LogRef, int]:
    unit, attempt, rank, offset = (_number(one) for one in part.split("."))
    return LogRef(run_id, unit, attempt, rank), offset


def _number(text: str) -> int:
    if len(text) > 18 or not text.isdecimal() or not text.isascii():
        raise ValueError(text)
    return int(text)


def _ranges(places: set[int]) -> str:
    """`{0,1,2,5}` as `0-2,5`."""
    ranges: list[list[int]] = []
    for place in sorted(places):
        if ranges and ranges[-1][1] == place - 1:
            ranges[-1][1] = place
        else:
            ranges.append([place, place])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def _places(text: str) -> set[int]:
    places: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        begin, end = _number(first), _number(last or first)
        if end - begin > 100_000:
            raise ValueError(part)
        places.update(range(begin, end + 1))
    return places


def whole_characters(data: bytes) -> int:
    """How many of the bytes are whole UTF-8 characters: a last one that is cut off is left for the next read.

    Bytes that are no UTF-8 at all count as whole, since no later byte would mend them.
    """
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:  # a continuation: the first byte of its character lies further back
            continue
        needed = 2 if 0xC2 <= byte < 0xE0 else 3 if 0xE0 <= byte < 0xF0 else 4 if 0xF0 <= byte < 0xF5 else 1
        return len(data) - back if needed > back else len(data)
    return len(data)


def log_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
