"""Whether an ask fits a node, what is said where it does not, and which of the nodes that would do is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.node import DeviceHealth, NodeState
from cumulo.domain.quantities import GIB
from cumulo.placement.explain import reasons
from cumulo.placement.fit import admitted_kinds, choose, gpu_counts
from cumulo.placement.refuse import Constraint, refusal
from tests.placement.worlds import ask, asks, device, few, hold, node, nodes, world, worlds

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
    assert len({len(spot.device_uuids) for spot in places}) == 1
    kinds = admitted_kinds(asked.gpu, seen) if asked.gpu else None
    for spot in places:
        use = seen.nodes[spot.node_id]
        assert use.node.state is NodeState.READY
        assert spot.cpus_milli <= use.cpus_free
        assert spot.memory_bytes <= use.memory_free
        chosen = [each for each in use.node.devices if each.uuid in spot.device_uuids]
        assert len(chosen) == len(spot.device_uuids)
        assert not {each.uuid for each in chosen} & set(use.devices)
        for each in chosen:
            assert each.health in (DeviceHealth.OK, DeviceHealth.DEGRADED)
            assert not each.foreign
            assert kinds is None or each.model in kinds
            assert asked.gpu is not None
            assert asked.gpu.admits_memory(each.memory_bytes)
        if asked.gpu:
            assert asked.gpu.count_min <= len(chosen) <= asked.gpu.count_max
        else:
            assert not chosen


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
    devices = tuple(device(there.name, each.index, each.model) for each in there.devices)
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
    renamed = seen.copy()
    renamed.nodes = {}
    for node_id, use in seen.copy().nodes.items():
        use.id = names[node_id]
        renamed.nodes[use.id] = use
    assert left_over(renamed, choose(renamed, asked)) == left_over(seen, choose(seen, asked))


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
        taken = len(chosen[0].device_uuids)
        more = [count for count in counts if count > taken]
        assert all(refusal(use, asked, kinds, count) for use in seen.nodes.values() for count in more)
