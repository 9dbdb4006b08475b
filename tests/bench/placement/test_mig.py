"""The bench of MIG placements: its yardsticks order as they must, and its figures are what was played."""

import argparse
import math
from itertools import product

import numpy as np
import pytest

from bench.placement import mig, paired
from bench.placement.mig_optimum import exact, hindsight, most


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    mig.add_arguments(parser)
    return parser.parse_args(words)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    words = ("--kinds", "A30", "--mixes", "uniform,ends", "--loads", "1.2", "--gpus", "1,4", "--seeds", "1-3")
    return mig.run(options(*words, "--asks", "600", "--durations", "exponential,lognormal"))


def figures(rows: list[dict[str, object]], policy: str, gpus: int, test: str = "mig") -> list[float]:
    return [
        float(str(row["accepted_pct"]))
        for row in rows
        if (row["policy"], row["gpus"], row["test"]) == (policy, gpus, test)
    ]


def test_every_stream_has_every_policy(rows: list[dict[str, object]]) -> None:
    names = {"first-fit", "best-fit", "cumulo", "cumulo-blind"}
    assert {row["policy"] for row in rows if row["gpus"] == 4} == names
    assert {row["policy"] for row in rows if row["gpus"] == 1} == names | {"optimum", "optimum-refusing", "hindsight"}
    assert all(len(figures(rows, name, 4)) == 2 * 2 * 3 for name in names)


def test_nothing_beats_hindsight(rows: list[dict[str, object]]) -> None:
    best = figures(rows, "hindsight", 1, "mig-hindsight")
    for name in ("first-fit", "best-fit", "cumulo", "cumulo-blind", "optimum", "optimum-refusing"):
        played = figures(rows, name, 1, "mig-hindsight")
        assert all(figure <= bound for figure, bound in zip(played, best, strict=True))


def test_the_table_names_every_kind_and_the_paired_differences(rows: list[dict[str, object]]) -> None:
    text = mig.table(rows)
    assert "A30             1 ends" in text
    assert "all streams, 4 GPUs: cumulo − best-fit:" in text


def test_the_bounds_order() -> None:
    setting = mig.scene("A30", "uniform", load=1.0, gpus=1, durations="exponential")
    states, rates = setting.table.states, setting.rates
    kept, refusing = exact(states, rates, refuse=False)[1], exact(states, rates, refuse=True)[1]
    assert kept <= refusing <= most(states, rates) <= 4.0


def test_the_bound_for_many_is_tight_where_it_is_plain() -> None:
    """Only whole GPUs are asked for, half as many as there are: all can be accepted, 4 slices each."""
    states = mig.scene("A30", "uniform", load=1.0, gpus=1, durations="exponential").table.states
    rates = np.array([0, 0, 0, 0, 0.5])
    assert most(states, rates) == pytest.approx(2.0, rel=0.01)
    assert most(states, rates * 4) == pytest.approx(4.0, rel=0.01)


def test_hindsight_is_what_trying_everything_finds() -> None:
    """Every subset of a short stream, each placed first fit in every order of starts."""
    setting = mig.scene("A30", "uniform", load=2.0, gpus=1, durations="exponential")
    states = setting.table.states
    stream = mig.asks_of(setting, 5, 6)
    best = 0
    for starts in product((-1, 0, 1, 2, 3), repeat=len(stream)):
        lying: list[tuple[float, int, int]] = []
        slices = 0
        for (profile, at, lasts), start in zip(stream, starts, strict=True):
            lying = [each for each in lying if each[0] > at]
            state = states.by_layout[tuple(sorted((p, s) for _, p, s in lying))]
            if start < 0:
                continue
            if states.after[state, profile, start] < 0:
                break
            lying.append((at + lasts, profile, start))
            slices += int(states.slices[profile])
        else:
            best = max(best, slices)
    assert hindsight(states, stream) == best


def test_whole_gpus_alone_are_blocked_as_erlang_says() -> None:
    """One kind of ask that fills a GPU, load 1: Erlang's loss formula gives 1/2 for one GPU and 0.2105 for eight."""
    blocked = {}
    for gpus in (1, 8):
        setting = mig.scene("A30", "uniform", load=1.0, gpus=gpus, durations="exponential")
        whole = mig.Scene(
            **{
                name: getattr(setting, name) for name in ("kind", "mix", "load", "gpus", "durations", "layout", "table")
            },
            rates=np.array([0, 0, 0, 0, 1.0]),
        )
        policy = mig.Choice.of(setting.table.loss, setting.table.best_start)
        accepted = mig.play(setting.table.states, policy, mig.asks_of(whole, 7, 40_000), gpus)
        blocked[gpus] = 1 - sum(accepted) / len(accepted)
    assert blocked[1] == pytest.approx(0.5, abs=0.01)
    erlang = (8**8 / math.factorial(8)) / sum(8**k / math.factorial(k) for k in range(9))
    assert blocked[8] == pytest.approx(erlang, abs=0.01)


def test_best_fit_takes_the_smallest_gap() -> None:
    setting = mig.scene("A100-80GB", "uniform", load=1.0, gpus=1, durations="exponential")
    table = setting.table
    choice = mig._best_fit(table.states)
    state = table.state([("2g.20gb", 0), ("3g.40gb", 4)])
    assert choice.start[table.profile("1g.10gb"), state] == 2
    state = table.state([("1g.10gb", 1)])
    assert choice.start[table.profile("1g.10gb"), state] == 0
    assert choice.cost[table.profile("7g.80gb"), state] == np.inf


@pytest.mark.parametrize(
    ("kind", "mix", "durations", "said"),
    [
        ("T4", "uniform", "exponential", "T4 has no table of MIG placements"),
        ("A30", "odd", "exponential", "there is no mix 'odd'"),
        ("A30", "uniform", "fixed", "not 'fixed'"),
    ],
)
def test_what_is_not_known_is_said(kind: str, mix: str, durations: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        mig.scene(kind, mix, load=1.0, gpus=1, durations=durations)


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.776), (9, 2.262), (29, 2.045), (449, 1.965)])
def test_students_quantile(freedom: int, quantile: float) -> None:
    assert paired.student(freedom) == pytest.approx(quantile, rel=0.005)
