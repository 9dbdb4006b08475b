"""The replay of a service's replicas: what is counted, what a rule may know, and the published rules' own figures."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from bench.spot import replicas
from bench.spot.replicas_plot import draw
from bench.spot.replicas_rules import EvenSpread, OneZone, SpotHedge
from bench.spot.replicas_world import UNLIMITED, Zones, aligned, replay
from bench.spot.traces import BadTrace, load

NINE_ZONES = Path(__file__).parents[4] / "shared" / "traces" / "spot" / "spot-traces/availability/1-node/aws-02-15-2023"
needs_the_real_ones = pytest.mark.skipif(not NINE_ZONES.is_dir(), reason="../shared is absent")
GAP_S = 200.0


def zones(*records, names=None):
    counts = np.array(records, dtype=np.int64).T * UNLIMITED
    names = names or tuple(f"us-east-{number}a_v100_1" for number in range(counts.shape[1]))
    return Zones(names, tuple(name.partition("_")[0][:-1] for name in names), GAP_S, counts)


def replayed(where, rule, target=2, cold_start_s=2 * GAP_S):
    return replay(where, rule, target=target, cold_start_s=cold_start_s, on_demand=3.0)


def write_traces(folder, ticks=900, gap_s=GAP_S):
    rng = np.random.default_rng(3)
    for name in ("us-east-1a_v100_1", "us-east-1b_v100_1", "us-west-2a_v100_1"):
        up = np.zeros(ticks, dtype=int)
        tick, state = 0, 1
        while tick < ticks:
            length = int(rng.exponential(40 if state else 12)) + 1
            up[tick : tick + length] = state
            tick, state = tick + length, 1 - state
        record = {"metadata": {"gap_seconds": gap_s}, "data": up.tolist()}
        (folder / f"{name}.json").write_text(json.dumps(record))


def options(*words):
    parser = argparse.ArgumentParser()
    replicas.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


def test_a_replica_costs_from_its_launch_and_counts_from_its_readiness():
    found = replayed(zones([1] * 10), OneZone(0, target=2))
    assert found.ready == pytest.approx(0.8)
    assert found.cost == pytest.approx(1 / 3)
    assert found.none_ready == pytest.approx(0.2)


def test_what_is_lost_starts_anew():
    found = replayed(zones([1, 1, 1, 1, 0, 1, 1, 1, 1, 1]), OneZone(0, target=2))
    assert found.ready == pytest.approx(0.5)
    assert found.cost == pytest.approx(0.9 / 3)
    assert (found.launches, found.refusals) == (4, 2)


def test_a_zone_of_few_gives_few_and_takes_back_the_youngest():
    where = zones([1] * 6)._replace(counts=np.array([[2], [2], [2], [1], [1], [2]]))
    found = replayed(where, OneZone(0, target=3), target=3)
    assert found.ready == 0.0
    assert found.launches == 3, "two, and one again in the end"
    assert found.missing == pytest.approx((3 + 3 + 1 + 2 + 2 + 2) / 18)


def test_spot_hedge_covers_with_on_demand_what_spot_lacks():
    found = replayed(zones([0] * 20, [0] * 20), SpotHedge(2, (0, 1)))
    assert found.ready == pytest.approx(0.9)
    assert found.cost == pytest.approx(1.0), "two of on-demand, as without spot"


def test_spot_hedge_goes_to_the_zones_that_it_does_not_use():
    where = zones([1] * 10, [1] * 10, [1] * 10)
    rule = SpotHedge(2, (2, 0, 1))
    replayed(where, rule)
    assert replayed(where, rule).refusals == 0


def test_spot_hedge_may_ask_again_within_a_tick():
    where = zones([0] * 10, [1] * 10, [1] * 10)
    once, again = (replayed(where, SpotHedge(2, (0, 1, 2), tries=tries)) for tries in (1, 3))
    assert again.cost < once.cost


def test_even_spread_takes_each_zone_in_turn():
    found = replayed(zones([0] * 10, [1] * 10), EvenSpread(2), target=2, cold_start_s=0.0)
    assert found.launches == 2
    assert found.refusals == 2


def test_traces_that_tick_differently_have_no_common_clock(tmp_path):
    write_traces(tmp_path)
    (tmp_path / "other.json").write_text('{"metadata": {"gap_seconds": 30}, "data": [1, 0]}')
    with pytest.raises(BadTrace, match=r"tick every 30, 200 s"):
        aligned(load(tmp_path))


def test_a_split_outside_the_traces_is_refused(tmp_path):
    write_traces(tmp_path)
    with pytest.raises(BadTrace, match="--split-day must be within"):
        replicas.run(options(tmp_path, "--split-day", 15))


@pytest.mark.parametrize(("words", "said"), [(("--periods", 1), "2 or more"), (("--target", 0), "1 or more")])
def test_settings_that_make_no_sense_are_refused(tmp_path, words, said):
    write_traces(tmp_path, ticks=20)
    with pytest.raises(ValueError, match=said):
        replicas.run(options(tmp_path, *words))


def test_every_policy_has_its_rows_and_dearer_gaps_mean_fewer(tmp_path):
    write_traces(tmp_path, ticks=600)
    rows = replicas.run(
        options(tmp_path, "--split-day", 0.7, "--target", 2, "--missing", 1, 100, "--plot", tmp_path / "p.png")
    )
    assert {row["period"] for row in rows} == {"whole", "held out", "held out, asked otherwise"}
    own = [row for row in rows if row.get("missing_price")]
    assert len(own) == 4
    for outage in (False, True):
        cheap, dear = [row for row in own if bool(row["outage_price"]) == outage]
        assert cheap["ready"] < dear["ready"]
        assert cheap["cost"] < dear["cost"] <= 1.2
    assert (tmp_path / "p.png").stat().st_size > 1000
    assert "cumulo, missing at 100x" in replicas.table(rows)


def test_periods_are_each_held_out_and_their_mean_told(tmp_path):
    write_traces(tmp_path, ticks=200)
    rows = replicas.run(options(tmp_path, "--periods", 2, "--target", 2, "--missing", 10))
    hedges = {row["period"]: row["cost"] for row in rows if row["policy"] == "SpotHedge"}
    assert hedges["mean"] == pytest.approx((hedges["1 of 2"] + hedges["2 of 2"]) / 2)


def test_the_same_rows_draw_the_same_picture(tmp_path):
    rows = [
        {"policy": "SpotHedge", "cost": 0.4, "ready": 0.98, "none_ready": 0.0},
        {"policy": "cumulo", "cost": 0.4, "ready": 0.99, "none_ready": 0.01, "missing_price": 5, "outage_price": 0},
    ]
    for name in ("a.png", "b.png"):
        draw(rows, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@needs_the_real_ones
@pytest.mark.parametrize(
    ("rule", "ready", "cost"),
    [(OneZone(7, 4), 0.891, 0.302), (EvenSpread(4), 0.934, 0.327), (SpotHedge(4, tuple(range(9))), 0.980, 0.451)],
)
def test_the_published_rules_give_what_was_told_of_them(rule, ready, cost):
    found = replay(aligned(load(NINE_ZONES)), rule, target=4, cold_start_s=585.0, on_demand=3.0)
    assert found.ready == pytest.approx(ready, abs=0.001)
    assert found.cost == pytest.approx(cost, abs=0.0006)


@needs_the_real_ones
@pytest.mark.long
def test_the_bar_is_held_on_what_was_not_learnt_from():
    rows = replicas.run(options(NINE_ZONES, "--missing", 50))
    found = next(row for row in rows if row.get("missing_price") and not row["outage_price"])
    assert found["ready"] >= 0.992
    assert found["cost"] <= 0.451
