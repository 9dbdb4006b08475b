"""When to save a run's work: often while the loss of its capacity is likely, seldom once it has proved to last.

The rule, which `cumulo.job` carries in its own words since it may import nothing of ours:

- a save is due once the work since the last one (or since the start, if there was none) has taken √(2δ/h(a)) seconds,
  Young's interval, with δ what a save costs and h(a) the pool's hazard at the age a that the instance has *now*: the
  interval grows while one waits;
- never sooner than δ after the last save: a run spends at most half its time saving;
- δ is the mean of what this run's own saves took; before the first save it is taken to be 10 s, which saves early and
  so measures early;
- where no hazard is known, one loss a day.

Spot is lost young or lasts for long, so one fixed interval is too long at first and too short later.
Source: Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974).
"""

import math

from cumulo.market.hazards import Rates


def interval(*, cost_s: float, age_s: float, lost: Rates) -> float:
    """Seconds of work after which to save, at this age, if a save costs `cost_s`. `lost` is the pool's hazard by age.

    Raises ValueError for a cost that is not over 0.
    """
    if not cost_s > 0:
        raise ValueError(f"a save costs more than {cost_s:g} s: measure it, or take 10 s before there was one")
    return max(cost_s, math.sqrt(2 * cost_s / max(lost.at(age_s), 1e-12)))


def next_checkpoint(*, cost_s: float, age_s: float, lost: Rates) -> float:
    """Seconds of work from a save that ended at `age_s` (or a start, at 0) until the next is due.

    The same as asking at each moment whether `interval` has passed: the hazard is constant between the ages of `lost`,
    so the first such moment is that of the interval in one of these ages, or the beginning of one.
    """
    later = [age for age in lost.ages_s if age > age_s]
    # By the ages themselves: sums of them may round to just before one.
    for since, until in zip((age_s, *later), (*later, math.inf), strict=True):
        due = max(since - age_s, interval(cost_s=cost_s, age_s=since, lost=lost))
        if due < until - age_s:
            return due
    raise AssertionError("the last age has no end")
