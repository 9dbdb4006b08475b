"""The world kept by deltas is the world built afresh, and nothing in it is held twice."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cumulo.domain.sharing import Slice
from cumulo.placement.world import OverHeld, World
from tests.placement.worlds import E, M, P, T, hold, mig, node, nodes, part, world


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


def test_copies_go_ways_of_their_own_whichever_changes_first():
    there = node("n", ("T4", "T4")), node("m", ("T4",))
    seen = world(*there)
    first = seen.copy()
    second = first.copy()
    seen.hold(hold("a", "n", 0))
    first.hold(hold("b", "n", 0, 1))
    second.hold(hold("c", "m", 0))
    third = first.copy()
    first.release("b")
    assert seen.advance("m") == 0
    assert [seen.nodes["m"].generation, first.nodes["m"].generation] == [1, 0]
    assert first == world(*there)
    assert second == world(*there, holds=[hold("c", "m", 0)])
    assert third == world(*there, holds=[hold("b", "n", 0, 1)])
    seen.see_node("m", node("m", ("T4",)), generation=0)
    assert seen == world(*there, holds=[hold("a", "n", 0)])


def test_generations_are_kept_unless_told():
    seen = World()
    seen.see_node("n", node("n"), generation=7)
    seen.see_node("n", node("n", cpus=8))
    assert seen.nodes["n"].generation == 7
    seen.see_node("n", node("n", cpus=8), generation=9)
    assert seen.nodes["n"].generation == 9


@pytest.mark.parametrize(
    ("there", "new", "why"),
    [
        ((0,), part("n-0", 1), "n-0 is held by a"),
        ((part("n-0", 1),), Slice(device_uuid="n-0"), "n-0 is held by a"),
        ((part("n-0", 1),), part("n-0", 1, mode=T), "n-0 is in mode mps, and in one mode at a time"),
        ((part("n-0", 1),), mig("n-0", "1g.10gb", 0), "n-0 is in mode mps, and in one mode at a time"),
        ((part("n-0", 600),), part("n-0", 401), "400 of 1000 milli of device n-0 are free"),
        ((part("n-0", 1, gib=79),), part("n-0", 1, gib=2), "1073741824 of 85899345920 bytes of device n-0 are free"),
        ((mig("n-0", "3g.40gb", 4),), mig("n-0", "1g.20gb", 6), "1g.20gb can't lie at 6 .* where lie: 3g.40gb at 4"),
        ((), mig("n-0", "3g.40gb", 2), "3g.40gb can't lie at 2 of device n-0, where lie: none"),
        ((mig("n-0", "1g.10gb+me", 0),), mig("n-0", "1g.10gb+me", 1), "1g.10gb\\+me can't lie at 1"),
        ((), mig("n-0", "9g.1gb", 0), "n-0 is a A100-80GB, which has no MIG profile 9g.1gb"),
        ((), mig("n-1", "1g.10gb", 0), "n-1 is a T4, which has no MIG"),
    ],
)
def test_a_slice_is_held_once_and_a_device_in_one_mode(there, new, why):
    seen = world(node("n", ("A100-80GB", "T4")), holds=[hold("a", "n", *there)])
    before = seen.copy()
    with pytest.raises(OverHeld, match=why):
        seen.hold(hold("b", "n", new))
    assert seen == before


def test_a_device_changes_its_mode_once_it_is_empty():
    seen = world(node("n", ("A100-80GB",)), holds=[hold("a", "n", part("n-0", 999)), hold("b", "n", part("n-0", 1))])
    assert (seen.nodes["n"].devices["n-0"].mode, seen.nodes["n"].devices["n-0"].holders) == (P, ("a", "b"))
    seen.release("a")
    seen.release("b")
    assert seen == world(node("n", ("A100-80GB",)))
    seen.hold(hold("c", "n", mig("n-0", "7g.80gb", 0)))


def test_what_is_known_to_be_held_is_restored_whatever_became_of_its_device():
    seen = world(node("n"))
    seen.restore(hold("a", "n", part("n-0", 600)))
    seen.restore(hold("b", "n", part("n-0", 600)))
    assert seen.nodes["n"].devices["n-0"].milli_free == -200
    seen.release("a")
    seen.hold(hold("c", "n", part("n-0", 1)))
    with pytest.raises(OverHeld, match="n-0 is held by b, c"):
        seen.hold(hold("d", "n", 0))


@st.composite
def any_slice(draw, device):
    """A slice that may or may not be lawful there."""
    mode = draw(st.sampled_from((E, M, M, P, P, T)))
    if mode is M:
        return mig(device.uuid, draw(st.sampled_from(("1g.10gb", "3g.40gb", "1g.20gb"))), draw(st.integers(0, 7)))
    if mode is E:
        return Slice(device_uuid=device.uuid)
    return part(device.uuid, draw(st.integers(1, 1000)), mode=mode, gib=draw(st.integers(0, 80)))


WIDTH, STARTS = {"1g.10gb": 1, "3g.40gb": 4, "1g.20gb": 2}, {"1g.10gb": range(7), "3g.40gb": (0, 4)}


def lawful(device, slices):
    """The rules once more, as the words of DESIGN have them; the profiles' own from NVIDIA's table."""
    modes = {each.mode for each in slices}
    if len(modes) > 1 or (modes == {E} and len(slices) > 1):
        return False
    if modes == {M}:
        cells = [each.start + offset for each in slices for offset in range(WIDTH[each.profile])]
        return (
            device.model in ("A100-80GB", "H100-80GB")
            and all(each.start in STARTS.get(each.profile, (0, 2, 4, 6)) for each in slices)
            and len(cells) == len(set(cells))
            and sum(3 if each.profile == "3g.40gb" else 1 for each in slices) <= 7
        )
    return modes == {E} or (
        sum(each.milli for each in slices) <= 1000 and sum(each.memory_bytes for each in slices) <= device.memory_bytes
    )


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
        devices = self.facts[name].devices
        chosen = [data.draw(any_slice(each)) for each in devices if data.draw(st.booleans())]
        chosen += [data.draw(any_slice(devices[0]))] if devices and data.draw(st.booleans()) else []
        self.number += 1
        new = hold(f"i{self.number}", name, *chosen, cpus=data.draw(st.integers(0, 4)))
        held = [each for other in self.holds.values() for each in other.slices]
        touched = {each.uuid: each for each in devices if each.uuid in new.device_uuids}
        if all(lawful(each, [s for s in held + chosen if s.device_uuid == uuid]) for uuid, each in touched.items()):
            self.seen.hold(new)
            self.holds[new.instance_id] = new
        else:
            with pytest.raises(OverHeld):
                self.seen.hold(new)

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
        afresh = world(*self.facts.values())
        for each in self.holds.values():
            afresh.restore(each)
        assert self.seen == afresh


TestDeltas = Deltas.TestCase
TestDeltas.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
