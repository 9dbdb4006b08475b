"""Molecular dynamics: nanoseconds a day of one simulation on one GPU.

A step takes a latency (kernel launches, the host's share) and a time by atoms. The latency falls more slowly with a
faster board than the rest, which is why small systems leave a large GPU idle. Fitted to HECBioSim's and CSC's results.
"""

from collections.abc import Mapping
from math import exp, log, pow
from typing import Final

from cumulo.advisor.estimate import Range
from cumulo.advisor.laws.boards import runs_rocm, spread_for, vector_logs
from cumulo.catalog.coefficients import Coefficients
from cumulo.catalog.variants import Variant

_ATOMS: Final = 1e5
CODES: Final = ("amber", "gromacs", "namd", "openmm")


def nanoseconds_per_day(
    code: str,
    atoms: float,
    variant: Variant,
    coefficients: Coefficients,
    *,
    timestep_fs: float = 2.0,
    system: str | None = None,
    tuned: bool = False,
) -> Range | None:
    """Of one run on one GPU (one die of a two-die board). None where the board's FP32 rate or bandwidth is unknown.

    `system` is a published benchmark's name (`STMV`). `tuned`: set up as such benchmarks are, for speed, and not as a
    site runs its users' work. Raises KeyError for a code that no results are known of.
    """
    laws = coefficients.laws
    rate = md_rate(laws.table("md"), code, atoms, variant, timestep_fs=timestep_fs, system=system, tuned=tuned)
    return None if rate is None else spread_for(laws, "md", variant).around(rate)


def md_rate(
    constants: Mapping[str, float],
    code: str,
    atoms: float,
    variant: Variant,
    *,
    timestep_fs: float,
    system: str | None,
    tuned: bool,
) -> float | None:
    """What is expected, in ns/day, by the logarithmic constants given."""
    logs = vector_logs(variant)
    if logs is None:
        return None
    share, rocm = constants["compute_share"], runs_rocm(variant)
    speed = exp(constants["speed"] * (share * logs.compute + (1 - share) * logs.memory) - constants["rocm"] * rocm)
    latency = exp(constants["latency"] + constants["latency_rocm"] * rocm) * pow(speed, -constants["latency_speed"])
    work = pow(atoms / _ATOMS, constants["atoms"]) / speed
    gains = constants["tuned"] * tuned + constants.get(f"system {system}", 0.0)
    steps = constants["timestep"] * log(timestep_fs / 2)
    return exp(constants[f"code {code}"] + gains + steps) / (latency + work)
