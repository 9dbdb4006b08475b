"""Questions on proofs and hashes as rated work."""

from collections.abc import Iterator
from typing import Final

from cumulo.advisor.answer_text import counted, figure
from cumulo.advisor.estimate import Range
from cumulo.advisor.laws.boards import shader_rate
from cumulo.advisor.laws.hashing import hash_algorithms, hashes_per_second
from cumulo.advisor.laws.proving import proving_seconds
from cumulo.advisor.plans import Supply
from cumulo.advisor.search_laws import Rated, in_pieces
from cumulo.catalog.coefficients import Coefficients
from cumulo.catalog.variants import Variant
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable

_RISC_ZERO: Final = frozenset({"risc0", "risczero", "risc-zero", "rv32im"})
_OPERATION: Final = "rv32im"
_GROTH16_MULTIPLICATIONS: Final = 8 * 8 * 2
"""32-bit multiply-adds of one product of 254-bit numbers (schoolbook with Montgomery's reduction)."""
_WINDOWS: Final = 16
"""Additions a point takes part in with Pippenger's method and 16-bit windows over 254-bit scalars."""
_ADDITION: Final = 11
"""Products of field elements in one mixed addition on the curve."""
_G2: Final = 3
"""How many times as much an addition on G2 takes."""
_TRANSFORMS: Final = 7
_REACHED: Final = Range(0.03, 0.1, 0.3)
"""Of a board's 32-bit rate. Counted operations, no published result: so the range is wide."""
_G1_BYTES, _G2_BYTES, _SCALAR_BYTES = 64, 128, 32


def risc_zero(cycles: float, proofs: int, coefficients: Coefficients) -> Rated:
    """Proofs of `cycles` each with RISC Zero's zkVM."""

    def alone(variant: Variant) -> Range | None:
        seconds = proving_seconds(_OPERATION, cycles, variant, coefficients)
        return None if seconds is None else seconds.inverted()

    return Rated(
        title=f"RISC Zero, {counted(proofs, 'proof')} of {figure(cycles)} cycles",
        amount=float(proofs),
        unit="proofs",
        rate=in_pieces(alone),
        needs="shaders or clock",
        limit="compute",
        pieces=proofs,
        assumptions=("proofs of segments; what runs on the host (execution, Groth16 wrapping) is not in it",),
    )


def groth16(constraints: float, proofs: int) -> Rated:
    """Groth16 over BN254: three multi-scalar products on G1, one on G2, seven transforms, counted.

    Groth, EUROCRYPT 2016; Pippenger's bucket method.
    """
    levels = int(constraints).bit_length()
    products = constraints * _WINDOWS * _ADDITION * (3 + _G2) + _TRANSFORMS * constraints / 2 * levels
    operations = products * _GROTH16_MULTIPLICATIONS
    memory = constraints * (3 * _G1_BYTES + _G2_BYTES + 4 * _SCALAR_BYTES)

    def alone(variant: Variant) -> Range | None:
        rate = shader_rate(variant)
        return None if rate is None else _REACHED.scaled(rate / operations)

    return Rated(
        title=f"Groth16 over BN254, {counted(proofs, 'proof')} of {figure(constraints)} constraints",
        amount=float(proofs),
        unit="proofs",
        rate=in_pieces(alone),
        needs="shaders or clock",
        limit="compute",
        pieces=proofs,
        memory_bytes=memory,
        assumptions=(
            f"{figure(operations)} 32-bit operations a proof, counted; 3 to 30 % of the peak rate, assumed: no "
            "result was at hand",
            "keys and witness stay on the GPU; the witness is made on the host and not counted",
        ),
    )


def proving(
    system: str, *, constraints: float | None, cycles: float | None, proofs: int, coefficients: Coefficients
) -> Rated:
    """Proofs with a named system. Raises CumuloError (invalid_request) for what is not known or not told."""
    name = system.lower().replace(" ", "").replace("_", "-")
    if name in _RISC_ZERO:
        if cycles is None:
            raise CumuloError("invalid_request", "RISC Zero proves cycles: their number is missing", hint="--cycles 1M")
        return risc_zero(cycles, proofs, coefficients)
    if name in ("groth16", "groth-16"):
        if constraints is None:
            raise CumuloError(
                "invalid_request", "Groth16 proves constraints: their number is missing", hint="--constraints 2^24"
            )
        return groth16(constraints, proofs)
    raise CumuloError(
        "invalid_request", f"no proof system {printable(repr(system), 60)} is known", hint="known: groth16, risc0"
    )


def hashing(algorithm: str, hashes: float | None, coefficients: Coefficients) -> Rated:
    """Hashing by a named algorithm. Raises CumuloError (invalid_request) for one without known results."""
    import difflib

    known = hash_algorithms(coefficients)
    name = next((each for each in known if each.lower() in (algorithm.lower(), f"hashcat {algorithm.lower()}")), None)
    if name is None:
        near = difflib.get_close_matches(algorithm.lower(), known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise CumuloError(
            "invalid_request",
            f"no results of hashing by {printable(repr(algorithm), 60)} are known",
            hint=f"{hint}known: {', '.join(known)}",
        )
    chosen = name

    def alone(variant: Variant) -> Range | None:
        return hashes_per_second(chosen, variant, coefficients)

    def notes(supply: Supply) -> Iterator[str]:
        if chosen == "ethash":
            yield "Ethereum has needed no hashing since 2022-09-15"

    memory_hard = chosen in ("ethash", "kawpow")
    return Rated(
        title=f"hashing by {chosen}" + (f", {figure(hashes)} hashes" if hashes is not None else ""),
        amount=hashes,
        unit="hashes",
        rate=in_pieces(alone),
        needs="memory bandwidth" if memory_hard else "shaders or clock",
        limit="memory bandwidth" if memory_hard else "compute",
        pieces=8,
        assumptions=("clocks as tuned by miners" if memory_hard else "hashcat 6",),
        notes=notes,
    )
