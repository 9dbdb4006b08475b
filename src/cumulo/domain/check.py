"""A finding about a machine or a server, for `cumulo doctor`."""

from dataclasses import dataclass
from typing import Literal

CheckStatus = Literal["ok", "warn", "fail", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was looked at, how it stands, a sentence about it, and what to do where something should be done."""

    name: str
    status: CheckStatus
    text: str
    hint: str = ""
