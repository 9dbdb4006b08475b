"""What the server counts of itself for /metrics: requests by verb and status, and what is open now."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Only the event loop's thread writes these; any thread may read them."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: float = 0.0
    followers: int = 0
    streams: int = 0
