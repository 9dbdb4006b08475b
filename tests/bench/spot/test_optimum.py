"""The optimum over spells is that over ticks, and no policy is cheaper."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.spot.optimum import optimum


def over_ticks(available, gap, work, deadline, changeover, on_demand):
    """The plain programme: (tick, state, ticks idle, starts) with the least cost in ticks."""
    ticks = deadline // gap
    plans = {(0, 0, 0): 0.0}
    for there in available[:ticks]:
        found: dict[tuple[int, int, int], float] = {}
        for (state, idle, starts), cost in plans.items():
            on = 0 if state == 1 and not there else state
            for choice, price in ((0, 0.0), (1, 1.0), (2, on_demand)):
                if choice == 1 and not there:
                    continue
                key = (choice, idle + (choice == 0), starts + (choice not in (0, on)))
                found[key] = min(found.get(key, math.inf), cost + price)
        plans = found
    enough = [cost for (_, idle, starts), cost in plans.items() if gap * (ticks - idle) - changeover * starts >= work]
    return min(enough, default=math.inf) * gap / 3600 / (work / 3600 * on_demand)


@settings(max_examples=40, deadline=None)
@given(
    record=st.lists(st.booleans(), min_size=10, max_size=10),
    changeover=st.sampled_from([0, 100, 300, 700]),
    work=st.sampled_from([600, 1500, 2100, 2700]),
)
def test_spells_give_what_ticks_give(record, changeover, work):
    available = np.array(record)
    found = optimum(available, gap_s=300.0, work_s=work, deadline_s=3000.0, changeover_s=changeover, on_demand=3.0)
    assert found == pytest.approx(over_ticks(record, 300, work, 3000, changeover, 3.0))


def test_what_cannot_be_done_costs_more_than_anything():
    never = np.zeros(20, dtype=bool)
    assert optimum(never, gap_s=300.0, work_s=6000.0, deadline_s=5000.0, changeover_s=0.0, on_demand=3.0) == math.inf
