"""Whether GPUs that are watched are of the right size."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.advisor.resize import Choice, Observed, choices, needed_bytes, speeds, verdicts
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import all_kinds, find
from cumulo.catalog.prices import price
from cumulo.domain.quantities import GIB


def seen(**changes: Any) -> Observed:
    given: dict[str, Any] = {
        "kind": find("A100-80GB")[0], "gpus": 1, "share": 1.0, "there_bytes": 80 * GIB, "peak_bytes": 10 * GIB,
        "busy": 0.5,
    }  # fmt: skip
    return Observed(**given | changes)


def offered(**changes: Any) -> dict[tuple[str, float], Choice]:
    found = choices(seen(**changes), all_kinds(), coefficients())
    return {(choice.kind.name, choice.share): choice for choice in found}


def test_nothing_is_offered_that_does_not_hold_the_peak_with_room_to_spare():
    assert needed_bytes(seen(peak_bytes=40 * GIB)) == 44 * GIB
    found = offered(peak_bytes=40 * GIB)
    assert found
    assert all(choice.memory_bytes >= 44 * GIB for choice in found.values())
    assert ("A100-80GB", 0.5) not in found


def test_a_part_of_the_same_gpu_where_memory_and_time_leave_room():
    half = offered(busy=0.4)["A100-80GB", 0.5]
    assert half.memory_bytes == 40 * GIB
    assert half.cost.low == pytest.approx(0.5)
    assert half.surely_cheaper
    assert ("A100-80GB", 0.5) not in offered(busy=0.6)
    assert ("A100-80GB", 0.25) in offered(busy=0.2)


def test_a_gpu_that_is_always_idle_runs_as_long_on_any_other():
    for choice in offered(busy=0.0).values():
        assert choice.time == pytest.approx((1.0, 1.0, 1.0))
        listed = price(choice.kind.name)
        assert listed is not None


def test_a_faster_gpu_shortens_only_the_busy_part():
    h100, idle = offered(busy=1.0)["H100-80GB", 1.0], offered(busy=0.5)["H100-80GB", 1.0]
    assert h100.time.low < h100.time.expected < h100.time.high < 1
    assert idle.time.expected == pytest.approx(0.5 + 0.5 * h100.time.expected)


def test_speed_lies_between_arithmetic_and_bandwidth():
    a100, l40s = find("A100-80GB")[0].typical, find("L40S")[0].typical
    assert a100 is not None
    assert l40s is not None
    found = speeds(a100, l40s)
    assert found is not None
    assert found.low == pytest.approx(864 / 2039)
    assert found.high == pytest.approx(362.05 / 312, rel=0.01)


@given(busy=st.floats(0, 1), peak=st.integers(1, 80 * GIB))
def test_choices_are_in_order_of_cost_and_ranges_are_ranges(busy, peak):
    found = choices(seen(busy=busy, peak_bytes=peak), all_kinds(), coefficients())
    assert [choice.cost.expected for choice in found] == sorted(choice.cost.expected for choice in found)
    assert all(choice.time.low <= choice.time.expected <= choice.time.high for choice in found)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"busy": 0.1}, "the GPU waits most of the time, and not for CPUs"),
        ({"busy": 0.1, "cpus": 4.0, "cpus_used": 3.9}, "3.9 of 4 CPUs are busy: ask for more CPUs"),
        ({"busy": 0.95}, "a faster one shortens it"),
        ({"peak_bytes": 79 * GIB}, "memory is all but full"),
    ],
)
def test_what_is_thought_of_the_size(changes, told):
    assert told in "\n".join(verdicts(seen(**changes)))


def test_without_a_price_for_what_is_held_nothing_is_compared():
    unlisted = next(kind for kind in all_kinds() if price(kind.name) is None and kind.typical)
    assert choices(seen(kind=unlisted), all_kinds(), coefficients()) == []
