"""Whatever happens in whatever order: nothing is held twice or started twice, and every run comes to one end."""

import pytest

from tests.control.chaos import Chaos


@pytest.mark.parametrize("seed", range(8))
def test_a_few_hundred_things_happen(quick_db, tmp_path, seed, monkeypatch):
    chaos = Chaos(quick_db, tmp_path, seed, monkeypatch)
    chaos.play(150)
    assert chaos.settle().total() >= len(chaos.accepted)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 250))
def test_many_things_happen(quick_db, tmp_path, seed, monkeypatch):
    chaos = Chaos(quick_db, tmp_path, seed, monkeypatch)
    chaos.play(600)
    assert chaos.settle().total() >= len(chaos.accepted)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_on_either_database(db, tmp_path, seed, monkeypatch):
    chaos = Chaos(db, tmp_path, 1000 + seed, monkeypatch)
    chaos.play(200)
    assert chaos.settle().total() >= len(chaos.accepted)
