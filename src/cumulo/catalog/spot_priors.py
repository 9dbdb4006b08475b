"""What pools of spot capacity have in common, for a cloud that has no history of its own yet.

`python -m bench.spot fit DIR` learns it from published traces and writes data/spot_priors.json; nobody edits it.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from cumulo.catalog.kinds import DATA

SPOT_PRIORS: Final = DATA / "spot_priors.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPrior:
    """Hazards per second by age of spot lost, or coming back, and their weight against a pool's own, in events."""

    per_s: tuple[float, ...]
    pool_events: float
    age_events: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPriors:
    """`per_s[i]` of either holds from age `ages_s[i]` (seconds) on. `source` says what they were learnt from."""

    ages_s: tuple[float, ...]
    lost: SpotPrior
    back: SpotPrior
    source: str


@cache
def spot_priors(path: Path = SPOT_PRIORS) -> SpotPriors:
    """The priors shipped with this version."""
    held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return SpotPriors(
        ages_s=tuple(held["ages_s"]), lost=_prior(held["lost"]), back=_prior(held["back"]), source=held["source"]
    )


def _prior(held: dict[str, Any]) -> SpotPrior:
    return SpotPrior(
        per_s=tuple(held["per_s"]), pool_events=float(held["pool_events"]), age_events=float(held["age_events"])
    )
