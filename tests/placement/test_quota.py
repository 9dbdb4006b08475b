"""Quotas: what a project may not hold does not start, and says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.quantities import GIB
from cumulo.placement.order import hold_places, place
from cumulo.placement.policy import Policy, ProjectRules, Quota
from cumulo.placement.refuse import Constraint
from cumulo.placement.shares import holdings
from tests.placement.worlds import ask, asks, few, hold, node, waiting, world, worlds

EIGHT = node("n", ("A100-80GB",) * 8)
MIXED = node("m", ("A100-80GB",) * 4 + ("T4",) * 4)


def held_to(quota, seen, *queue):
    return place(seen, queue, policy=Policy(projects={"render": ProjectRules(quota=quota)}))


def mine(name, what, **changes):
    return waiting(name, what, project="render", **changes)


def test_a_unit_over_the_quota_waits_and_says_why():
    seen = world(EIGHT, MIXED, holds=[hold("x", "n", *range(8), project="render")])
    made = held_to(Quota(gpus=8), seen, mine("w", ask("4")))
    assert not made.decisions
    assert [(each.constraint, each.text) for each in made.held_back] == [
        (Constraint.QUOTA, "project render holds 8 of its quota of 8 GPUs, 4 asked")
    ]


def test_others_are_not_held_to_it():
    seen = world(EIGHT)
    made = held_to(Quota(gpus=0), seen, mine("w", ask("1")), waiting("other", ask("1")))
    assert [each.waiting.name for each in made] == ["other"]


@pytest.mark.parametrize(
    ("quota", "what", "text"),
    [
        (Quota(kinds={"A100-80GB": 2}), ask("A100:4"), "holds 0 of its quota of 2 A100-80GB, 4 asked"),
        (Quota(cpus_milli=8000), ask(cpus=9, gib=1), "holds 0 of its quota of 8 CPUs, 9 asked"),
        (Quota(memory_bytes=8 * GIB), ask(cpus=1, gib=16), "holds 0 of its quota of 8GB of memory, 16GB asked"),
        (Quota(gpus=4), ask("2", nodes=3), "holds 0 of its quota of 4 GPUs, 6 asked"),
        (Quota(gpus=0), ask("T4:0.5"), "holds 0 of its quota of 0 GPUs, 0.5 asked"),
        (Quota(cpus_milli=8000), ask("8"), "holds 0 of its quota of 8 CPUs, 64 asked"),
    ],
)
def test_each_resource_has_its_sentence(quota, what, text):
    made = held_to(quota, world(EIGHT, MIXED), mine("w", what))
    assert not made.decisions
    assert [each.text for each in made.held_back] == [f"project render {text}"]


def test_a_range_takes_what_the_quota_leaves():
    seen = world(EIGHT, holds=[hold("x", "n", 0, project="render")])
    [made] = held_to(Quota(gpus=4), seen, mine("w", ask("1..8")))
    assert len(made.places[0].slices) == 3


def test_another_kind_that_will_do_is_taken_where_one_is_used_up():
    seen = world(MIXED, holds=[hold("x", "m", 0, 1, project="render")])
    [made] = held_to(Quota(kinds={"A100-80GB": 2}), seen, mine("w", ask("A100,T4:2")))
    assert made.places[0].device_model == "T4"


def test_a_quota_below_nothing_is_refused():
    with pytest.raises(ValueError, match="a quota of -1 for GPUs"):
        Quota(gpus=-1)


quotas = st.builds(
    Quota,
    gpus=st.none() | st.integers(0, 4),
    kinds=st.dictionaries(st.sampled_from(("A100-80GB", "T4", "L4")), st.integers(0, 3), max_size=2),
    cpus_milli=st.none() | st.integers(0, 16).map(lambda cpus: cpus * 1000),
    memory_bytes=st.none() | st.integers(0, 64).map(lambda gib: gib * GIB),
)


@few
@given(worlds(), quotas, st.lists(asks, max_size=6))
def test_no_pass_brings_a_project_over_its_quota(seen, quota, wanted):
    queue = [mine(f"w{n}", each, at=float(n)) for n, each in enumerate(wanted)]
    made = held_to(quota, seen, *queue)
    for decision in made:
        hold_places(seen, decision.waiting, decision.places)
    held = holdings(seen).get("render")
    if held is None:
        return
    assert quota.gpus is None or held.gpus_milli <= quota.gpus * 1000
    assert all(held.kinds.get(kind, 0) <= most * 1000 for kind, most in quota.kinds.items())
    assert quota.cpus_milli is None or held.cpus_milli <= quota.cpus_milli
    assert quota.memory_bytes is None or held.memory_bytes <= quota.memory_bytes
