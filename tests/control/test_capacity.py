"""What could ever start here: found out once for each ask, and never from what is held now."""

import pytest

from cumulo.control import capacity
from cumulo.control.capacity import Capacity
from tests.placement.worlds import ask, node, world


@pytest.fixture
def fleet():
    return Capacity(world(node("n", ("A100-80GB", "A100-80GB")), node("m", ("T4",))))


def test_it_takes_what_fits_when_nothing_is_held(fleet):
    assert fleet.takes(ask("A100:2"))
    assert fleet.takes(ask("T4"))
    assert not fleet.takes(ask("A100:4"))
    assert not fleet.takes(ask("T4", nodes=2))


def test_it_finds_out_once(fleet, monkeypatch):
    assert fleet.takes(ask("A100:2"))
    monkeypatch.setattr(capacity, "choose", None)
    assert fleet.takes(ask("A100:2"))


def test_it_forgets_rather_than_grow(fleet, monkeypatch):
    monkeypatch.setattr(capacity, "_MOST_KEPT", 3)
    for cpus in range(1, 10):
        assert fleet.takes(ask("A100", cpus=cpus))
    assert len(fleet._taken) <= 3
