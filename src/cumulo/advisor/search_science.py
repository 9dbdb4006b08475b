"""Questions of scientists and artists as rated work: molecular dynamics, double precision, rendering, vision."""

from collections.abc import Iterator
from typing import Final

from cumulo.advisor.answer_text import figure
from cumulo.advisor.estimate import Range
from cumulo.advisor.laws.benchmarks import seconds_to_train
from cumulo.advisor.laws.md import CODES, nanoseconds_per_day
from cumulo.advisor.laws.rendering import job_seconds, rendering_benchmarks, rendering_score
from cumulo.advisor.plans import Refusal, Supply
from cumulo.advisor.questions import contradiction
from cumulo.advisor.search_laws import Rated, in_pieces
from cumulo.catalog.coefficients import Coefficients
from cumulo.catalog.kinds import GpuKind
from cumulo.catalog.variants import Variant
from cumulo.catalog.vision import VisionNetwork
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable

_DAY_S: Final = 86400.0
_BLENDER: Final = "Blender Open Data"
_BLENDER_SCENES: Final = 3
"""Its score is the sum over three scenes (Monster, Junkshop, Classroom)."""
_IMAGENET: Final = 1_281_167
_RESNET_EPOCHS: Final = 36
_RESNET_GFLOPS: Final = 8.18
_OTHER_NETWORK: Final = 1.6
"""How much wider a range is for a network of which no result was at hand, either way; assumed, and told."""
_LEAST_DOUBLE: Final = 1 / 16
"""Of the FP32 rate: boards that do double precision slower have it for show."""


def molecular_dynamics(code: str, atoms: float, ns: float | None, coefficients: Coefficients) -> Rated:
    """One simulation of `atoms`, for `ns` nanoseconds. Raises CumuloError (invalid_request) for an unknown code."""
    name = code.lower()
    if name not in CODES:
        raise CumuloError(
            "invalid_request", f"no results of {printable(repr(code), 60)} are known", hint=f"known: {', '.join(CODES)}"
        )
    if not 100 <= atoms <= 1e9:
        raise contradiction(f"a system of {atoms:g} atoms is outside of what is known", "give 100 to 1e9 atoms")

    def rate(variant: Variant, gpus: int) -> Range | None:
        per_day = nanoseconds_per_day(name, atoms, variant, coefficients)
        return None if per_day is None else per_day.scaled(1 / _DAY_S)

    length = f" for {figure(ns)} ns" if ns is not None else ""
    return Rated(
        title=f"{name.upper() if name != 'openmm' else 'OpenMM'}, {figure(atoms)} atoms{length}",
        amount=ns,
        unit="ns",
        rate=rate,
        needs="FP32 rate or memory bandwidth",
        limit="memory bandwidth and launches" if atoms < 1e5 else "compute and memory bandwidth",
        pieces=1,
        assumptions=("one simulation on one GPU: several at once are an array of runs", "2 fs a step"),
    )


def floating_point(flops: float | None, precision: str) -> Rated:
    """Work of `flops` operations at a board's peak: what a code reaches of it is its own."""
    column = "fp64_tflops" if precision == "fp64" else "fp32_tflops"

    def alone(variant: Variant) -> Range | None:
        rate = getattr(variant, column)
        if precision == "fp64":
            rate = max(rate or 0.0, variant.fp64_tensor_tflops or 0.0)
        return Range.exactly(rate * 1e12) if rate else None

    work = f" of {figure(flops)} operations" if flops is not None else ""
    return Rated(
        title=f"{precision.upper()} work{work}",
        amount=flops,
        unit="operations",
        rate=in_pieces(alone),
        needs=f"{precision.upper()} rate",
        limit="compute",
        pieces=8,
        assumptions=(
            "peak rates: your code reaches a part of them (matrix products most, what is bound by memory a tenth)",
            "the work spreads over GPUs without loss",
        ),
        notes=_bandwidth,
        refuse=_no_double if precision == "fp64" else None,
    )


def _no_double(supply: Supply) -> Refusal | None:
    double, single = supply.variant.fp64_tflops, supply.variant.fp32_tflops
    if double is None:
        return Refusal("unknown", f"{supply.name}: its FP64 rate is unknown")
    if single and double < _LEAST_DOUBLE * single:
        return Refusal("double", f"{supply.name} does FP64 at {double:g} TFLOPS, 1/{single / double:.0f} of FP32")
    return None


def _bandwidth(supply: Supply) -> Iterator[str]:
    if bandwidth := supply.variant.memory_bandwidth:
        yield f"what is bound by memory sees {bandwidth / 1e12:.2f} TB/s a GPU"


def rendering(engine: str, frames: int, samples: int, pixels: int, coefficients: Coefficients) -> Rated:
    """Frames of a scene as heavy as those of Blender's benchmark. Raises CumuloError for another engine."""
    if engine.lower() not in ("cycles", "blender") or _BLENDER not in rendering_benchmarks(coefficients):
        raise CumuloError(
            "invalid_request",
            f"no results of {printable(repr(engine), 60)} that tell a job's time are known",
            hint="time one frame of yours on a GPU: --frame-time 90s --measured-on RTX4090",
        )
    scale = _BLENDER_SCENES * pixels / (1920 * 1080)

    def alone(variant: Variant) -> Range | None:
        score = rendering_score(_BLENDER, variant, coefficients)
        return None if score is None else score.scaled(1 / (60 * scale * samples))

    return Rated(
        title=f"Cycles, {frames:,} frames of {samples:,} samples",
        amount=float(frames),
        unit="frames",
        rate=in_pieces(alone),
        needs="FP32 rate",
        limit="compute",
        pieces=frames,
        assumptions=(
            "a scene as heavy as those of Blender's benchmark: yours may be ten times as heavy, so time one frame and "
            "give --frame-time and --measured-on",
            "frames are independent: an array of runs",
        ),
        notes=_no_cores,
    )


def timed_rendering(
    frames: int, frame_seconds: float, kind: GpuKind, coefficients: Coefficients, *, engine: str
) -> Rated:
    """Frames of which one was timed on a GPU. Raises CumuloError if that GPU's rate is unknown."""
    measured = kind.typical
    if measured is None or not measured.fp32_tflops:
        raise contradiction(
            f"the FP32 rate of {kind.name} is unknown, so nothing follows from a time on it",
            "time one frame on another GPU",
        )

    def alone(variant: Variant) -> Range | None:
        if variant is measured:
            return Range.exactly(1 / frame_seconds)
        seconds = job_seconds(frame_seconds, measured, variant, coefficients)
        return None if seconds is None else seconds.inverted()

    return Rated(
        title=f"{printable(engine, 40)}, {frames:,} frames of {figure(frame_seconds)} s each on {kind.name}",
        amount=float(frames),
        unit="frames",
        rate=in_pieces(alone),
        needs="FP32 rate",
        limit="compute",
        pieces=frames,
        assumptions=("frames follow the FP32 rate", "frames are independent: an array of runs"),
        notes=_no_cores,
    )


def _no_cores(supply: Supply) -> Iterator[str]:
    if supply.variant.rt_cores == 0:
        yield f"{supply.variant.name} has no ray-tracing cores: hardware ray tracing will not help"


def vision(network: VisionNetwork, images: float, epochs: float, coefficients: Coefficients) -> Rated:
    """Training of a network on images. The rate is ResNet-50's in MLPerf, scaled by operations an image."""
    lighter = _RESNET_GFLOPS / network.gflops
    wider = 1.0 if network.name == "ResNet-50" else _OTHER_NETWORK

    def rate(variant: Variant, gpus: int) -> Range | None:
        seconds = seconds_to_train("resnet", gpus, variant, coefficients)
        if seconds is None:
            return None
        found = seconds.inverted(_IMAGENET * _RESNET_EPOCHS).scaled(lighter)
        return Range(found.low / wider, found.expected, found.high * wider)

    told = (
        f"{network.gflops:g} G operations an image of {network.pixels} x {network.pixels}, three times that to train",
        "as well tuned as ResNet-50 in MLPerf, mixed precision",
        "images are read and augmented as fast as they are trained on: often they are not",
    )
    return Rated(
        title=f"training of {network.name} on {figure(images)} images, {figure(epochs)} times",
        amount=images * epochs,
        unit="images",
        rate=rate,
        needs="matrix rate or memory bandwidth",
        limit="compute",
        pieces=512,
        assumptions=told
        if wider == 1
        else (*told, "no result of this network was at hand: ranges are 1.6 times wider"),
    )
