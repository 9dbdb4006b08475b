"""Making room: small runs that can move do, each to a place of its own, and only where the policy wants it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cumulo.placement.fit import choose
from cumulo.placement.order import place
from cumulo.placement.policy import Policy
from cumulo.placement.reserve import attempts
from cumulo.placement.room import make_room
from tests.placement.worlds import ask, asks, few, hold, mig, node, part, waiting, world, worlds

NOW = 1000.0
MOVING = Policy(make_room=True, most_moves=2)
ONE, TWO = node("n", ("A100-80GB",) * 4), node("o", ("A100-80GB",) * 4)


def small(gpu, **more):
    return ask(gpu, cpus=1, gib=1, **more)


def moved(name, node_id, *devices, started=0.0, **changes):
    return hold(f"{name}-0-1-0", node_id, *devices, migratable=True, started_at=started, **changes)


def test_small_runs_move_out_of_the_way_of_a_large_one():
    seen = world(ONE, TWO, holds=[moved("a", "n", 0), moved("b", "o", 0, 1, started=900.0)])
    queue = [waiting("w", small("4"))]
    assert place(seen, queue, now=NOW).rooms == ()
    [room] = place(seen, queue, now=NOW, policy=MOVING).rooms
    assert [(move.instance_id, move.from_node, move.place.node_id) for move in room.moves] == [("b-0-1-0", "o", "n")]
    assert room.lost_gpu_s == 200.0
    assert room.places[0].node_id == "o"


def test_what_can_not_move_or_has_nowhere_to_go_stays():
    stuck = world(ONE, TWO, holds=[hold("a", "n", 0), hold("b", "o", 0)])
    full = world(ONE, TWO, holds=[moved("a", "n", 0), hold("b", "o", *range(4))])
    for seen in (stuck, full):
        assert place(seen, [waiting("w", small("4"))], now=NOW, policy=MOVING).rooms == ()


def test_no_more_move_than_the_policy_says():
    holds = [moved(f"a{n}", "n", n) for n in range(3)] + [hold("b", "o", 0)]
    seen = world(ONE, TWO, holds=holds)
    assert place(seen, [waiting("w", small("4"))], now=NOW, policy=MOVING).rooms == ()
    assert len(place(seen, [waiting("w", small("4"))], now=NOW, policy=replace(MOVING, most_moves=3)).rooms) == 1


def test_equals_do_not_change_places():
    seen = world(node("n", ("A100-80GB",)), node("o", ("T4",)), holds=[moved("a", "n", 0)])
    assert place(seen, [waiting("w", small("A100"))], now=NOW, policy=MOVING).rooms == ()


def test_parts_of_gpus_move_as_the_parts_they_are():
    one, other = node("n", ("A100-80GB",)), node("o", ("A100-80GB",))
    seen = world(
        one, other, holds=[moved("a", "n", part("n-0", 300, gib=20)), moved("b", "o", mig("o-0", "1g.10gb", 0))]
    )
    assert place(seen, [waiting("w", small("A100"))], now=NOW, policy=MOVING).rooms == ()
    seen.release("b-0-1-0")
    seen.hold(moved("b", "o", part("o-0", 200, gib=20), started=900.0))
    [room] = place(seen, [waiting("w", small("A100"))], now=NOW, policy=MOVING).rooms
    [move] = room.moves
    assert (move.instance_id, move.place.node_id, move.place.slices[0].milli) == ("b-0-1-0", "n", 200)


def test_moves_under_way_keep_both_rooms_until_all_are_there():
    seen = world(ONE, TWO, holds=[moved("a", "n", 0), moved("b", "o", 0, 1, started=900.0)])
    queue = [waiting("w", small("4"), at=0), waiting("late", small("3"), at=1)]
    first = place(seen, queue, now=NOW, policy=MOVING)
    assert [each.waiting.name for each in first.rooms] == ["w"]
    again = place(seen, queue, now=NOW, policy=MOVING, under_way=first.rooms)
    assert (again.decisions, again.rooms) == ((), ())
    seen.release("b-0-1-0")
    mover = replace(waiting("b", small("2"), at=0), key=("b", 0, 2))
    done = place(seen, [*queue, mover], now=NOW, policy=MOVING, under_way=first.rooms)
    assert [(each.waiting.name, each.places[0].node_id) for each in done] == [("w", "o"), ("b", "n")]


@few
@given(worlds(), asks, st.data())
def test_all_that_moves_fits_where_it_goes_beside_who_it_moves_for(seen, what, data):
    for each in list(seen.holds.values()):
        seen.release(each.instance_id)
        seen.hold(replace(each, migratable=data.draw(st.booleans()), started_at=0.0))
    before = seen.copy()
    room = make_room(seen, waiting("w", what), what, attempts(seen.holds.values()), most_moves=3, now=NOW)
    assert seen == before
    if room is None or choose(seen, what) is not None:
        return
    gone = [seen.holds[move.instance_id] for move in room.moves]
    assert all(each.migratable for each in gone)
    for each in gone:
        seen.release(each.instance_id)
    for place_ in room.places:
        seen.hold(replace(gone[0], instance_id="w", node_id=place_.node_id, slices=place_.slices))
    for each, move in zip(gone, room.moves, strict=True):
        seen.hold(replace(each, node_id=move.place.node_id, slices=move.place.slices))  # raises OverHeld


def test_what_moves_for_one_is_not_moved_again_for_the_next():
    seen = world(ONE, TWO, holds=[moved("a", "n", 0, 1), hold("b", "o", 0, 1)])
    queue = [waiting("v", small("3")), waiting("w", small("3"), at=1.0)]
    [room] = place(seen, queue, now=NOW, policy=MOVING).rooms
    assert (room.waiting.name, [move.instance_id for move in room.moves]) == ("v", ["a-0-1-0"])
