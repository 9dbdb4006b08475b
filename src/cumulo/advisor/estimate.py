"""What advice is made of: a number that is not known exactly, with the range it should lie in.

A range states an 80 % interval. How wide it is was measured, not chosen: the bench keeps the errors that the models
made on results they were not fitted to, and `Spread` holds them as factors.
"""

from typing import NamedTuple


class Range(NamedTuple):
    """An expected value and the bounds within which four of five true values lie. One unit for all three."""

    low: float
    expected: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> "Range":
        return cls(value, value, value)

    def scaled(self, by: float) -> "Range":
        """The same range in another unit or for another amount. `by` is positive."""
        return Range(self.low * by, self.expected * by, self.high * by)

    def inverted(self, of: float = 1.0) -> "Range":
        """`of` divided by the range: a time becomes a rate. What was low is then high."""
        return Range(of / self.high, of / self.expected, of / self.low)

    def shifted(self, by: float) -> "Range":
        """The range with something known exactly added to it."""
        return Range(self.low + by, self.expected + by, self.high + by)

    @property
    def ratio(self) -> float:
        """High over low: how much the answer leaves open."""
        return self.high / self.low

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


class Spread(NamedTuple):
    """By which factors a true value may differ from the expected one: `low` at most 1, `high` at least 1."""

    low: float
    high: float

    def around(self, expected: float) -> Range:
        return Range(expected * self.low, expected, expected * self.high)

    def widened(self, by: float) -> "Spread":
        """The spread for a question that lies further from the data; `by` multiplies the logarithms (1: as it is)."""
        return Spread(self.low**by, self.high**by)
