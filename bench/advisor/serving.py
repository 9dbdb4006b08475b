"""Serving against published throughput: offline at most, and one sequence alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from bench.advisor.boards import named_board
from bench.advisor.data import number, readable
from bench.advisor.fit import BadData, spread
from bench.advisor.least_squares import Prior, minimise_positive
from bench.advisor.score import Row, Target, gpu_family, quantile
from bench.advisor.served import FILE, Served, read
from cumulo.advisor.estimate import Range, Spread
from cumulo.advisor.serving import decode_seconds, serving_spread, throughput
from cumulo.advisor.serving_plan import precision_tflops
from cumulo.catalog.coefficients import Section, coefficients

SOURCES = (
    "TensorRT-LLM 1.0's performance overview (Llama 3.1 8B, Llama 3.3 70B, Qwen3 30B-A3B on H100, H200, B200); "
    "llama.cpp of early 2024 (Llama 3 8B); best matmul rates of ml-engineering"
)
# Where a constant is drawn to, and how far its logarithm may stray: what engines mostly reach of a board's rates.
_OFFLINE: Mapping[str, Prior] = {
    "memory_share": Prior(0.77, 0.2),
    "product_share": Prior(0.55, 0.3),
    "fp4_share": Prior(0.54, 0.3),
    "grouped_share": Prior(0.5, 0.5),
    "attention_share": Prior(0.35, 0.7),
    "launch_seconds": Prior(100e-6, 0.7),
    "sequence_seconds": Prior(1e-7, 1.5),
    "fabric_share": Prior(0.43, 0.5),
}
_SINGLE: Mapping[str, Prior] = {
    "single_memory_share": Prior(0.9, 0.1),
    "single_values_per_clock_16": Prior(2.85, 1.0),
    "single_values_per_clock_4": Prior(5.0, 1.0),
    "single_launch_seconds": Prior(50e-6, 1.0),
    "single_hop_seconds": Prior(300e-6, 2.0),
}
_MOST_SEQUENCES = 2048.0
"""TensorRT-LLM's usual limit; no result that it is fitted to tells it from a higher one."""
_COLLECTIVE_SECONDS = 10e-6
_REFERENCE = "H100-SXM5-80GB"
_ARCHITECTURES = {"MI300X": "CDNA3", "MI355X": "CDNA4"}


Expected = Callable[[Section, Served], float | None]


def offline(constants: Section, case: Served) -> float | None:
    found = throughput(case.plan, case.cluster, constants, isl=case.isl, osl=case.osl, concurrency=case.concurrency)
    return found[0] if found else None


def rules(case: Served) -> dict[str, float]:
    """What simpler rules say: each output token costs its prompt's share too, at 40 % of the rate of products; or a
    sequence alone reads all the weights at the full bandwidth."""
    variant, plan = case.cluster.variant, case.plan
    if case.concurrency == 1:
        return {"bandwidth / weights": (variant.memory_bandwidth or 0) / plan.weight_bytes}
    flops = 2 * plan.shape.active_parameters * (case.isl + case.osl) / case.osl
    peak = precision_tflops(variant, plan.precision) or 0.0
    return {"2N at 40 %": 0.4e12 * peak * plan.gpus / flops}


def single(constants: Section, case: Served) -> float | None:
    seconds = decode_seconds(case.plan, case.cluster, constants)
    return 1 / seconds if seconds else None


def targets(folder: Path) -> dict[str, Target]:
    many, one, dropped_many, dropped_one = read(folder)
    constants = coefficients().serving
    found = {
        "serving_offline": _target("serving_offline", many, dropped_many, offline, constants),
        "decode_batch1": _target("decode_batch1", one, dropped_one, single, constants),
    }
    return {name: target for name, target in found.items() if target.rows}


def cross(folder: Path) -> dict[str, Target]:
    """Each row by constants fitted without its board's family, or without its model; ranges as for something new."""
    many, one, *_ = read(folder)
    fixed, found = _fixed(folder), {}
    for target, cases, expected, priors, families in (
        ("serving_offline", many, offline, _OFFLINE, {"gpu": _gpu, "model": _model}),
        ("decode_batch1", one, single, _SINGLE, {"gpu": _gpu}),
    ):
        around = _as_new(target)
        for name, family in families.items():
            pairs = _left_out(cases, expected, priors, fixed, family)
            found[f"{target} by {name}"] = Target([_row(case, around.around(value)) for case, value in pairs])
    return found


def _as_new(target: str) -> Spread:
    constants = coefficients().serving
    return Spread(*constants.spread(target)).widened(1 + constants.number(f"widening_{target}"))


def fit(folder: Path) -> dict[str, Any]:
    many, one, *_ = read(folder)
    fixed = _fixed(folder)
    section: dict[str, Any] = dict(fixed)
    spreads = {}
    for target, cases, expected, priors in (
        ("serving_offline", many, offline, _OFFLINE),
        ("decode_batch1", one, single, _SINGLE),
    ):
        if not cases:
            raise BadData(f"{folder / FILE}.csv has no row to fit {target} to")
        constants = _fitted(cases, expected, priors, fixed)
        section |= constants
        own = Section({**fixed, **constants})
        spreads[target] = spread([log((expected(own, case) or 1) / case.actual) for case in cases])
        section[f"widening_{target}"] = _widening(spreads[target], _all_left_out(cases, expected, priors, fixed))
        section[f"seen_{target}"] = _seen(cases)
    return section | {"spread": spreads}


def _all_left_out(
    cases: Sequence[Served], expected: Expected, priors: Mapping[str, Prior], fixed: Mapping[str, Any]
) -> list[list[float]]:
    """Logarithmic errors of rows whose board the constants had not seen, and of those whose model they had not.

    Where all rows are of one model, nothing would be left to fit: that tells nothing.
    """
    return [
        [log(value / case.actual) for case, value in _left_out(cases, expected, priors, fixed, family)]
        for family in (_gpu, _model)
        if len({family(case) for case in cases}) > 1
    ]


def _seen(cases: Sequence[Served]) -> dict[str, Any]:
    """What a range need not be widened for."""
    return {
        "boards": _counts(cases, _gpu),
        "models": _counts(cases, _model),
        "engines": _counts(cases, lambda case: case.plan.engine),
        "gpus": float(max((case.plan.gpus for case in cases), default=0)),
    }


def _widening(known: tuple[float, float], left_out: Sequence[Sequence[float]]) -> float:
    """By how much of itself a range grows with each thing that is new: as much as the worse of what was left out."""
    worst = max((quantile(map(abs, errors), 0.8) for errors in left_out), default=0.0)
    return max(worst / log(known[1]) - 1, 0.5)


def _fixed(folder: Path) -> dict[str, Any]:
    """What is not fitted: limits of the engine, and what boards reach of their rates beside the H100."""
    return {
        "most_sequences": _MOST_SEQUENCES,
        "collective_seconds": _COLLECTIVE_SECONDS,
        "achieved": _achieved(folder),
    }


def _achieved(folder: Path) -> dict[str, float]:
    measured = {
        board[0].name: number(row, "efficiency")
        for row in readable(folder, "matmul_achieved_mamf")
        if row["dtype"] == "bf16" and (board := named_board(row["gpu"]))
    }
    reference = measured.get(_REFERENCE)
    if not reference:
        return {"other": 1.0}
    shares = {name: share / reference for name, share in measured.items()}
    return {**shares, **{kin: shares[name] for name, kin in _ARCHITECTURES.items() if name in shares}, "other": 1.0}


def _fitted(
    cases: Sequence[Served], expected: Expected, priors: Mapping[str, Prior], fixed: Mapping[str, Any]
) -> dict[str, float]:
    if not cases:
        return {name: prior.start for name, prior in priors.items()}
    actual = np.log([case.actual for case in cases])

    def residuals(tried: Mapping[str, float]) -> Any:
        constants = Section({**fixed, **tried})
        return np.log([expected(constants, case) or 1e-3 for case in cases]) - actual

    return minimise_positive(residuals, priors, knee=0.1)


def _left_out(
    cases: Sequence[Served],
    expected: Expected,
    priors: Mapping[str, Prior],
    fixed: Mapping[str, Any],
    family: Callable[[Served], str],
) -> Iterator[tuple[Served, float]]:
    """Each case with what constants expect that were fitted without its family."""
    for name in sorted({family(case) for case in cases}):
        others = [case for case in cases if family(case) != name]
        constants = Section({**fixed, **_fitted(others, expected, priors, fixed)})
        for case in cases:
            if family(case) == name and (value := expected(constants, case)):
                yield case, value


def _target(name: str, cases: Sequence[Served], dropped: int, expected: Expected, constants: Section) -> Target:
    """A row whose weights don't fit by the estimate has no rate: it is counted with the dropped ones."""
    valued = [(case, expected(constants, case)) for case in cases]
    rows = [_row(case, _around(case, constants, name).around(value)) for case, value in valued if value]
    return Target(rows, dropped + len(cases) - len(rows))


def _row(case: Served, estimate: Range) -> Row:
    return Row(
        estimate=estimate, actual=case.actual, gpu=case.gpu, model=case.model, source=case.source, baselines=rules(case)
    )


def _around(case: Served, constants: Section, target: str) -> Spread:
    return serving_spread(case.plan, case.cluster, constants, target)


def _gpu(case: Served) -> str:
    return gpu_family(case.gpu)


def _model(case: Served) -> str:
    return case.plan.shape.name


def _counts(cases: Sequence[Served], family: Callable[[Served], str]) -> dict[str, float]:
    names = [family(case) for case in cases]
    return {name: float(names.count(name)) for name in sorted(set(names))}
