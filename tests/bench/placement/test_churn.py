"""Churn: what is counted, that nothing is over-held while runs come, go and move, and the rows."""

import argparse

import numpy as np
import pytest

from bench.placement import churn
from bench.placement.cumulo_policy import CumuloPolicy
from bench.placement.moving import Moving, Staying
from bench.placement.openb_trace import MIB, MODELS, Nodes, Pod, Trace
from tests.bench.placement.traces import write

ANY = (1 << len(MODELS)) - 1
WHOLE, PART, FOUR = Pod(1000, 1, 1, 1000, ANY), Pod(1000, 1, 1, 400, ANY), Pod(1000, 1, 4, 1000, ANY)


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    churn.add_arguments(parser)
    return parser.parse_args(words)


def trace(*pods: tuple[Pod, int]) -> Trace:
    return Trace("made", tuple(pod for pod, _ in pods), np.repeat(np.arange(len(pods)), [count for _, count in pods]))


def nodes(count: int, gpus: int) -> Nodes:
    return Nodes(
        np.full(count, 64_000), np.full(count, 1 << 16), np.full(count, gpus), np.full(count, MODELS.index("G2"))
    )


def test_time_in_use_is_counted_from_the_end_of_the_warm_up():
    made, of = trace((WHOLE, 1)), nodes(1, 2)
    # Three come at 0, 1 and 2, of which the last two count; the third finds no room.
    stream = churn.Stream(np.zeros(3, int), np.array([0.0, 1.0, 2.0]), np.array([1.5, 9.0, 4.0]), of)
    seen = churn.play(made, stream, Staying(CumuloPolicy(made, of)))
    assert seen.in_use_pct == pytest.approx(100 * (2 * 0.5 + 1 * 0.5) / 2)
    assert seen.rejected.tolist() == [False, False, False]
    longer = churn.Stream(np.zeros(3, int), stream.at, np.array([9.0, 9.0, 4.0]), of)
    seen = churn.play(made, longer, Staying(CumuloPolicy(made, of)))
    assert seen.rejected.tolist() == [False, False, True]
    found = churn.figures(made, longer, seen)
    assert found["gpu_time_lost_pct"] == pytest.approx(100 * 4 / 13, abs=0.001)
    assert found["rejected_pct"] == found["rejected_one_gpu_pct"] == 50.0
    assert "rejected_many_gpus_pct" not in found


def test_arrivals_ask_for_the_load():
    made, of = trace((WHOLE, 3), (PART, 5), (FOUR, 1)), nodes(10, 8)
    stream = churn.stream(made, of, load=0.9, seed=5, arrivals=40_000)
    asked = (made.milli[stream.numbers] * stream.lasts).sum() / stream.at[-1] / of.total_milli
    assert asked == pytest.approx(0.9, rel=0.05)
    assert stream.lasts.mean() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("whole", [False, True])
def test_nothing_is_over_held_while_runs_come_go_and_move(whole):
    made, of = trace((WHOLE, 30), (PART, 40), (FOUR, 6)), nodes(12, 4)
    policy = CumuloPolicy(made, of, compiled=False)
    runs = Moving(policy, whole=whole, most=6, per_100=50.0)
    seen = churn.play(made, churn.stream(made, of, load=1.0, seed=3, arrivals=3000), runs)
    assert 0 < seen.moves <= runs.moves <= 0.5 * 3000
    state = policy.rows.state
    free = np.full((12, 4), 1000)
    cpus, memory = of.cpus.copy(), of.memory * MIB
    for placed in runs.placed.values():
        pod = made.classes[placed.number]
        cpus[placed.row] -= pod.cpus
        memory[placed.row] -= pod.memory * MIB
        free[placed.row, placed.devices] -= pod.milli
    assert (free >= 0).all()
    np.testing.assert_array_equal(state.free, free)
    np.testing.assert_array_equal(state.cpus, cpus)
    np.testing.assert_array_equal(state.memory, memory)


def test_making_room_lets_more_large_ones_in():
    made, of = trace((WHOLE, 30), (PART, 40), (FOUR, 6)), nodes(40, 4)
    stream = churn.stream(made, of, load=1.0, seed=3, arrivals=6000)
    found = []
    for runs in (Staying(CumuloPolicy(made, of)), Moving(CumuloPolicy(made, of), whole=True, most=6, per_100=50.0)):
        found.append(churn.figures(made, stream, churn.play(made, stream, runs))["rejected_many_gpus_pct"])
    assert found[1] < 0.8 * found[0]


def test_rows_say_what_they_are(tmp_path):
    pytest.importorskip("numba")
    words = ("--traces", str(write(tmp_path)), "--trace", "default", "--loads", "1.0,1.2", "--arrivals", "600")
    rows = churn.run(options(*words, "--make-room", "--seeds", "1,2"))
    assert len(rows) == 2 * 2 * 3
    assert {row["policy"] for row in rows} == {"fgd", "cumulo", churn.WITH_ROOM}
    assert all(0 < float(str(row["alloc_pct"])) <= 100 for row in rows)
    assert "moves/100" in churn.table(rows)
