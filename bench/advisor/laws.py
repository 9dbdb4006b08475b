"""The empirical laws against published results: MD, MLPerf, hashing, proving; and rendering, which is not scored."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.advisor.boards import named_board
from bench.advisor.data import number, readable, suspects, true, whole
from bench.advisor.law import Case, Cases, Constants, Law, fitted, grouped, known, left_out, measured_spread, scored
from bench.advisor.score import Target, gpu_family
from bench.advisor.shrink import Prior
from cumulo.advisor.estimate import Spread
from cumulo.advisor.laws import benchmarks, hashing, md, proving, rendering
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
"""The range of a law with physical bounds whose results are of fewer boards than that."""


class MolecularDynamics:
    """ns/day by code, atoms and board."""

    name = "md"
    families: Mapping[str, Callable[[Case], str]] = {
        "gpu": lambda case: gpu_family(case.gpu),
        "system": lambda case: case.model,
        "source": lambda case: case.source,
    }

    def cases(self, folder: Path) -> Cases:
        return _collected(folder, "hpc_md_nsday", "gpu", "ns_per_day", self._case)

    def _case(self, row: Mapping[str, str]) -> tuple[tuple[Any, ...], str] | None:
        if true(row, "cpu_only") or row["app"] not in md.CODES:
            return None
        system = row["system"].removesuffix("_4fs")
        return (row["app"], number(row, "atoms"), system, row["system"].endswith("_4fs")), system

    def priors(self, cases: Sequence[Case]) -> Mapping[str, Prior]:
        named = {str(case.inputs[2]) for case in cases if not _plain(str(case.inputs[2]))}
        return {
            **{f"code {code}": Prior(0.0, 9.0) for code in md.CODES},
            **{f"system {system}": Prior(0.0, 0.25) for system in sorted(named)},
            "speed": Prior(0.8, 0.3),
            "compute_share": Prior(0.5, 0.3),
            "latency": Prior(-1.0, 1.5),
            "latency_speed": Prior(0.3, 0.3),
            "latency_rocm": Prior(0.0, 0.5),
            "rocm": Prior(0.0, 0.2),
            "tuned": Prior(0.3, 0.4),
            "atoms": Prior(1.0, 0.05),
            "timestep": Prior(0.93, 0.02),
        }

    def expected(self, constants: Constants, case: Case) -> float | None:
        code, atoms, system, doubled = case.inputs
        return md.md_rate(
            constants,
            str(code),
            float(str(atoms)),
            case.variant,
            timestep_fs=4.0 if doubled else 2.0,
            system=str(system),
            tuned=not _plain(str(system)),
        )


class Training:
    """Minutes to train, of MLPerf's benchmarks."""

    name = "mlperf_training"
    families: Mapping[str, Callable[[Case], str]] = {
        "gpu": lambda case: gpu_family(case.gpu),
        "source": lambda case: case.source.split("/results/")[0],
    }

    def cases(self, folder: Path) -> Cases:
        return _collected(folder, "mlperf_training", "accelerator", "ttt_min", self._case)

    def _case(self, row: Mapping[str, str]) -> tuple[tuple[Any, ...], str]:
        slow = "tinygrad" if row["submitter"] == "tinycorp" or "tinygrad" in row["framework"] else ""
        return (row["benchmark"], whole(row, "accel_count"), slow), row["benchmark"]

    def priors(self, cases: Sequence[Case]) -> Mapping[str, Prior]:
        names = sorted({str(case.inputs[0]) for case in cases})
        return {
            **_speed_priors(names),
            **{f"work {name}": Prior(2.5, 3.0) for name in names},
            **{f"scaling {name}": Prior(0.0, 0.07) for name in names},
            **{f"fixed {name}": Prior(-2.0, 1.0) for name in names},
            "scaling": Prior(0.85, 0.1),
            "tinygrad": Prior(1.0, 0.7),
        }

    def expected(self, constants: Constants, case: Case) -> float | None:
        benchmark, gpus, framework = case.inputs
        return benchmarks.training_minutes(
            constants, str(benchmark), int(str(gpus)), case.variant, framework=str(framework)
        )


class Inference:
    """Rate a GPU, of MLPerf's benchmarks by scenario."""

    name = "mlperf_inference"
    families = Training.families

    def cases(self, folder: Path) -> Cases:
        return _collected(folder, "mlperf_inference", "accelerator", "result", self._case, per="accel_count")

    def _case(self, row: Mapping[str, str]) -> tuple[tuple[Any, ...], str]:
        return (row["benchmark"], row["scenario"]), row["benchmark"]

    def priors(self, cases: Sequence[Case]) -> Mapping[str, Prior]:
        names = sorted({str(case.inputs[0]).removesuffix(".9") for case in cases})
        works = sorted({" ".join(map(str, case.inputs)) for case in cases})
        return {**_speed_priors(names), **{f"work {work}": Prior(5.0, 9.0) for work in works}}

    def expected(self, constants: Constants, case: Case) -> float | None:
        benchmark, scenario = map(str, case.inputs)
        return benchmarks.rate_of_inference(constants, benchmark, scenario, 1, case.variant)


class Hashing:
    """Hashes a second by algorithm."""

    name = "hash"
    families: Mapping[str, Callable[[Case], str]] = {"gpu": lambda case: gpu_family(case.gpu)}

    def cases(self, folder: Path) -> Cases:
        return _collected(folder, "hash_rates", "gpu", "rate", self._case)

    def _case(self, row: Mapping[str, str]) -> tuple[tuple[Any, ...], str] | None:
        algorithm = row["workload"].removeprefix("hashcat ").lower()
        return ((algorithm,), algorithm) if row["unit"] == "H/s" else None

    def priors(self, cases: Sequence[Case]) -> Mapping[str, Prior]:
        names = sorted({str(case.inputs[0]) for case in cases})
        return {name: Prior(0.0, 0.3) if name in hashing.TRAFFIC else Prior(6.0, 9.0) for name in names}

    def expected(self, constants: Constants, case: Case) -> float | None:
        return hashing.hash_rate(constants, str(case.inputs[0]), case.variant)


class Proving:
    """Seconds of RISC Zero's operations by cycles."""

    name = "zk"
    families = Hashing.families

    def cases(self, folder: Path) -> Cases:
        return _collected(folder, "zk_proving", "gpu", "seconds", self._case)

    def _case(self, row: Mapping[str, str]) -> tuple[tuple[Any, ...], str] | None:
        if "not comparable" in row["notes"]:
            return None
        operation = row["op"].split("/")[0]
        return (operation, number(row, "cycles")), operation

    def priors(self, cases: Sequence[Case]) -> Mapping[str, Prior]:
        names = sorted({str(case.inputs[0]) for case in cases})
        works = {f"work {name}": Prior(0.0, 9.0) for name in names}
        return {**works, "speed": Prior(0.9, 0.1), "fixed": Prior(-2.0, 1.0)}

    def expected(self, constants: Constants, case: Case) -> float | None:
        return proving.seconds_of(constants, str(case.inputs[0]), float(str(case.inputs[1])), case.variant)


class Rendering:
    """Scores of rendering benchmarks."""

    name = "rendering"
    families: Mapping[str, Callable[[Case], str]] = {}

    def cases(self, folder: Path) -> Cases:
        return _collected(folder, "rendering", "device", "score", lambda row: ((row["benchmark"],), row["benchmark"]))

    def priors(self, cases: Sequence[Case]) -> Mapping[str, Prior]:
        return {str(case.inputs[0]): Prior(4.0, 9.0) for case in cases}

    def expected(self, constants: Constants, case: Case) -> float | None:
        return rendering.score_of(constants, str(case.inputs[0]), case.variant)


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
            rows = scored(law, pairs, _around)
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
            spreads |= _spreads(law, name, group)
    few = Rendering()
    section[few.name] = fitted(few, few.cases(folder).kept)
    return section | {"seen": seen, "spread": {**spreads, few.name: _UNMEASURED}}


def _by_spread(law: Law, cases: Sequence[Case]) -> Mapping[str, Sequence[Case]]:
    """The results that share a range: what a prover does on the host has its own."""
    return grouped(cases, lambda case: _spread_name(law, case)) if cases else {law.name: cases}


def _spread_name(law: Law, case: Case) -> str:
    host = isinstance(law, Proving) and proving.on_host(str(case.inputs[0]))
    return f"{law.name}_host" if host else law.name


def _spreads(law: Law, name: str, cases: Sequence[Case]) -> dict[str, Sequence[float]]:
    """Of boards that the results know: by what is left out otherwise (a system, a submitter). Of others: by board."""
    if len(grouped(cases, _gpu)) < _FEW_BOARDS:
        return {name: _FEW, f"{name}_unseen": _FEW}
    unseen = measured_spread(law, cases, _gpu)
    other = next((family for key, family in law.families.items() if key != "gpu"), None)
    known_board = measured_spread(law, cases, other) if other else unseen
    return {name: min(known_board, unseen, key=lambda each: each[1]), f"{name}_unseen": unseen}


def _gpu(case: Case) -> str:
    return gpu_family(case.gpu)


def _around(law: Law, case: Case) -> Spread:
    return spread_for(coefficients().laws, _spread_name(law, case), case.variant)


def _collected(
    folder: Path,
    file: str,
    gpu: str,
    value: str,
    inputs: Callable[[Mapping[str, str]], tuple[tuple[Any, ...], str] | None],
    *,
    per: str | None = None,
) -> Cases:
    """The rows of a file whose GPU the catalogue has, and that `inputs` makes something of."""
    kept, dropped = [], suspects(folder, file)
    for row in readable(folder, file):
        board, made, actual = named_board(row[gpu]), inputs(row), number(row, value)
        if board is None or made is None or actual <= 0:
            dropped += 1
            continue
        kept.append(
            Case(
                variant=board[0],
                inputs=made[0],
                actual=actual / (whole(row, per, 1) if per else 1),
                gpu=board[1].name,
                model=made[1],
                source=row.get("source", ""),
            )
        )
    return Cases(kept, dropped)


def _speed_priors(names: Sequence[str]) -> dict[str, Prior]:
    """Exponents that benchmarks have in common, and how far each may stray."""
    return {
        **{f"compute {name}": Prior(0.0, 0.15) for name in names},
        **{f"memory {name}": Prior(0.0, 0.15) for name in names},
        "compute": Prior(0.6, 0.3),
        "memory": Prior(0.3, 0.3),
        "power": Prior(0.1, 0.2),
        "rocm": Prior(0.2, 0.3),
    }


def _plain(system: str) -> bool:
    """HECBioSim's systems are run as a site runs its users' work, others as their benchmark prescribes."""
    return re.fullmatch(r"\d+k-atoms", system) is not None
