"""The laws as the bench sees them: which rows each reads, what its constants are drawn to, what it expects."""

import re
from collections.abc import Callable, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

from bench.advisor.boards import named_board
from bench.advisor.data import number, readable, suspects, true, whole
from bench.advisor.law import Case, Cases, Constants
from bench.advisor.least_squares import Prior
from bench.advisor.score import gpu_family
from cumulo.advisor.laws import benchmarks, hashing, md, proving, rendering
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import all_kinds

_REFERENCE = "H100-SXM5-80GB"


class MolecularDynamics:
    """ns/day by code, atoms and board."""

    name = "md"
    knee = 0.1
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
            **{f"code {code}": Prior(5.0, 9.0) for code in sorted({str(case.inputs[0]) for case in cases})},
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
    knee = 0.1
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
    knee = 0.1
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
    knee = 0.1
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
    knee = float("inf")
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
        return {**works, "speed": Prior(0.9, 0.1), "small_cache": Prior(0.0, 0.4), "fixed": Prior(-2.0, 1.0)}

    def expected(self, constants: Constants, case: Case) -> float | None:
        return proving.seconds_of(constants, str(case.inputs[0]), float(str(case.inputs[1])), case.variant)


class Rendering:
    """Scores of rendering benchmarks."""

    name = "rendering"
    knee = 0.1
    families: Mapping[str, Callable[[Case], str]] = {}

    def cases(self, folder: Path) -> Cases:
        return _collected(folder, "rendering", "device", "score", lambda row: ((row["benchmark"],), row["benchmark"]))

    def priors(self, cases: Sequence[Case]) -> Mapping[str, Prior]:
        return {str(case.inputs[0]): Prior(4.0, 9.0) for case in cases}

    def expected(self, constants: Constants, case: Case) -> float | None:
        return rendering.score_of(constants, str(case.inputs[0]), case.variant)


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
                round=row.get("round", ""),
            )
        )
    return Cases(kept, dropped)


def _speed_priors(names: Sequence[str]) -> dict[str, Prior]:
    """Exponents that benchmarks have in common, and how far each may stray.

    What the best product of an AMD board reaches, beside an H100's, is measured: no result moves it.
    """
    best = coefficients().training.table("matmul_bf16")
    amd = [each.name for kind in all_kinds() if kind.vendor == "AMD" for each in kind.variants if each.name in best]
    return {
        **{f"achieved {name}": Prior(log(best[name] / best[_REFERENCE]), 1e-4) for name in amd},
        **{f"compute {name}": Prior(0.0, 0.15) for name in names},
        **{f"memory {name}": Prior(0.0, 0.15) for name in names},
        "compute": Prior(0.6, 0.3),
        "memory": Prior(0.3, 0.3),
        "power": Prior(0.1, 0.2),
        "rocm": Prior(0.2, 0.3),
        "own_host": Prior(0.05, 0.1),
    }


def _plain(system: str) -> bool:
    """HECBioSim's systems are run as a site runs its users' work, others as their benchmark prescribes."""
    return re.fullmatch(r"\d+k-atoms", system) is not None
