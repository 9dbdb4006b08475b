"""The bound on rejections: it lets in whatever a placement holds, and no more than there is."""

import numpy as np
import pytest

from bench.placement import churn
from bench.placement.anywhere import Anywhere
from bench.placement.cumulo_policy import CumuloPolicy
from bench.placement.moving import Staying
from bench.placement.openb_trace import MODELS, Nodes, Pod, Trace

ANY = (1 << len(MODELS)) - 1
G2, T4 = MODELS.index("G2"), MODELS.index("T4")
PODS = (
    Pod(0, 1, 1, 400, ANY),
    Pod(2000, 1, 1, 1000, 1 << T4),
    Pod(8000, 1, 1, 810, ANY),
    Pod(16_000, 1, 0, 0, ANY),
    Pod(60_000, 1, 8, 1000, ANY),
    Pod(90_000, 1, 8, 1000, ANY),
)
NODES = Nodes(
    np.array([96_000, 64_000] * 4 + [32_000] * 4), np.full(12, 1 << 18), np.array([8] * 8 + [2] * 4),
    np.array([G2] * 8 + [T4] * 4),
)  # fmt: skip


class _Both:
    """Runs of a policy, each of which the bound must let in as well."""

    def __init__(self, policy, bound):
        self.policy, self.bound, self.moves = policy, bound, 0

    def start(self, run, number):
        found = self.policy.start(run, number)
        assert not found or self.bound.start(run, number)
        return found

    def end(self, run):
        self.policy.end(run)
        self.bound.end(run)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_placement_holds_is_let_in_and_of_the_same_stream_more(seed):
    made = Trace("made", PODS, np.repeat(np.arange(len(PODS)), [40, 10, 40, 20, 4, 3]))
    of = churn.stream(made, NODES, load=1.3, seed=seed, arrivals=3000)
    seen = churn.play(made, of, _Both(Staying(CumuloPolicy(made, of.nodes)), Anywhere(made, of.nodes)))
    free = churn.play(made, of, Anywhere(made, of.nodes))
    assert seen.rejected.any()
    assert seen.in_use_pct < free.in_use_pct <= 100.0


def test_of_runs_that_few_nodes_can_hold_as_many_are_let_in_as_there_are_such_nodes():
    made = Trace("made", PODS, np.arange(len(PODS)))
    bound = Anywhere(made, NODES)
    assert [bound.start(run, 5) for run in range(5)] == [True] * 4 + [False]
    # Smaller ones of eight GPUs may lie on the other nodes too, beside these.
    assert [bound.start(5 + run, 4) for run in range(5)] == [True] * 4 + [False]
    bound.end(0)
    assert bound.start(99, 5)
