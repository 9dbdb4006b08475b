"""What piles up on a disk, for `cumulo df` and `cumulo sweep`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Things of one kind: how many, how many bytes on the disk, and where."""

    what: str
    count: int
    bytes: int
    path: str
