"""Speed: what is measured is the same work by NumPy and by the compiled kernels."""

import argparse

import pytest

from bench.placement import speed
from bench.placement.openb_trace import read_nodes
from tests.bench.placement.traces import write


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    speed.add_arguments(parser)
    return parser.parse_args(words)


def test_a_larger_fleet_is_the_same_nodes_over_and_over(tmp_path):
    nodes = read_nodes(write(tmp_path))
    assert speed.fleet(nodes, 6).gpus.tolist() == [2, 2, 4, 8, 2, 2]


def test_both_kinds_of_kernels_are_measured_at_the_same_decisions(tmp_path, monkeypatch):
    pytest.importorskip("numba")
    rows = speed.run(options("--traces", str(write(tmp_path)), "--nodes", "40", "--decisions", "300"))
    assert [row["policy"] for row in rows] == ["cumulo, numpy", "cumulo, numba"]
    assert rows[0]["decided"] == rows[1]["decided"]
    assert all(float(str(row[key])) > 0 for row in rows for key in ("fill_per_s", "churn_per_s"))
    assert "cumulo, numba" in speed.table(rows)
    other = iter([{"decided": "this"}, {"decided": "that"}])
    monkeypatch.setattr(speed, "_in_a_process", lambda *_: next(other))
    with pytest.raises(ValueError, match="on 40 nodes NumPy and numba decide differently"):
        speed.run(options("--traces", str(tmp_path), "--nodes", "40"))
