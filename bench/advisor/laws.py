"""The empirical laws against published results: MD, MLPerf, hashing, proving; and rendering, which is not scored."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.advisor.law import (
    Case,
    Constants,
    Law,
    fitted,
    grouped,
    known,
    left_out,
    measured_spread,
    own_spread,
    scored,
)
from bench.advisor.law_cases import Hashing, Inference, MolecularDynamics, Proving, Rendering, Training
from bench.advisor.score import Target, gpu_family
from cumulo.advisor.estimate import Spread
from cumulo.advisor.laws import proving
from cumulo.advisor.laws.boards import spread_for
from cumulo.catalog.coefficients import coefficients

SOURCES = (
    "HECBioSim (2020 to 2024) and CSC (GROMACS 2022.4 to 2023.3), CSCS Piz Daint; MLPerf training v4.0 to v5.0 and "
    "inference v4.1, closed; miners' and hashcat 6 figures; RISC Zero datasheets; Blender Open Data, OctaneBench"
)
_UNMEASURED = (0.6, 1.67)
"""The range of a law that has too few results to leave one out."""
_FEW_BOARDS = 4
_FEW = (0.7071, 1.4142)
"""The least range of a law whose results are of fewer boards than that: to leave one out would leave nothing."""


_SCORED = (MolecularDynamics(), Training(), Inference(), Hashing(), Proving())


def targets(folder: Path) -> dict[str, Target]:
    found = {}
    laws = coefficients().laws
    for law in _SCORED:
        cases = law.cases(folder)
        pairs = [(case, value) for case in cases.kept if (value := known(law, laws.table(law.name), case))]
        unknown = len(cases.kept) - len(pairs)
        found[law.name] = Target(scored(law, pairs, _around), cases.dropped + unknown)
    return {name: target for name, target in found.items() if target.rows}


def cross(folder: Path) -> dict[str, Target]:
    """Each row by constants fitted without its GPU, system, submitter or source, in turn."""
    found = {}
    for law in _SCORED:
        cases = law.cases(folder)
        for name, family in law.families.items():
            pairs = left_out(law, cases.kept, family)
            rows = scored(law, pairs, _around_unseen if name == "gpu" else _around)
            found[f"{law.name} by {name}"] = Target(rows, len(cases.kept) - len(pairs))
    return found


def fit(folder: Path) -> dict[str, Any]:
    section: dict[str, Any] = {}
    spreads: dict[str, Sequence[float]] = {}
    seen: dict[str, dict[str, float]] = {}
    for law in _SCORED:
        cases = law.cases(folder).kept
        section[law.name] = fitted(law, cases)
        for name, group in _by_spread(law, cases).items():
            seen[name] = {family: float(len(rows)) for family, rows in grouped(group, _gpu).items()}
            spreads |= _spreads(law, name, group, section[law.name])
    few = Rendering()
    section[few.name] = fitted(few, few.cases(folder).kept)
    return section | {"seen": seen, "spread": {**spreads, few.name: _UNMEASURED}}


def _by_spread(law: Law, cases: Sequence[Case]) -> Mapping[str, Sequence[Case]]:
    """The results that share a range: what a prover does on the host has its own."""
    return grouped(cases, lambda case: _spread_name(law, case)) if cases else {law.name: cases}


def _spread_name(law: Law, case: Case) -> str:
    host = isinstance(law, Proving) and proving.on_host(str(case.inputs[0]))
    return f"{law.name}_host" if host else law.name


def _spreads(law: Law, name: str, cases: Sequence[Case], constants: Constants) -> dict[str, Sequence[float]]:
    """Of boards that the results know: by what is left out otherwise (a system, a submitter). Of others: by board."""
    if len(grouped(cases, _gpu)) < _FEW_BOARDS:
        wide = max(_FEW, own_spread(law, cases, constants), key=lambda each: each[1])
        return {name: wide, f"{name}_unseen": wide}
    unseen = measured_spread(law, cases, _gpu)
    other = next((family for key, family in law.families.items() if key != "gpu"), None)
    known_board = measured_spread(law, cases, other) if other else unseen
    return {name: min(known_board, unseen, key=lambda each: each[1]), f"{name}_unseen": unseen}


def _gpu(case: Case) -> str:
    return gpu_family(case.gpu)


def _around_unseen(law: Law, case: Case) -> Spread:
    return Spread(*coefficients().laws.spread(f"{_spread_name(law, case)}_unseen"))


def _around(law: Law, case: Case) -> Spread:
    return spread_for(coefficients().laws, _spread_name(law, case), case.variant)
