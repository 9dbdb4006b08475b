"""Does advice order GPUs as MLPerf's results do? Kendall's tau, round by round.

In each round, GPUs are compared where they did the same work: a benchmark trained on as many GPUs, or a benchmark's
scenario per GPU. A pair counts by whether its order is predicted; of a GPU's several results the median counts.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.advisor.data import readable
from bench.advisor.law import Case, Constants, Law, fitted, known
from bench.advisor.law_cases import Inference, Training
from bench.advisor.score import gpu_family
from cumulo.catalog.coefficients import coefficients


class Pairs(NamedTuple):
    """Pairs of GPUs in the order that was predicted, and in the other."""

    right: int
    wrong: int

    @property
    def tau(self) -> float:
        return (self.right - self.wrong) / (self.right + self.wrong)

    def plus(self, other: "Pairs") -> "Pairs":
        return Pairs(self.right + other.right, self.wrong + other.wrong)


def taus(folder: Path, *, unseen: bool = False) -> dict[str, Pairs]:
    """By round of training and of inference. `unseen`: each GPU estimated by constants fitted without its family."""
    found: dict[str, Pairs] = {}
    for law in (Training(), Inference()):
        rounds = sorted({row["round"] for row in readable(folder, law.name)})
        cases = law.cases(folder).kept
        constants = _constants(law, cases, unseen=unseen)
        for name in rounds:
            own = [case for case in cases if case.round == name]
            pairs = _ordered(law, constants, own)
            if pairs.right + pairs.wrong:
                found[f"{law.name} {name}"] = pairs
    return found


def _constants(law: Law, cases: Sequence[Case], *, unseen: bool) -> Mapping[str, Constants]:
    """By the family of GPUs that they are to be used for."""
    families = sorted({gpu_family(case.gpu) for case in cases})
    if not unseen:
        return dict.fromkeys(families, coefficients().laws.table(law.name))
    return {name: fitted(law, [case for case in cases if gpu_family(case.gpu) != name]) for name in families}


def _ordered(law: Law, constants: Mapping[str, Constants], cases: Sequence[Case]) -> Pairs:
    together: dict[tuple[object, ...], dict[tuple[str, str | None], list[tuple[float, float]]]] = {}
    for case in cases:
        expected = known(law, constants[gpu_family(case.gpu)], case)
        if expected:
            boards = together.setdefault(case.inputs, {})
            boards.setdefault((case.gpu, case.variant.form_factor), []).append((expected, case.actual))
    total = Pairs(0, 0)
    for boards in together.values():
        medians = [tuple(median(column) for column in zip(*values, strict=True)) for values in boards.values()]
        for (one, first), (other, second) in combinations(medians, 2):
            right = (one - other) * (first - second) > 0
            total = total.plus(Pairs(int(right), int(not right)))
    return total
