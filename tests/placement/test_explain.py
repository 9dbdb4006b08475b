"""When a run is expected to start, and the smallest change that would start it now."""

import pytest
from hypothesis import given

from cumulo.catalog.kinds import resolve
from cumulo.domain.ask import Ask, parse_gpu_ask
from cumulo.domain.quantities import parse_cpus, parse_memory
from cumulo.placement.explain import expect, suggest
from cumulo.placement.fit import choose
from cumulo.placement.order import hold_places
from cumulo.placement.world import World, in_order
from tests.placement.worlds import ask, asks, few, hold, node, noting, queues, waiting, world, worlds

FOUR = node("n", ("T4",) * 4)
ALL = (0, 1, 2, 3)


def test_it_starts_when_what_runs_has_ended():
    target = waiting("me", ask("T4:4"))
    seen = world(FOUR, holds=[hold("a", "n", 0, 1, until=100.0), hold("b", "n", 2, until=50.0)])
    told = expect(seen, [target], target, 10.0)
    assert (told.at, told.text) == (100.0, "when what runs now has ended, at the latest")


def test_it_starts_now_when_it_fits():
    target = waiting("me", ask("T4"))
    assert expect(world(FOUR), [target], target, 10.0) == expect(world(FOUR), [target], target, 10.0)
    assert (expect(world(FOUR), [target], target, 10.0).at, expect(world(FOUR), [target], target, 10.0).text) == (
        10.0,
        "now",
    )


def test_who_waits_before_it_counts():
    first = waiting("first", ask("T4:4"), at=1, duration=30.0)
    target = waiting("me", ask("T4:4"), at=2)
    seen = world(FOUR, holds=[hold("a", "n", *ALL, until=100.0)])
    assert expect(seen, [first, target], target, 10.0).at == 130.0


def test_nobody_can_tell_where_no_end_was_declared():
    target = waiting("me", ask("T4:4"))
    seen = world(FOUR, holds=[hold("endless", "n", 0)])
    told = expect(seen, [target], target, 10.0)
    assert (told.at, told.text) == (None, "can't tell: endless declared no max_duration")


def test_many_without_an_end_are_counted():
    eight = node("n", ("T4",) * 8)
    seen = world(eight, holds=[hold(f"h{n}", "n", n) for n in range(8)])
    target = waiting("me", ask("T4"))
    assert expect(seen, [target], target, 0.0).text == (
        "can't tell: h0, h1, h2, h3, h4 and 3 more declared no max_duration"
    )


def test_never_is_said():
    target = waiting("me", ask("A100"))
    assert expect(world(FOUR), [target], target, 0.0).text == "never on the nodes that are there now"


def test_no_node_ready_is_said():
    from cumulo.domain.node import NodeState

    target = waiting("me", ask("T4"))
    seen = world(node("n", ("T4",), state=NodeState.DOWN))
    assert expect(seen, [target], target, 0.0).text == "can't tell: no node that could take it is ready"


def test_a_long_queue_ends_in_a_word_and_not_in_a_long_wait():
    seen = world(node("n", ("T4",), cpus=5000, gib=9999), holds=[hold("a", "n", 0, cpus=0.001, gib=0.001, until=1.0)])
    queue = [waiting(f"w{n:04}", ask("T4", cpus=0.001, gib=0.001), at=n, duration=1.0 + n / 1e6) for n in range(1500)]
    assert expect(seen, queue, queue[-1], 0.0).text == "can't tell: too much is ahead of it"


@few
@given(worlds(most=3), queues(most=6))
def test_the_expectation_is_what_a_plain_simulation_gives(seen, queue):
    for target in queue:
        assert expect(seen, queue, target, 0.0).at == simulate(seen, queue, target)


def simulate(seen, queue, target):
    """Plays time forward on worlds built afresh at every moment at which something may end."""
    holds = dict(seen.holds)
    left = in_order(queue)
    at = 0.0
    while True:
        now = World()
        for node_id, use in seen.nodes.items():
            now.see_node(node_id, use.node)
        for each in holds.values():
            now.hold(each)
        for each in list(left):
            places = choose(now, each.ask)
            if places is None:
                continue
            if each == target:
                return at
            hold_places(now, each, places, None if each.duration_s is None else at + each.duration_s)
            left.remove(each)
        holds = dict(now.holds)
        ends = [each.until for each in holds.values() if each.until is not None]
        if not ends:
            return None
        at = max(at, min(ends))
        holds = {name: each for name, each in holds.items() if each.until is None or each.until > at}


# ---- suggestions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "text", "change"),
    [
        (ask("T4:4"), "ask for 3 GPUs instead of 4", {"accelerators": "T4:3"}),
        (ask("T4:2", nodes=3), "ask for 1 node", {"num_nodes": 1}),
        (ask("A100:2"), "ask for T4:2 instead of A100:2", {"accelerators": "T4:2"}),
        (ask("A100:8"), "ask for T4:3 instead of A100:8", {"accelerators": "T4:3"}),
        (ask(cpus=64), "ask for 63 CPUs", {"cpus": "63"}),
        (ask(gib=512), "ask for 511GB of memory", {"memory": "511GB"}),
        (ask("T4", cpus=64), "ask for 63 CPUs", {"cpus": "63"}),
    ],
)
def test_the_smallest_change(asked, text, change):
    seen = world(node("n", ("T4",) * 4), holds=[hold("a", "n", 0)])
    found = suggest(seen, asked)
    assert found is not None
    assert (found.text, found.change) == (text, change)


def test_the_change_is_for_the_node_that_has_the_gpu():
    seen = world(
        node("gpu", ("T4",), cpus=16), node("cpu", cpus=64), holds=[hold("a", "gpu", cpus=4), hold("b", "cpu", cpus=8)]
    )
    found = suggest(seen, ask("T4", cpus=60))
    assert found is not None
    assert found.text == "ask for 12 CPUs"


def test_where_nothing_helps_nothing_is_suggested():
    seen = world(node("n", ("T4",)), holds=[hold("a", "n", 0, cpus=64)])
    assert suggest(seen, ask("T4")) is None


def test_an_absurd_ask_is_not_tried_number_by_number(monkeypatch):
    tried: list[Ask] = []
    monkeypatch.setattr("cumulo.placement.explain.choose", noting(tried))
    suggest(world(FOUR, holds=[hold("a", "n", *ALL)]), ask("A100:999", nodes=100_000))
    assert len(tried) < 20


@few
@given(worlds(), asks)
def test_a_suggestion_applied_really_fits(seen, asked):
    found = suggest(seen, asked)
    if found is None:
        return
    [(key, value)] = found.change.items()
    text = str(value)
    applied = {
        "cpus": lambda: found.ask.cpus_milli == parse_cpus(text),
        "memory": lambda: found.ask.memory_bytes == parse_memory(text),
        "num_nodes": lambda: found.ask.nodes == int(text),
        "accelerators": lambda: found.ask.gpu == parse_gpu_ask(text),
    }
    assert applied[key](), "what is told is what was tried"
    assert choose(seen, found.ask) is not None


def test_families_are_admitted_by_name():
    assert "A100-80GB" in resolve("A100")
