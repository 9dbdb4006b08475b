"""The smallest change that would start a run now, put to the pass that decides."""

from dataclasses import replace

import pytest
from hypothesis import given

from cumulo.domain.ask import parse_gpu_ask
from cumulo.domain.quantities import parse_cpus, parse_duration, parse_memory
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import Isolation
from cumulo.placement.order import place
from cumulo.placement.policy import Policy, ProjectRules, Quota
from cumulo.placement.suggest import MOST_PASSES, suggest
from tests.placement.worlds import ask, asks, few, hold, mig, node, part, queues, waiting, world, worlds

NOW = 10.0
FOUR = node("n", ("T4",) * 4)
ALL = (0, 1, 2, 3)


def suggested(seen, asked, *queue, now=NOW, **target):
    mine = waiting("me", asked, at=5.0, **target)
    return suggest(seen, [*queue, mine], mine, now=now)


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
    found = suggested(world(FOUR, holds=[hold("a", "n", 0)]), asked)
    assert found is not None
    assert (found.text, found.change) == (text, change)


def test_the_change_is_for_the_node_that_has_the_gpu():
    seen = world(
        node("gpu", ("T4",), cpus=16), node("cpu", cpus=64), holds=[hold("a", "gpu", cpus=4), hold("b", "cpu", cpus=8)]
    )
    found = suggested(seen, ask("T4", cpus=60))
    assert found is not None
    assert found.text == "ask for 12 CPUs"


def test_what_starts_anyway_needs_no_change():
    assert suggested(world(FOUR), ask("T4")) is None


@pytest.mark.parametrize(
    ("kind", "held", "text", "change"),
    [
        ("T4", part("n-0", 400), "ask for 0.5 of a GPU, shared with others", {"accelerators": "T4:0.5"}),
        (
            "A100-80GB",
            mig("n-0", "4g.40gb", 0, 500),
            "ask for a 3g.40gb MIG slice of A100-80GB",
            {"accelerators": "A100-80GB:mig-3g.40gb:1"},
        ),
    ],
)
def test_a_part_of_a_gpu_where_none_is_whole(kind, held, text, change):
    found = suggested(world(node("n", (kind,)), holds=[hold("a", "n", held)]), ask(kind))
    assert found is not None
    assert (found.text, found.change) == (text, change)


def test_who_asked_for_hard_isolation_is_offered_no_fraction():
    assert suggested(world(node("n", ("T4",)), holds=[hold("a", "n", part("n-0", 400))]), ask("T4", hard=True)) is None


def test_where_nothing_helps_nothing_is_suggested():
    assert suggested(world(node("n", ("T4",)), holds=[hold("a", "n", 0, cpus=64)]), ask("T4")) is None


def test_room_that_is_kept_for_the_head_is_no_room():
    """Three GPUs are free, but the head needs all four and nobody may delay it."""
    seen = world(FOUR, holds=[hold("a", "n", 0, until=3610.0)])
    head = waiting("head", ask("T4:4"), at=1.0, duration=60.0)
    found = suggested(seen, ask("T4:3"), head, duration=7 * 3600.0)
    assert found is not None
    assert (found.text, found.change) == ("launch it as spot: it may be preempted", {"use_spot": True})
    assert found.waiting.purchase is PurchaseOption.SPOT


def test_a_limit_that_ends_before_the_head_is_due_starts_it_now():
    seen = world(FOUR, holds=[hold("a", "n", 0, until=3610.0)])
    head = waiting("head", ask("T4:4"), at=1.0, duration=60.0)
    found = suggested(seen, ask("T4:3"), head)
    assert found is not None
    assert (found.text, found.change) == (
        "declare a max_duration of 1h00m at most, if that is enough",
        {"max_duration": "1h00m"},
    )
    mine = found.waiting
    assert parse_duration(str(found.change["max_duration"])) == mine.duration_s


def test_a_quota_counts():
    policy = Policy(projects={"default": ProjectRules(quota=Quota(gpus=2))})
    seen = world(FOUR, holds=[hold("a", "n", 0)])
    mine = waiting("me", ask("T4:2"), at=5.0)

    def decide(trial, units):
        return place(trial, units, policy=policy, now=NOW)

    found = suggest(seen, [mine], mine, now=NOW, decide=decide)
    assert found is not None
    assert found.change == {"accelerators": "T4:1"}


def test_an_absurd_ask_is_not_tried_number_by_number():
    tried = []

    def decide(trial, units):
        tried.append(units)
        return place(trial, units, now=NOW)

    mine = waiting("me", ask("T4:999", nodes=100_000))
    suggest(world(FOUR, holds=[hold("a", "n", *ALL)]), [mine], mine, now=NOW, decide=decide)
    assert len(tried) <= 2 * MOST_PASSES + 1


@few
@given(worlds(), asks, queues(most=5))
def test_a_suggestion_applied_starts_it_at_once(seen, asked, queue):
    mine = waiting("me", asked, at=2.0)
    found = suggest(seen, [*queue, mine], mine, now=NOW)
    if found is None:
        return
    [(key, value)] = found.change.items()
    text, changed = str(value), found.ask
    applied = {
        "cpus": lambda: changed.cpus_milli == parse_cpus(text),
        "memory": lambda: changed.memory_bytes == parse_memory(text),
        "gpu_memory": lambda: changed.gpu is not None and changed.gpu.slice_memory == parse_memory(text),
        "num_nodes": lambda: changed.nodes == int(text),
        "accelerators": lambda: changed.gpu is not None and _plain(changed.gpu) == parse_gpu_ask(text),
        "isolation": lambda: changed.isolation is Isolation.ANY,
        "use_spot": lambda: found.waiting.purchase is PurchaseOption.SPOT,
        "max_duration": lambda: found.waiting.duration_s == parse_duration(text),
    }
    assert applied[key](), "what is told is what was tried"
    for changed_waiting in (found.waiting, replace(found.waiting, accepted_at=NOW)):
        assert changed_waiting.key in {each.waiting.key for each in place(seen, [*queue, changed_waiting], now=NOW)}


def _plain(gpu):
    """Without what is said beside `accelerators`."""
    return replace(gpu, sharing=None)
