"""What it takes to fit a law, to cross-validate it by family, and to score it."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple, Protocol

import numpy as np

from bench.advisor.fit import spread
from bench.advisor.least_squares import Prior, minimise
from bench.advisor.score import Row
from cumulo.advisor.estimate import Spread
from cumulo.catalog.variants import Variant

Constants = Mapping[str, float]
MOST_FAMILIES = 16
"""Beyond that many the smallest families are left out together, so that no one waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One published result as a law sees it: equal `inputs` on one board give equal estimates."""

    variant: Variant
    inputs: tuple[Hashable, ...]
    actual: float
    gpu: str
    model: str
    source: str
    round: str = ""
    """Of MLPerf."""


class Cases(NamedTuple):
    """`dropped` counts rows without a GPU of the catalogue, and those that the data calls bad."""

    kept: Sequence[Case]
    dropped: int


class Law(Protocol):
    """A law and what it is fitted to. `expected` gives None where it knows nothing of the inputs."""

    name: str
    families: Mapping[str, Callable[[Case], str]]
    knee: float
    """From which logarithmic error on a result weighs less."""

    def priors(self, cases: Sequence[Case]) -> Mapping[str, Prior]: ...

    def expected(self, constants: Constants, case: Case) -> float | None: ...


def fitted(law: Law, cases: Sequence[Case], begin: Constants | None = None) -> dict[str, float]:
    """The constants that are closest to `cases`, drawn to the priors; the priors where there are no cases."""
    if not cases:
        return {name: prior.start for name, prior in law.priors(cases).items()}
    different = {(case.variant, case.inputs): case for case in cases}
    index = {key: place for place, key in enumerate(different)}
    places = np.array([index[case.variant, case.inputs] for case in cases])
    actual = np.log([case.actual for case in cases])

    def residuals(constants: Constants) -> Any:
        found = [law.expected(constants, case) for case in different.values()]
        return np.log([each or 1e-30 for each in found])[places] - actual

    return minimise(residuals, law.priors(cases), knee=law.knee, begin=begin)


def left_out(law: Law, cases: Sequence[Case], family: Callable[[Case], str]) -> list[tuple[Case, float]]:
    """Each case with what is expected of it by constants fitted without its family; fewer where none is left to fit."""
    found: list[tuple[Case, float]] = []
    whole = fitted(law, cases)
    for group in _families(cases, family):
        others = [case for case in cases if family(case) not in group]
        if not others:
            continue
        constants = fitted(law, others, whole)
        for case in cases:
            if family(case) in group and (expected := known(law, constants, case)):
                found.append((case, expected))
    return found


def known(law: Law, constants: Constants, case: Case) -> float | None:
    """What is expected, or None where the constants lack what the case names."""
    try:
        return law.expected(constants, case)
    except KeyError:
        return None


def measured_spread(law: Law, cases: Sequence[Case], family: Callable[[Case], str]) -> tuple[float, float]:
    """The range that held four of five results whose family the constants had not seen."""
    return spread([log(expected / case.actual) for case, expected in left_out(law, cases, family)])


def own_spread(law: Law, cases: Sequence[Case], constants: Constants) -> tuple[float, float]:
    """The range that held four of five results that the constants were fitted to."""
    return spread([log(value / case.actual) for case in cases if (value := known(law, constants, case))] or [0.0])


def scored(law: Law, pairs: Sequence[tuple[Case, float]], around: Callable[[Law, Case], Spread]) -> list[Row]:
    return [
        Row(
            estimate=around(law, case).around(expected),
            actual=case.actual,
            gpu=case.gpu,
            model=case.model,
            source=case.source,
        )
        for case, expected in pairs
    ]


def grouped(cases: Sequence[Case], key: Callable[[Case], str]) -> dict[str, list[Case]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(key(case), []).append(case)
    return dict(sorted(groups.items()))


def _families(cases: Sequence[Case], family: Callable[[Case], str]) -> list[set[str]]:
    sizes = {name: len(group) for name, group in grouped(cases, family).items()}
    ordered = sorted(sizes, key=lambda name: (-sizes[name], name))
    alone, rest = ordered[: MOST_FAMILIES - 1], ordered[MOST_FAMILIES - 1 :]
    return [{name} for name in alone] + ([set(rest)] if rest else [])
