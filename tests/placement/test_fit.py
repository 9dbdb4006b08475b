"""Whether an ask fits a node, what is said where it does not, and which of the nodes that would do is taken."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.node import DeviceHealth, NodeState
from cumulo.domain.quantities import GIB
from cumulo.domain.sharing import Isolation
from cumulo.placement.explain import reasons
from cumulo.placement.fit import admitted_kinds, choose, gpu_counts
from cumulo.placement.index import index_of
from cumulo.placement.order import hold_places
from cumulo.placement.refuse import Constraint, refusal
from cumulo.placement.world import World
from tests.placement.worlds import (
    E,
    M,
    P,
    T,
    ask,
    asks,
    chosen,
    device,
    few,
    hold,
    mig,
    node,
    nodes,
    part,
    waiting,
    world,
    worlds,
)

BUSY = ("A100-80GB",) * 8


@pytest.mark.parametrize(
    ("there", "held", "asked", "constraint", "text"),
    [
        (node("n", ("T4",)), (), ask("A100:8"), Constraint.GPU_KIND, "has 1 T4, A100:8 asked"),
        (node("n"), (), ask("A100"), Constraint.GPU_KIND, "has no GPU, A100:1 asked"),
        (node("n", ("T4",)), (), ask("24GB..:1"), Constraint.GPU_KIND, "has 1 T4, 24GB..:1 asked"),
        (
            node("n", ("A100-80GB",) * 4),
            (),
            ask("A100:8"),
            Constraint.GPU_TOTAL,
            "has 4 A100-80GB, 8 asked on one node",
        ),
        (
            node("n", ("A100-80GB", "H100-80GB")),
            (),
            ask("A100,H100:2"),
            Constraint.GPU_TOTAL,
            "has 1 A100-80GB + 1 H100-80GB, 2 asked on one node",
        ),
        (node("n", cpus=8), (), ask(cpus=16), Constraint.CPU_TOTAL, "has 8 CPUs, 16 asked"),
        (node("n", gib=64), (), ask(gib=65), Constraint.MEMORY_TOTAL, "has 64GB of memory, 65GB asked"),
        (
            node("n", BUSY, state=NodeState.UNREACHABLE, state_reason="no answer"),
            (),
            ask("A100:8"),
            Constraint.NODE_STATE,
            "unreachable: no answer",
        ),
        (node("n", state=NodeState.DRAINING), (), ask(cpus=1), Constraint.NODE_STATE, "draining"),
        (
            node("n", (device("n", 0, health=DeviceHealth.QUARANTINED), device("n", 1, foreign="ada's python"))),
            (),
            ask("A100"),
            Constraint.GPU_HEALTH,
            "2 of 2 A100-80GB can't be used (GPU 0 quarantined; GPU 1 used by ada's python), 1 asked",
        ),
        (
            node("n", BUSY),
            (hold("a", "n", 0, 1, 2, 3, 4, 5),),
            ask("A100:8"),
            Constraint.GPU_HELD,
            "6 of 8 A100-80GB held, 2 free, 8 asked",
        ),
        (node("n", cpus=8), (hold("a", "n", cpus=6),), ask(cpus=4), Constraint.CPU_HELD, "2 of 8 CPUs free, 4 asked"),
        (
            node("n", gib=64),
            (hold("a", "n", gib=60),),
            ask(gib=8),
            Constraint.MEMORY_HELD,
            "4GB of 64GB of memory free, 8GB asked",
        ),
    ],
    ids=[
        "other kind",
        "no GPU",
        "too little GPU memory",
        "too few",
        "too few of one kind",
        "too few CPUs",
        "too little memory",
        "unreachable",
        "draining",
        "sick and foreign",
        "held",
        "CPUs held",
        "memory held",
    ],
)
def test_every_constraint_says_what_binds(there, held, asked, constraint, text):
    seen = world(there, holds=held)
    why = reasons(seen, asked)
    assert [(r.constraint, r.text) for r in why.refusals] == [(constraint, text)]
    assert why.binding == constraint
    assert why.summary() == text
    assert why.ever is not constraint.lasting
    assert choose(seen, asked) is None


H100, T4 = "H100-80GB", "T4"
ALL_1G = tuple(mig("n-0", "1g.10gb", start) for start in range(7))


@pytest.mark.parametrize(
    ("there", "held", "asked", "constraint", "text"),
    [
        (node("n", (T4,)), (), ask("H100:0.5"), Constraint.GPU_KIND, "has 1 T4, H100:0.5 asked"),
        (
            node("n", (T4,)),
            (),
            ask("T4", slice_memory=16 * GIB),
            Constraint.GPU_KIND,
            "has 1 T4, 16GB of T4 asked",
        ),
        (
            node("n", (T4,)),
            (),
            ask("T4:0.5", hard=True),
            Constraint.ISOLATION,
            "a fraction of a GPU is shared with others, hard isolation asked",
        ),
        (
            node("n", (T4, T4)),
            (),
            ask("mig-1g.10gb"),
            Constraint.GPU_SHARING,
            "T4 has no MIG, mig-1g.10gb:1 asked",
        ),
        (
            node("n", (H100,)),
            (),
            ask("H100:mig-9g.1gb"),
            Constraint.GPU_SHARING,
            "no MIG profile 9g.1gb on H100-80GB; there are "
            "1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb",
        ),
        (
            node("n", (device("n", 0, H100, modes=(E, T)),)),
            (),
            ask("H100:mig-1g.10gb"),
            Constraint.GPU_SHARING,
            "1 H100-80GB can only be held as exclusive or timeslice here, H100:mig-1g.10gb:1 asked",
        ),
        (
            node("n", (device("n", 0, H100, modes=(E, T)),)),
            (),
            ask("H100:0.5", sharing=P),
            Constraint.GPU_SHARING,
            "1 H100-80GB can only be held as exclusive or timeslice here, H100:0.5 by mps asked",
        ),
        (
            node("n", (H100,)),
            (),
            ask("mig-1g.20gb:5"),
            Constraint.GPU_TOTAL,
            "takes 4 1g.20gb at most, 5 asked on one node",
        ),
        (
            node("n", (H100,) * 2),
            (hold("a", "n", part("n-0", 750)), hold("b", "n", part("n-1", 900))),
            ask("0.5"),
            Constraint.GPU_HELD,
            "250 of 1000 milli free on the emptiest of 2 H100-80GB, 500 asked",
        ),
        (
            node("n", (H100,)),
            (hold("a", "n", part("n-0", 100, gib=60)),),
            ask("0.5"),
            Constraint.GPU_HELD,
            "250 of 1000 milli free on H100-80GB, 500 asked",
        ),
        (
            node("n", (H100,) * 3),
            (hold("a", "n", 0, mig("n-1", "3g.40gb", 0, 500)), hold("b", "n", 2)),
            ask("H100:0.25"),
            Constraint.GPU_HELD,
            "3 of 3 H100-80GB held (2 exclusive, 1 mig), 250 milli asked",
        ),
        (
            node("n", (H100,) * 2),
            (hold("a", "n", *ALL_1G), hold("b", "n", 1)),
            ask("mig-1g.10gb"),
            Constraint.GPU_HELD,
            "no 1g.10gb slice free: 2 of 2 H100-80GB held (1 exclusive, 1 mig), 1 asked",
        ),
        (
            node("n", (H100,)),
            (hold("a", "n", mig("n-0", "3g.40gb", 4, 500)),),
            ask("mig-1g.20gb:3"),
            Constraint.GPU_HELD,
            "2 1g.20gb slices free: 1 of 1 H100-80GB held (1 mig), 3 asked",
        ),
        (
            node("n", (H100,) * 2),
            (hold("a", "n", part("n-0", 100)),),
            ask("2"),
            Constraint.GPU_HELD,
            "1 of 2 H100-80GB held (1 mps), 1 free, 2 asked",
        ),
    ],
)
def test_every_way_of_sharing_says_what_binds(there, held, asked, constraint, text):
    test_every_constraint_says_what_binds(there, held, asked, constraint, text)


def sliced(seen, asked):
    return [each for spot in choose(seen, asked) or () for each in spot.slices]


def test_fractions_fill_the_fullest_device_first():
    seen = world(node("n", (H100,) * 2), holds=[hold("a", "n", part("n-1", 500)), hold("b", "n", part("n-0", 250))])
    assert [(one.device_uuid, one.milli, one.memory_bytes, one.mode) for one in sliced(seen, ask("0.5"))] == [
        ("n-1", 500, 40 * GIB, P)
    ]
    assert [one.device_uuid for one in sliced(seen, ask("0.6"))] == ["n-0"]


def test_a_fraction_opens_no_empty_device_while_a_shared_one_has_room():
    seen = world(node("a", (H100,)), node("b", (H100,) * 8), holds=[hold("x", "b", part("b-3", 100))])
    assert [one.device_uuid for one in sliced(seen, ask("0.5"))] == ["b-3"]


def test_a_fraction_by_memory_is_as_much_of_the_device_as_its_memory():
    (one,) = sliced(world(node("n", (T4,))), ask("T4", slice_memory=5 * GIB))
    assert (one.milli, one.memory_bytes) == (334, 5 * GIB)


def test_a_fraction_is_shared_as_asked_else_in_the_best_way_there_is():
    seen = world(node("n", (H100,)), holds=[hold("a", "n", part("n-0", 100, mode=T))])
    assert [one.mode for one in sliced(seen, ask("0.5", sharing=T))] == [T]
    assert sliced(seen, ask("0.5")) == [], "mps is what it gets, and the device is in another mode"
    only_turns = world(node("n", (device("n", 0, H100, modes=(E, T)),)))
    assert [one.mode for one in sliced(only_turns, ask("0.5"))] == [T]


def test_mig_instances_lie_where_they_leave_the_most_room():
    seen = world(node("n", (H100,)))
    (small,) = sliced(seen, ask("mig-1g.10gb"))
    seen.hold(hold("a", "n", small))
    assert small.start >= 4
    assert [one.start for one in sliced(seen, ask("mig-4g.40gb"))] == [0]
    assert (small.milli, small.memory_bytes) == (125, int(9.75 * GIB))


def test_mig_instances_of_one_ask_may_lie_on_several_devices():
    seen = world(node("n", (H100,) * 2), holds=[hold("a", "n", mig("n-0", "4g.40gb", 0, 500))])
    assert {(one.device_uuid, one.start) for one in sliced(seen, ask("mig-3g.40gb:2"))} == {("n-0", 4), ("n-1", 4)}
    assert len(sliced(seen, ask("mig-1g.10gb:1.."))) == 10


def test_a_device_that_may_not_change_its_mode_stays_in_its_first():
    fixed = world(may_change_mode=False)
    fixed.see_node("n", node("n", (device("n", 0, H100, modes=(M, E, P)),)))
    assert sliced(fixed, ask("H100")) == []
    assert len(sliced(fixed, ask("mig-3g.40gb"))) == 1
    assert reasons(fixed, ask("H100")).summary() == "1 H100-80GB can only be held as mig here, H100:1 asked"


def test_a_part_of_a_gpu_brings_its_part_of_the_node():
    seen = world(node("n", (H100,) * 8, cpus=64, gib=512))
    assert [(spot.cpus_milli, spot.memory_bytes) for spot in chosen(seen, ask("0.5"))] == [(4000, 32 * GIB)]
    assert [(spot.cpus_milli, spot.memory_bytes) for spot in chosen(seen, ask("mig-1g.10gb:2"))] == [(2000, 16 * GIB)]
    assert [(spot.cpus_milli, spot.memory_bytes) for spot in chosen(seen, ask("0.001"))] == [(100, GIB // 4)]


def test_a_gang_needs_enough_nodes():
    seen = world(node("a", BUSY), node("b", BUSY), holds=[hold("x", "b", 0)])
    why = reasons(seen, ask("A100:8", nodes=2))
    assert why.binding is Constraint.NODES
    assert why.ever
    assert why.summary() == (
        "1 of 2 nodes could take it, 2 asked; 1 of 2 nodes: 1 of 8 A100-80GB held, 7 free, 8 asked"
    )


def test_a_gang_gets_one_kind_and_is_told_so():
    seen = world(node("a", ("A100-80GB",) * 2), node("h", ("H100-80GB",) * 2))
    why = reasons(seen, ask("A100,H100:2", nodes=2))
    assert choose(seen, ask("A100,H100:2", nodes=2)) is None
    assert why.binding is Constraint.NODES
    assert not why.ever
    assert why.summary() == "2 of 2 nodes could take it, but no 2 with GPUs of one kind"


def test_without_nodes_there_is_one_sentence():
    why = reasons(world(), ask())
    assert (why.summary(), why.binding, why.ever) == ("this cloud has no nodes", None, False)


def placed(seen, asked):
    return [(spot.node_id, spot.device_uuids, spot.cpus_milli, spot.memory_bytes) for spot in choose(seen, asked) or ()]


def test_what_was_not_asked_for_is_the_share_of_the_gpus():
    seen = world(node("n", BUSY, cpus=64, gib=512))
    assert placed(seen, ask("A100:2")) == [("n", ("n-0", "n-1"), 16_000, 128 * GIB)]
    assert placed(seen, ask("A100:2", cpus=3, gib=4)) == [("n", ("n-0", "n-1"), 3000, 4 * GIB)]
    assert placed(seen, ask()) == [("n", (), 1000, 2 * GIB)]


def test_a_share_nobody_asked_for_is_not_waited_for():
    seen = world(node("n", BUSY, cpus=64, gib=512), holds=[hold("greedy", "n", 0, cpus=60, gib=500)])
    assert placed(seen, ask("A100:4")) == [("n", ("n-1", "n-2", "n-3", "n-4"), 4000, 12 * GIB)]


def test_a_range_takes_as_many_as_fit():
    seen = world(node("n", BUSY), holds=[hold("a", "n", 0, 1, 2)])
    assert [len(spot[1]) for spot in placed(seen, ask("A100:2..6"))] == [5]
    assert [len(spot[1]) for spot in placed(seen, ask("A100:2.."))] == [5]
    assert placed(seen, ask("A100:6..")) == []


def test_kinds_are_not_mixed_on_a_node():
    seen = world(node("n", ("A100-80GB", "H100-80GB", "H100-80GB", "T4")))
    assert placed(seen, ask("2"))[0][1] == ("n-1", "n-2")
    assert placed(seen, ask("3")) == []


def test_between_kinds_on_one_node_the_order_of_the_nodes_does_not_decide():
    a, b = node("a", ("A100-80GB", "H100-80GB")), node("b", ("H100-80GB",) * 4)
    assert choose(world(a, b), ask("1")) == choose(world(b, a), ask("1"))


def test_whole_nodes_stay_free_for_those_who_need_them():
    seen = world(node("a", BUSY), node("b", BUSY), node("cpu"), holds=[hold("x", "b", 0)])
    assert placed(seen, ask("A100:2"))[0][0] == "b"
    assert placed(seen, ask(cpus=1))[0][0] == "cpu"


def test_a_degraded_device_will_do_a_sick_or_foreign_one_never():
    seen = world(
        node(
            "n",
            (
                device("n", 0, health=DeviceHealth.QUARANTINED),
                device("n", 1, health=DeviceHealth.DRAINING),
                device("n", 2, foreign="somebody"),
                device("n", 3, health=DeviceHealth.DEGRADED),
            ),
        )
    )
    assert placed(seen, ask("1"))[0][1] == ("n-3",)
    assert placed(seen, ask("2")) == []


# ---- for any world ---------------------------------------------------------------------------------------------------


@few
@given(worlds(), asks)
def test_what_is_chosen_is_free_fit_and_of_one_kind(seen, asked):
    places = choose(seen, asked)
    if places is None:
        return
    assert len({spot.node_id for spot in places}) == len(places) == asked.nodes, "no node twice"
    assert len({spot.device_model for spot in places}) == 1
    assert len({len(spot.slices) for spot in places}) == 1
    kinds = admitted_kinds(asked.gpu, seen) if asked.gpu else None
    for spot in places:
        use = seen.nodes[spot.node_id]
        assert use.node.state is NodeState.READY
        assert spot.cpus_milli <= use.cpus_free
        assert spot.memory_bytes <= use.memory_free
        chosen = [each for each in use.node.devices if each.uuid in spot.device_uuids]
        assert len(chosen) == len(spot.device_uuids)
        for each in chosen:
            assert each.health in (DeviceHealth.OK, DeviceHealth.DEGRADED)
            assert not each.foreign
            assert kinds is None or each.model in kinds
            assert asked.gpu is not None
            assert asked.gpu.admits_memory(each.memory_bytes)
            assert use.held(each).mode in (None, *(one.mode for one in spot.slices))
        assert all(as_asked(one, asked) for one in spot.slices)
        if asked.gpu:
            assert asked.gpu.count_min <= len(spot.slices) <= asked.gpu.count_max
        else:
            assert not spot.slices
    hold_places(seen, waiting("new", asked), places)  # raises OverHeld where anything is held twice


def as_asked(one, asked):
    """Whether a slice is what an ask says, as isolated as it says."""
    gpu = asked.gpu
    if gpu.mig_profile:
        return one.profile == gpu.mig_profile and one.start is not None
    if gpu.slice_memory:
        return one.memory_bytes == gpu.slice_memory and asked.isolation != Isolation.HARD
    if gpu.milli:
        return one.milli == gpu.milli and one.mode in ((P, T) if gpu.sharing is None else (gpu.sharing,))
    return (one.mode, one.milli) == (E, 1000)


@few
@given(worlds(), asks)
def test_reasons_agree_with_the_choice(seen, asked):
    why = reasons(seen, asked)
    assert (choose(seen, asked) is not None) == (why.binding is None and bool(why.fitting))
    assert len(why.refusals) + len(why.fitting) == len(seen.nodes)
    assert all(r.text for r in why.refusals)
    if choose(seen, asked) is not None:
        assert why.ever


@few
@given(worlds(), asks)
def test_what_could_never_be_taken_is_not_taken_by_empty_healthy_nodes_either(seen, asked):
    emptied = world(*(healthy(use.node) for use in seen.nodes.values()))
    assert (choose(emptied, asked) is not None) == reasons(seen, asked).ever


def healthy(there):
    devices = tuple(device(there.name, each.index, each.model, modes=each.modes) for each in there.devices)
    return node(there.name, devices, cpus=there.cpus_milli // 1000, gib=there.memory_bytes // GIB)


@few
@given(worlds(), asks, st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_became_known_does_not_matter(seen, asked, random):
    shuffled = seen.copy()
    order = list(shuffled.nodes)
    random.shuffle(order)
    shuffled.nodes = {node_id: shuffled.nodes[node_id] for node_id in order}
    assert shuffled == seen
    assert choose(shuffled, asked) == choose(seen, asked)


@few
@given(worlds(), asks, st.permutations(range(5)))
def test_other_names_give_as_good_a_choice(seen, asked, order):
    names = {f"n{number}": f"m{order[number]}" for number in range(5)}
    renamed = World()
    renamed.nodes = {names[node_id]: replace(use, id=names[node_id]) for node_id, use in seen.nodes.items()}
    if asked.gpu and asked.gpu.mig_profile:
        assert left_over(renamed, choose(renamed, asked)) == left_over(seen, choose(seen, asked))
    else:
        assert costs(renamed, asked) == costs(seen, asked)


def costs(seen, asked):
    """What the best place costs those who come next, for each count of GPUs that will do."""
    kinds = admitted_kinds(asked.gpu, seen) if asked.gpu else None
    return [index_of(seen).cost(asked, gpus, kinds) for gpus in gpu_counts(asked, seen)]


def left_over(seen, places):
    """What the choice leaves of its nodes, the node taken first first."""
    return places and [
        (
            len(use.node.devices) - len(use.devices),
            use.memory_free - spot.memory_bytes,
            use.cpus_free - spot.cpus_milli,
            spot.device_model,
            len(spot.device_uuids),
        )
        for spot in places
        for use in [seen.nodes[spot.node_id]]
    ]


@few
@given(worlds(), asks, nodes("extra"))
def test_one_more_node_never_makes_it_worse(seen, asked, extra):
    if choose(seen, asked) is not None:
        seen.see_node("extra", extra)
        assert choose(seen, asked) is not None


@few
@given(worlds(), asks)
def test_counts_are_tried_from_the_most_to_the_least(seen, asked):
    counts = gpu_counts(asked, seen)
    if asked.gpu is None:
        assert counts == [0]
        return
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == asked.gpu.count_min
    kinds = admitted_kinds(asked.gpu, seen)
    chosen = choose(seen, asked)
    if chosen is not None and asked.nodes == 1:
        taken = len(chosen[0].slices)
        more = [count for count in counts if count > taken]
        assert all(refusal(use, asked, kinds, count) for use in seen.nodes.values() for count in more)


def test_whole_devices_lie_on_one_numa_node_where_they_can_and_fill_it():
    def on(*numa):
        made = tuple(replace(device("a", index), numa_node=each) for index, each in enumerate(numa))
        return world(node("a", made))

    assert chosen(on(0, 0, 0, 0, 1, 1, 1, 1), ask("A100:4"))[0].device_uuids == ("a-0", "a-1", "a-2", "a-3")
    assert chosen(on(0, 1, 1, 0, 0), ask("A100:2"))[0].device_uuids == ("a-1", "a-2")
    assert chosen(on(0, 1, 0, 1, 1), ask("A100:1"))[0].device_uuids == ("a-0",)
    assert chosen(on(0, 1, 1, 1, 0), ask("A100:4"))[0].device_uuids == ("a-0", "a-1", "a-2", "a-3")
