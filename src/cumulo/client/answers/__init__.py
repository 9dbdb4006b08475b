"""What the API answers, as frozen dataclasses in the words of the design.

Times are aware UTC datetimes, memory as the field says (`_bytes`, `_gb` for GiB), durations seconds, money decimal
strings of USD with the exact nano-USD beside them. `cumulo.client.decode` reads them and writes them back.

A module is imported when it is first named: making all thirty classes costs more than asking for a list of runs.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cumulo.client.answers import advice, cloud, logs, market, planning, runs, service

__all__ = ["advice", "cloud", "logs", "market", "planning", "runs", "service"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
