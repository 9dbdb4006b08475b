"""How earlier forecasts fared, and what that does to the next: the range that is told holds eight times in ten.

A forecast leaves things out: that runs are like others, that people cancel, that nodes fail. All of it shows in where
starts fell within the ranges that were forecast, whatever the cause.
"""

from dataclasses import dataclass
from math import exp, inf, log
from typing import Final

# How far one outcome moves an offset, once there were ten.
RATE: Final = 0.1
# Waits are compared by their logarithm; a minute more or less is nothing to a wait of an hour.
_GRAIN_S: Final = 60.0
_LEAST_WIDTH: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """When something starts, in epoch seconds: one in ten before `low`, half before `likely`, one in ten after `high`.

    inf where that can't be told.
    """

    low: float
    likely: float
    high: float


@dataclass(slots=True)
class Record:
    """How past ranges fared, as three offsets in widths of the raw range; -1, 0, 1 if the plays were right.

    Each is the running quantile of where starts fell. After an outcome, an offset moves by a rate times the difference
    between what happened and what should happen as often; the rate is one over the number of outcomes, at last RATE
    (quantile tracking: Angelopoulos, Candès and Tibshirani, "Conformal PID control for time series prediction", NeurIPS
    2023, section 2.1). So the share of outcomes on each side comes out right in the long run, whatever they are.
    """

    low: float = -1.0
    likely: float = 0.0
    high: float = 1.0
    outcomes: int = 0

    def learn(self, raw: Range, now: float, started_at: float) -> None:
        """Takes in when something really started of which `raw` was forecast at `now`."""
        if raw.likely == inf:
            return
        score = _score(raw, now, started_at)
        self.outcomes += 1
        rate = max(RATE, 1.0 / self.outcomes)
        self.low = min(-0.1, max(-6.0, self.low + rate * (0.1 - (score <= self.low))))
        self.likely = min(3.0, max(-3.0, self.likely + rate * (0.5 - (score <= self.likely))))
        self.high = min(6.0, max(0.1, self.high + rate * (0.9 - (score <= self.high))))

    def correct(self, raw: Range, now: float) -> Range:
        low = _unscore(raw, now, self.low)
        likely = _unscore(raw, now, self.likely)
        high = _unscore(raw, now, self.high)
        return Range(low=min(low, likely), likely=likely, high=max(high, likely))


def _of_wait(at: float, now: float) -> float:
    return log(max(at - now, 0.0) + _GRAIN_S)


def _widths(raw: Range, now: float) -> tuple[float, float, float]:
    middle = _of_wait(raw.likely, now)
    below = max(middle - _of_wait(raw.low, now), _LEAST_WIDTH)
    above = max(_of_wait(raw.high, now) - middle, _LEAST_WIDTH) if raw.high < inf else inf
    return middle, below, above


def _score(raw: Range, now: float, at: float) -> float:
    middle, below, above = _widths(raw, now)
    off = _of_wait(at, now) - middle
    return off / below if off < 0 else off / above


def _unscore(raw: Range, now: float, score: float) -> float:
    middle, below, above = _widths(raw, now)
    off = score * below if score < 0 else score and score * above
    return inf if off == inf else now + max(exp(middle + off) - _GRAIN_S, 0.0)
