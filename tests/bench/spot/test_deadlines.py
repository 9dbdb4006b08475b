"""The bench from the command line, on traces made up and on the published ones where they are."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from bench.spot.__main__ import main
from bench.spot.deadlines import Plan, measure, rows, summary
from bench.spot.traces import load

REAL = Path(__file__).parents[4] / "shared" / "traces" / "spot"


def write(folder, name, *, gap=600, days=6.0, seed=0, share=0.6):
    rng = np.random.default_rng(seed)
    data: list[int] = []
    while len(data) * gap < days * 86400:
        for value, mean in ((1, 6 * share), (0, 6 * (1 - share))):
            data += [value] * (1 + int(rng.exponential(mean * 3600 / gap)))
    text = json.dumps({"metadata": {"gap_seconds": gap}, "data": data}).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)


def told(capsys):
    return json.loads(capsys.readouterr().out)


def test_rows_for_every_setting_and_policy(tmp_path, capsys):
    for number, gap in enumerate((600, 900)):
        write(tmp_path, f"zone{number}.json{'.gz' if number else ''}", gap=gap, seed=number)
    assert main(["--learn", str(tmp_path), "--test", str(tmp_path), "--starts", "2", "--json"]) == 0
    found = told(capsys)["rows"]
    assert len(found) == 16 * 5
    assert set(found[0]) == {"deadline_h", "overhead_h", "policy", "cost_ratio", "misses", "p95_regret", "jobs"}
    assert all(row["jobs"] == 4 and row["misses"] == 0 for row in found)
    costs = {(row["deadline_h"], row["overhead_h"], row["policy"]): row["cost_ratio"] for row in found}
    for (deadline, overhead, policy), cost in costs.items():
        if overhead < 0.4 or policy == "optimum":
            # A changeover that spot does not outlive costs a policy less than the optimum's problem says.
            assert cost >= costs[deadline, overhead, "optimum"] - 1e-6


def test_a_trace_that_is_too_short_is_left_out_and_told(tmp_path, capsys):
    write(tmp_path, "long.json", days=6.0)
    write(tmp_path, "short.json", days=3.0)
    plan = Plan(deadlines_h=(52.0, 92.0), overheads_h=(0.1,), starts=2)
    found = rows(measure(load(tmp_path), load(tmp_path), plan), plan)
    assert "short: too short for jobs of 92 h" in capsys.readouterr().err
    assert {row["jobs"] for row in found if row["deadline_h"] == 92} == {2}
    assert {row["jobs"] for row in found if row["deadline_h"] == 52} == {4}


def test_a_trace_can_be_cut_at_a_day(tmp_path):
    write(tmp_path, "long.json", days=6.0)
    [whole] = load(tmp_path)
    later = whole.since(2.0)
    assert later.name == whole.name
    assert list(later.counts) == list(whole.counts[2 * 144 :])


@pytest.mark.parametrize("content", ["{", '{"data": [1]}', '{"metadata": {"gap_seconds": 0}, "data": [1]}'])
def test_what_is_no_trace_is_told(tmp_path, capsys, content):
    (tmp_path / "odd.json").write_text(content)
    assert main(["--learn", str(tmp_path), "--test", str(tmp_path)]) == 2
    assert "odd.json" in capsys.readouterr().err


def test_no_folder_and_nothing_in_it_are_told(tmp_path, capsys):
    assert main(["--learn", str(tmp_path / "none"), "--test", str(tmp_path)]) == 2
    assert main(["--learn", str(tmp_path), "--test", str(tmp_path)]) == 2
    assert "holds no *.json" in capsys.readouterr().err


@pytest.mark.skipif(not REAL.is_dir(), reason="../shared is absent")
def test_published_means_of_2022_are_met():
    """Greedy 0.695 and Uniform Progress 0.669 over 16 settings; one of them, with its own means, stands for all."""
    folder = REAL / "aws-extra-2022"
    plan = Plan(deadlines_h=(52.0,), overheads_h=(0.1,))
    found = summary(measure(load(REAL / "spot-traces/availability/1-node/aws-10-26-2022"), load(folder), plan), plan)
    assert found["cost_ratio"]["uniform-progress"] == pytest.approx(0.7281, abs=0.0005)
    assert found["cost_ratio"]["optimum"] == pytest.approx(0.6543, abs=0.0005)
    assert found["misses"]["cumulo"] == 0
    assert found["gap_closed"] > 0.4
    assert found["p95_regret"]["cumulo"] <= found["p95_regret"]["uniform-progress"]
