"""The world kept by deltas is the world built afresh, and nothing in it is held twice."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cumulo.placement.world import OverHeld, World
from tests.placement.worlds import hold, node, nodes, world


def test_a_device_is_held_once():
    seen = world(node("n", ("T4", "T4")), holds=[hold("a", "n", 0)])
    before = seen.copy()
    with pytest.raises(OverHeld, match="n-0 is held by a"):
        seen.hold(hold("b", "n", 1, 0))
    with pytest.raises(OverHeld, match="a holds something already"):
        seen.hold(hold("a", "n", 1))
    with pytest.raises(OverHeld, match="no such node"):
        seen.hold(hold("c", "elsewhere"))
    assert seen == before, "a refused hold changes nothing"


def test_what_is_held_stays_held_when_its_device_is_gone():
    seen = world(node("n", ("T4", "T4")), holds=[hold("a", "n", 1, cpus=2)])
    seen.see_node("n", node("n", ("T4",), cpus=8))
    assert seen.nodes["n"].devices["n-1"].holders == ("a",)
    assert seen.nodes["n"].cpus_free == 6000
    seen.release("a")
    assert seen == world(node("n", ("T4",), cpus=8))


def test_releasing_twice_gives_back_once():
    seen = world(node("n"), holds=[hold("a", "n", cpus=2)])
    seen.release("a")
    seen.release("a")
    assert seen == world(node("n"))


def test_a_copy_is_independent():
    seen = world(node("n", ("T4",)))
    trial = seen.copy()
    trial.hold(hold("a", "n", 0))
    assert seen == world(node("n", ("T4",)))


def test_generations_are_kept_unless_told():
    seen = World()
    seen.see_node("n", node("n"), generation=7)
    seen.see_node("n", node("n", cpus=8))
    assert seen.nodes["n"].generation == 7
    seen.see_node("n", node("n", cpus=8), generation=9)
    assert seen.nodes["n"].generation == 9


class Deltas(RuleBasedStateMachine):
    """Any order of nodes seen, holds and releases."""

    def __init__(self):
        super().__init__()
        self.seen = World()
        self.facts = {}
        self.holds = {}
        self.number = 0

    @rule(name=st.sampled_from("abc"), data=st.data())
    def see(self, name, data):
        self.facts[name] = data.draw(nodes(name))
        self.seen.see_node(name, self.facts[name])

    @precondition(lambda self: self.facts)
    @rule(data=st.data())
    def hold(self, data):
        name = data.draw(st.sampled_from(sorted(self.facts)))
        devices = [each.index for each in self.facts[name].devices]
        chosen = data.draw(st.lists(st.sampled_from(devices), unique=True)) if devices else []
        self.number += 1
        new = hold(f"i{self.number}", name, *chosen, cpus=data.draw(st.integers(0, 4)))
        held = {uuid for other in self.holds.values() for uuid in other.device_uuids}
        if held & set(new.device_uuids):
            with pytest.raises(OverHeld):
                self.seen.hold(new)
        else:
            self.seen.hold(new)
            self.holds[new.instance_id] = new

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def release(self, data):
        name = data.draw(st.sampled_from(sorted(self.holds)))
        del self.holds[name]
        self.seen.release(name)

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), until=st.none() | st.floats(0, 100))
    def declare(self, data, until):
        name = data.draw(st.sampled_from(sorted(self.holds)))
        self.seen.declare_end(name, until)
        self.holds[name] = self.seen.holds[name]
        assert self.holds[name].until == until

    @invariant()
    def the_same_as_afresh(self):
        assert self.seen == world(*self.facts.values(), holds=self.holds.values())


TestDeltas = Deltas.TestCase
TestDeltas.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
