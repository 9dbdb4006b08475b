"""Capacity promised to a project for a term at a lower price."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """`count` GPUs of a kind for a project, from `starts_at` until `ends_at` (epoch seconds).

    Each costs `price_nano_h` an hour, used or not; `upfront_nano` is paid for all of it when it begins.
    """

    id: str
    name: str
    project: str
    account: str  # who made it
    region: str
    kind: str
    count: int
    price_nano_h: int
    upfront_nano: int
    created_at: float
    starts_at: float
    ends_at: float

    def cost_nano(self, since: float, until: float) -> int:
        """What of it falls into a time. Over times that follow one another this adds up to all of it."""
        if self.ends_at <= self.starts_at:  # given back before it began
            return 0
        begun = self.upfront_nano if since <= self.starts_at < until else 0
        return begun + self._up_to(until) - self._up_to(since)

    def _up_to(self, at: float) -> int:
        seconds = min(max(at, self.starts_at), self.ends_at) - self.starts_at
        return round(seconds * self.count * self.price_nano_h / 3600)
