"""The index of a world: kept by deltas it chooses as a fresh one does, and gangs lie near one another."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cumulo.placement.fit import choose
from cumulo.placement.index import expect, index_of
from cumulo.placement.order import hold_places
from cumulo.placement.world import World
from tests.placement.worlds import ask, asks, chosen, few, node, waiting, world, worlds


def fresh(seen):
    """The same world, seen now for the first time."""
    made = World(may_change_mode=seen.may_change_mode)
    for node_id, use in seen.nodes.items():
        made.see_node(node_id, use.node, generation=use.generation)
    for each in seen.holds.values():
        made.restore(each)
    return made


@few
@given(worlds(), st.lists(st.tuples(asks, st.booleans()), max_size=6), asks)
def test_kept_by_deltas_it_chooses_as_a_fresh_one(seen, before, asked):
    for number, (wanted, stays) in enumerate(before):
        places = choose(seen, wanted)
        if places is not None:
            ids = hold_places(seen, waiting(f"r{number}", wanted), places)
            for instance_id in () if stays else ids:
                seen.release(instance_id)
    again = fresh(seen)
    assert again == seen
    assert choose(seen, asked) == choose(again, asked)


@few
@given(worlds(), asks)
def test_a_copy_chooses_the_same_and_leaves_the_original_alone(seen, asked):
    first = choose(seen, asked)
    trial = seen.copy()
    assert choose(trial, asked) == first
    if first is not None:
        hold_places(trial, waiting("r", asked), first)
        choose(trial, asked)
    assert choose(seen, asked) == first


def test_nodes_that_come_go_and_change_are_followed():
    seen = world(node("a", ["T4"]))
    assert choose(seen, ask("A100:1")) is None
    seen.see_node("b", node("b", ["A100-80GB"] * 2))
    assert chosen(seen, ask("A100:2"))[0].node_id == "b"
    seen.see_node("b", replace(node("b", ["A100-80GB"]), cpus_milli=8000))
    assert choose(seen, ask("A100:2")) is None
    del seen.nodes["b"]
    assert choose(seen, ask("A100:1")) is None


def test_a_gang_lies_in_one_rack_where_it_can_and_ranks_follow_the_racks():
    racks = {"a": "1", "b": "2", "c": "1", "d": "2", "e": "2"}
    seen = world(*(node(name, ["A100-80GB"] * 8, labels={"rack": rack}) for name, rack in racks.items()))
    assert [spot.node_id for spot in chosen(seen, ask("A100:8", nodes=2))] == ["a", "c"]
    assert [spot.node_id for spot in chosen(seen, ask("A100:8", nodes=3))] == ["b", "d", "e"]
    assert [spot.node_id for spot in chosen(seen, ask("A100:8", nodes=4))] == ["b", "d", "e", "a"]


def test_a_link_domain_counts_more_than_a_rack():
    domains = {"a": ("1", "x"), "b": ("1", "y"), "c": ("2", "x")}
    seen = world(
        *(
            node(name, ["A100-80GB"] * 8, labels={"rack": rack, "link-domain": link})
            for name, (rack, link) in domains.items()
        )
    )
    assert [spot.node_id for spot in chosen(seen, ask("A100:8", nodes=2))] == ["a", "c"]


def test_what_a_world_was_told_to_expect_changes_what_it_gives_away():
    def cloud():
        return world(node("a", ["T4"], cpus=32), node("b", ["A100-80GB"], cpus=32))

    seen = cloud()
    for _ in range(64):
        expect(seen, ask("A100:1"))
    for _ in range(16):
        expect(seen, ask("1"))
    assert chosen(seen, ask("1"))[0].node_id == "a"
    other = cloud()
    for _ in range(64):
        expect(other, ask("T4:1"))
    for _ in range(16):
        expect(other, ask("1"))
    assert chosen(other, ask("1"))[0].node_id == "b"


def test_copies_learn_nothing():
    seen = world(node("a", ["T4"] * 4))
    expect(seen, ask("T4:1"))
    trial = seen.copy()
    [held] = hold_places(trial, waiting("r", ask("T4:1")), chosen(trial, ask("T4:1")))
    trial.release(held)
    assert index_of(seen).appraisal.ended == 0
    [held] = hold_places(seen, waiting("r", ask("T4:1")), chosen(seen, ask("T4:1")))
    seen.release(held)
    assert index_of(seen).appraisal.ended == 1


def test_what_copies_were_asked_is_not_mistaken_for_one_another():
    seen = world(node("one", ("A100-80GB", "A100-80GB")))
    hold_places(seen, waiting("held", ask("A100")), chosen(seen, ask("A100")))
    one, other = seen.copy(), seen.copy()
    assert choose(one, ask("A100:1", cpus=1)) is not None
    assert choose(other, ask("A100:2", cpus=1)) is None, "each was the first that its copy was asked for"
    assert choose(seen, ask("A100:2", cpus=2)) is None
