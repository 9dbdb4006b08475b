"""Where MIG instances lie, checked against the published rules read anew from the data: no table of ours is trusted."""

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cumulo.catalog.kinds
from cumulo.catalog.kinds import all_kinds
from cumulo.catalog.mig import MigLayout, mig_layout
from cumulo.placement.mig import IllegalLayout, MigDevice, MigTable, SeenMix, choose_device, layout_table

GPUS = {
    gpu["model"]: gpu
    for gpu in json.loads((cumulo.catalog.kinds.DATA / "mig_profiles.json").read_text("utf-8"))["gpus"]
}
MODEL_OF = {kind.name: kind.mig_layout for kind in all_kinds() if kind.mig_layout}
# One kind of each grid; all others have the same placements as one of these.
GRIDS = ("A30", "A100-40GB", "H100-80GB", "RTXPRO6000")


def layout_of(kind: str) -> MigLayout:
    layout = mig_layout(kind)
    assert layout is not None
    return layout


def table_of(kind: str) -> MigTable:
    return layout_table(layout_of(kind))


def objections(gpu: dict[str, Any], instances: list[tuple[str, int]]) -> list[str]:
    """What the rules of the data have against these (profile, start) on one GPU."""
    profiles = {profile["name"]: profile for profile in gpu["profiles"]}
    found = []
    spans = []
    for name, start in instances:
        listed = {place["start"]: place["size"] for place in profiles[name]["placements"]}
        if start not in listed:
            found.append(f"{name} may not start at {start}")
        spans.append((start, start + listed.get(start, 0)))
    if any(one[1] > other[0] for one, other in pairwise(sorted(spans))):
        found.append("overlap")
    if sum(profiles[name]["compute_slices"] for name, _ in instances) > gpu["compute_slices"]:
        found.append("too many compute slices")
    for name, count in Counter(name for name, _ in instances).items():
        if count > profiles[name]["max_instances"] or (count > 1 and "+me" in name):
            found.append(f"{count} of {name}")
    for engine, total in gpu["engine_totals"].items():
        if sum(profiles[name][engine] for name, _ in instances) > total:
            found.append(f"too many {engine}")
    return found


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(MODEL_OF)),
    gpus=st.integers(1, 3),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 10)), max_size=40),
)
def test_whatever_comes_and_goes_the_layouts_are_legal_and_a_no_is_true(kind, gpus, steps):
    gpu, layout = GPUS[MODEL_OF[kind]], layout_of(kind)
    lying: list[list[tuple[str, int]]] = [[] for _ in range(gpus)]
    for arrives, number in steps:
        if not arrives:
            there = lying[number % gpus]
            if there:
                del there[number % len(there)]
            continue
        profile = gpu["profiles"][number % len(gpu["profiles"])]
        place = choose_device([MigDevice(layout, there) for there in lying], profile["name"])
        if place is not None:
            device, start = place
            lying[device].append((profile["name"], start))
            assert objections(gpu, lying[device]) == []
        else:
            for there in lying:
                for start in range(gpu["grid_size"]):
                    assert objections(gpu, [*there, (profile["name"], start)])


@pytest.mark.parametrize("kind", GRIDS)
def test_the_states_are_all_legal_layouts_and_no_other(kind: str) -> None:
    gpu, table = GPUS[MODEL_OF[kind]], table_of(kind)
    everywhere = [
        (profile["name"], place["start"]) for profile in gpu["profiles"] for place in profile["placements"]
    ]  # every instance that there could be
    for state in range(0, len(table.states.layouts), 7):
        there = list(table.instances(state))
        assert objections(gpu, there) == []
        free = {(name, start) for name, start in everywhere if not objections(gpu, [*there, (name, start)])}
        assert free == {(name, start) for at, name in enumerate(table.names) for start in table.starts(state, at)}


@pytest.mark.parametrize("kind", sorted(MODEL_OF))
def test_the_maximal_combinations_are_the_published_ones(kind: str) -> None:
    gpu, table = GPUS[MODEL_OF[kind]], table_of(kind)
    same_as = GPUS[gpu.get("maximal_combinations_same_as", gpu["model"])]
    base = [name for name in table.names if "+" not in name and not name.endswith("-me")]
    published_base = [p["name"] for p in same_as["profiles"] if "+" not in p["name"] and not p["name"].endswith("-me")]
    called = dict(zip(base, published_base, strict=True))  # by position: names differ with the memory
    found: Counter[tuple[str, ...]] = Counter()
    for state in range(len(table.states.layouts)):
        there = [name for name, _ in table.instances(state)]
        if set(there) <= set(base) and not any(table.starts(state, table.profile(name)) for name in base):
            found[tuple(sorted(called[name] for name in there))] += 1
    published = same_as["maximal_combinations_base_profiles"]
    assert found == {tuple(sorted(each["profiles"])): each["layouts"] for each in published}


def test_an_a100_without_the_double_memory_profile_has_nvidias_19_maximal_layouts() -> None:
    table = table_of("A100-40GB")
    base = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
    maximal = [
        state
        for state in range(len(table.states.layouts))
        if {name for name, _ in table.instances(state)} <= base
        and not any(table.starts(state, table.profile(name)) for name in base)
    ]
    assert len(maximal) == 19


@pytest.mark.parametrize("kind", GRIDS)
def test_what_is_placed_and_released_leaves_the_state_it_was(kind: str) -> None:
    table = table_of(kind)
    states, profiles, starts = np.nonzero(table.states.after >= 0)
    after = table.states.after[states, profiles, starts]
    assert (table.states.before[after, profiles, starts] == states).all()
    assert (table.states.before >= 0).sum() == len(states)
    assert all(table.state(table.instances(state)) == state for state in range(len(table.states.layouts)))


@pytest.mark.parametrize("kind", GRIDS)
def test_the_best_start_is_a_legal_one_of_least_loss(kind: str) -> None:
    table = table_of(kind)
    fits = (table.states.after >= 0).any(axis=2)
    assert (np.isfinite(table.loss) == fits).all()
    assert ((table.best_start >= 0) == fits).all()
    for state, profile in np.argwhere(fits)[::13]:
        lost = {
            start: table.worth[state] - table.worth[table.state_after(int(state), int(profile), start)]
            for start in table.starts(int(state), int(profile))
        }
        assert lost[int(table.best_start[state, profile])] == pytest.approx(min(lost.values()), abs=1e-5)


@pytest.mark.parametrize("kind", GRIDS)
def test_room_is_worth_something(kind: str) -> None:
    loss = table_of(kind).loss
    assert loss[np.isfinite(loss)].min() > 0


def test_small_instances_leave_the_half_where_4g_lies() -> None:
    table = layout_table(layout_of("A100-80GB"), market=1)
    state = table.empty
    for name in ("1g.10gb", "2g.20gb"):
        profile = table.profile(name)
        state = table.state_after(state, profile, int(table.best_start[state, profile]))
    assert table.instances(state) == (("1g.10gb", 6), ("2g.20gb", 4))
    assert table.starts(state, table.profile("4g.40gb")) == (0,)


def test_3g_lies_right_of_where_4g_could() -> None:
    table = table_of("H100-80GB")
    assert table.best_start[table.empty, table.profile("3g.40gb")] == 4


def test_one_media_engine_profile_bars_the_other() -> None:
    """Of an A30, 1g.6gb+me and 2g.12gb+me both take the one JPEG engine."""
    table = table_of("A30")
    state = table.state([("1g.6gb+me", 0)])
    assert table.starts(state, table.profile("2g.12gb+me")) == ()
    assert table.starts(state, table.profile("2g.12gb")) == (2,)


def test_all_media_engines_leave_room_for_instances_without_alone() -> None:
    table = table_of("RTXPRO6000")
    state = table.state([("1g.24gb+me.all", 0)])
    assert table.starts(state, table.profile("1g.24gb")) == ()
    assert table.starts(state, table.profile("1g.24gb-me")) == (3, 6, 9)


def test_a_device_in_use_is_filled_before_an_empty_one_is_opened() -> None:
    layout = layout_of("A100-80GB")
    used = MigDevice(layout, [("3g.40gb", 4)])
    assert choose_device([MigDevice(layout), used], "3g.40gb") == (1, 0)
    assert choose_device([MigDevice(layout), used], "7g.80gb") == (0, 0)
    assert choose_device([used], "7g.80gb") is None


def test_kinds_are_weighed_by_their_price() -> None:
    cheap, dear = (MigDevice(layout_of(kind), price=price) for kind, price in (("A100-80GB", 1.0), ("H100-80GB", 2.0)))
    assert choose_device([dear, cheap], "1g.10gb") == (1, 6)
    assert choose_device([dear, MigDevice(layout_of("A30"))], "1g.10gb") == (0, 6), "an A30 has no such profile"
    assert choose_device([MigDevice(layout_of("A30"))], "1g.10gb") is None


@settings(max_examples=30, deadline=None)
@given(data=st.data(), kind=st.sampled_from(GRIDS), gpus=st.integers(1, 6))
def test_a_choice_among_many_is_a_gather_and_one_more_free_gpu_never_hurts(data, kind, gpus):
    layout, table = layout_of(kind), layout_table(layout_of(kind), market=gpus)
    states = data.draw(st.lists(st.integers(0, len(table.states.layouts) - 1), min_size=gpus, max_size=gpus))
    name = data.draw(st.sampled_from(table.names))
    devices = [MigDevice(layout, table.instances(state)) for state in states]
    losses = table.loss[states, table.profile(name)]
    place = choose_device(devices, name)
    if place is None:
        assert np.isinf(losses).all()
    else:
        assert place == (losses.argmin(), table.best_start[states[place[0]], table.profile(name)])
        assert choose_device([*devices, MigDevice(layout)], name) is not None
        turned = choose_device(devices[::-1], name)
        assert turned is not None
        assert losses[gpus - 1 - turned[0]] == losses.min(), "another order, another of equals"


def test_what_cannot_be_is_refused_by_name() -> None:
    table = table_of("A100-80GB")
    with pytest.raises(IllegalLayout, match=r"4g\.40gb at 0, 3g\.40gb at 0|3g\.40gb at 0, 4g\.40gb at 0"):
        table.state([("4g.40gb", 0), ("3g.40gb", 0)])
    with pytest.raises(IllegalLayout, match=r"no MIG profile '9g\.1gb' here, only 1g\.10gb, "):
        table.profile("9g.1gb")
    with pytest.raises(IllegalLayout, match=r"a 4g\.40gb can't be placed at 4 where lie: none"):
        table.state_after(table.empty, table.profile("4g.40gb"), 4)
    with pytest.raises(IllegalLayout, match=r"a 2g\.20gb can't be released from 2 where lie: 2g\.20gb at 0"):
        table.release(table.state([("2g.20gb", 0)]), table.profile("2g.20gb"), 2)
    with pytest.raises(IllegalLayout, match="can't be placed at 8"):
        table.state_after(table.empty, table.profile("1g.10gb"), 8)


@pytest.mark.parametrize("mix", [{}, {"1g.10gb": 0.0}, {"1g.10gb": -1.0, "7g.80gb": 2.0}, {"of another GPU": 1.0}])
def test_a_mix_of_nothing_is_refused(mix: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="needs a share above 0"):
        layout_table(layout_of("A100-80GB"), mix=mix)


def test_kinds_that_differ_in_names_alone_share_their_states_and_worth() -> None:
    one, other = table_of("H100-80GB"), table_of("H200-141GB")
    assert one.states is other.states
    assert one.worth is other.worth
    assert one.names != other.names


def test_the_mix_moves_the_choice() -> None:
    """Where nobody asks for 4g or 7g, what they need is worth nothing."""
    layout = layout_of("A100-80GB")
    small = layout_table(layout, mix={"1g.10gb": 1.0})
    assert small.loss[0, small.profile("1g.10gb")] < table_of("A100-80GB").loss[0, small.profile("1g.10gb")]


def test_the_seen_mix_is_reviewed_now_and_then_and_forgets() -> None:
    seen, layout = SeenMix(), layout_of("A30")
    assert set(seen.mix(layout).values()) == {1.0}
    reviews = [ask for ask in range(1, 5000) if seen.see("1g.6gb")]
    assert reviews == [32, 128, 512, 2048, 3072, 4096]
    assert seen.mix(layout)["1g.6gb"] == 2049.0
    for _ in range(4096):
        seen.see("4g.24gb")
    mix = seen.mix(layout)
    assert mix["4g.24gb"] > 7 * mix["1g.6gb"]
    assert mix["2g.12gb"] == 1.0
