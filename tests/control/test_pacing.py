"""When the next pass over the queue is due."""

from cumulo.control.pacing import Pacing
from tests.control.fakes import Clock, Cloud, FakeEngine, node


def test_the_first_is_due_and_so_is_one_after_something_was_done():
    pacing = Pacing()
    assert pacing.wait(100.0) == 0.0
    pacing.passed(100.0, 103.0, did=True)
    assert pacing.wait(103.0) == 0.0


def test_one_that_changed_nothing_is_repeated_seldom_and_sooner_once_something_changes():
    pacing = Pacing()
    pacing.passed(100.0, 102.0, did=False)
    assert pacing.wait(102.0) == 38.0
    pacing.changed()
    assert pacing.wait(102.5) == 1.5
    assert pacing.wait(104.0) == 0.0


def test_a_pass_that_takes_long_does_not_fill_the_loop(quick_db, tmp_path, monkeypatch):
    cloud = Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one"),))).ready()
    passes = []

    def place_waiting(*_):
        passes.append(cloud.clock())
        cloud.clock.pass_(1.0)
        return []

    monkeypatch.setattr("cumulo.control.loop.place_waiting", place_waiting)
    cloud.submit("A100")
    cloud.step()
    began = passes[0]
    for _ in range(50):
        cloud.clock.pass_(0.1)
        cloud.step()
    assert passes == [began], "nothing happened since"
    cloud.submit("A100")
    cloud.step()
    assert len(passes) == 2
    cloud.submit("A100")
    cloud.step()
    assert len(passes) == 2
    assert cloud.loop._patience() < 1.0
    cloud.clock.pass_(1.0)
    cloud.step()
    assert len(passes) == 3
