"""Which GPUs take a step that was measured."""

from typing import Any

import pytest

from cumulo.advisor.measured import (
    MeasuredStep,
    Operation,
    advice_where_nothing_fits,
    needed_memory,
    step_seconds,
    takers,
)
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import all_kinds, find
from cumulo.domain.quantities import GIB


def step(**changes: Any) -> MeasuredStep:
    given: dict[str, Any] = {
        "torch": "2.13.0", "models": ("Model",), "inputs": ("8x128 int64",), "parameters": 10**9, "trainable": 10**9,
        "peak_bytes": 30 * GIB, "parts": {"activations": 15 * GIB, "weights": 15 * GIB},
        "operations": (
            Operation("product", "bfloat16", 10**12, 10**8, 100), Operation("other", "bfloat16", 0, 10**9, 50),
        ),
    }  # fmt: skip
    return MeasuredStep(**given | changes)


def seconds(name: str, measured: MeasuredStep) -> tuple[float, str]:
    kind = find(name)[0]
    assert kind.typical is not None
    found = step_seconds(measured, kind, kind.typical, coefficients())
    assert found is not None
    time, limit = found
    assert time.low < time.expected < time.high
    return time.expected, limit


def test_only_gpus_with_the_memory_take_it_and_the_cheapest_comes_first():
    found, passed = takers(step(), all_kinds(), coefficients())
    need = needed_memory(step(), coefficients())
    assert need.expected > 30 * GIB
    assert all(taker.kind.memory_bytes >= need.expected for taker in found)
    costs = [cost.expected for taker in found if (cost := taker.cost(1000))]
    assert costs == sorted(costs)
    assert {each.kind.name for each in passed if each.reason == "memory"} >= {"T4", "L4", "RTX4090"}
    assert len(found) + len(passed) == len(all_kinds())


def test_bfloat16_is_never_put_on_a_gpu_without_it():
    small = step(peak_bytes=4 * GIB)
    _, passed = takers(small, all_kinds(), coefficients())
    assert {each.kind.name for each in passed if each.reason == "bf16"} >= {"T4", "V100-16GB", "V100-32GB"}
    halves = tuple(each._replace(dtype="float16") for each in small.operations)
    found, _ = takers(step(peak_bytes=4 * GIB, operations=halves), all_kinds(), coefficients())
    assert {"T4", "V100-16GB"} <= {taker.kind.name for taker in found}


def test_what_limits_a_step():
    products = (Operation("product", "bfloat16", 10**13, 10**6, 10),)
    moving = (Operation("other", "float32", 0, 10**10, 10),)
    many = (Operation("other", "float32", 0, 10**3, 10**5),)
    assert seconds("H100-80GB", step(operations=products))[1] == "compute"
    assert seconds("H100-80GB", step(operations=moving))[1] == "memory bandwidth"
    assert seconds("H100-80GB", step(operations=many))[1] == "launch overhead"


def test_products_of_float32_are_slower_than_of_bfloat16_and_convolutions_may_use_tf32():
    def taking(kind: str, dtype: str) -> float:
        return seconds("A100-80GB", step(operations=(Operation(kind, dtype, 10**13, 10**6, 10),)))[0]

    assert taking("product", "float32") > 10 * taking("product", "bfloat16")
    assert taking("convolution", "float32") < taking("product", "float32") / 5


def test_twice_the_work_takes_twice_as_long():
    once, twice = step(), step(operations=tuple(each._replace(times=2 * each.times) for each in step().operations))
    assert seconds("L40S", twice)[0] == pytest.approx(2 * seconds("L40S", once)[0])


def test_where_nothing_fits_it_says_what_would():
    kinds = find("T4")
    activations = step(peak_bytes=40 * GIB, parts={"activations": 36 * GIB, "weights": 4 * GIB})
    assert "a batch 3 times smaller" in advice_where_nothing_fits(activations, kinds)
    states = step(peak_bytes=40 * GIB, parts={"activations": 4 * GIB, "weights": 36 * GIB})
    assert "shard them (FSDP, ZeRO-3) over at least 4 x T4" in advice_where_nothing_fits(states, kinds)
