"""The bench of placements in a running server: its fleet, its queue, and one small real measurement."""

import argparse
from typing import Any

import pytest

from bench.placement import served
from cumulo.domain.node import Node
from cumulo.node.devices.emulated import parse_emulation


def options(*words):
    parser = argparse.ArgumentParser()
    served.add_arguments(parser)
    return parser.parse_args(words)


def parsed(nodes) -> tuple[Node, ...]:
    return parse_emulation(served.fleet(nodes), most=10_000)


def test_the_fleet_is_that_of_the_trace():
    nodes = parsed(served.NODES)
    assert len(nodes) == served.NODES == 1213
    assert sum(len(node.devices) for node in nodes) == 6212
    assert len(parsed(300)) == pytest.approx(300, abs=5)


def test_the_queue_has_as_many_instances_as_asked_for():
    def instances(seed):
        for body in served.queue(options("--runs", "2000", "--seed", seed)):
            first, last = map(int, str(body.get("array", "0-0")).split("-"))
            yield last - first + 1

    assert sum(instances("1")) == 2000
    assert list(instances("1")) == list(instances("1"))
    assert list(instances("1")) != list(instances("2"))


def test_a_small_queue_is_placed(monkeypatch):
    monkeypatch.setattr(served, "GATE_S", 1.0)
    (found,) = served.run(options("--nodes", "100", "--runs", "30"))
    row: dict[str, Any] = dict(found)
    assert (row["test"], row["placements"]) == ("served", 30)
    assert row["placements_per_s"] > 0
    assert 0 < row["commits_per_placement"] < 1
    assert "30 placements on 100 simulated nodes" in served.table([row])
