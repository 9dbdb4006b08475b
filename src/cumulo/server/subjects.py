"""From a question to what the advisor works on: one subject, a name for its run, and the command that would do it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cumulo.advisor.advise import Subject
from cumulo.advisor.launchable import TRAIN
from cumulo.advisor.search_laws import Rated
from cumulo.advisor.search_proofs import hashing, proving
from cumulo.advisor.search_run import held
from cumulo.advisor.search_science import floating_point, molecular_dynamics, rendering, timed_rendering, vision
from cumulo.advisor.search_serving import ServingEstimator
from cumulo.advisor.search_training import TrainingEstimator
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.kinds import GpuKind, find
from cumulo.catalog.models import find_model
from cumulo.catalog.vision import vision_network
from cumulo.domain.errors import CumuloError
from cumulo.domain.run import RunSpec
from cumulo.server import asking
from cumulo.wire.api.advice import (
    AdviceQuestion,
    HpcQuestion,
    ProveQuestion,
    RenderQuestion,
    ServeQuestion,
    TrainQuestion,
)
from cumulo.wire.run_file import to_spec

_ONE_NODE = 8
_VLLM = (
    "vllm serve $MODEL --tensor-parallel-size $TENSOR_PARALLEL --pipeline-parallel-size $PIPELINE_PARALLEL "
    "--max-model-len $CONTEXT"
)
_SERVERS = ("vllm", "sglang", "trtllm-serve", "lmdeploy", "text-generation-launcher", "llama-server")
_WORD = re.compile(r"[\w./@:+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A subject; `most` GPUs where none are named, `kinds` where the question itself names some.

    `command` and `more` go into the run file of what is recommended.
    """

    subject: Subject
    name: str
    most: int | None = None
    kinds: frozenset[str] = frozenset()
    command: str = TRAIN
    more: Mapping[str, Any] = field(default_factory=dict)


def subject_of(body: AdviceQuestion) -> Asked:
    """What is asked about. Raises CumuloError (invalid_request, invalid_run_file, unknown_gpu)."""
    held_constants = coefficients()
    if body.train is not None:
        return _train(body.train)
    if body.serve is not None:
        return _serve(body.serve)
    if body.vision is not None:
        network = vision_network(body.vision.model)
        subject = vision(network, body.vision.images, body.vision.epochs, held_constants)
        return Asked(subject=subject, name=f"train-{network.name}", most=_ONE_NODE)
    if body.hpc is not None:
        return _hpc(body.hpc)
    if body.render is not None:
        return _render(body.render)
    if body.prove is not None:
        return _prove(body.prove)
    if body.hash is not None:
        subject = hashing(body.hash.algorithm, body.hash.hashes, held_constants)
        return Asked(subject=subject, name=f"hash-{body.hash.algorithm}", command="hashcat --benchmark")
    assert body.run is not None  # noqa: S101 (the body has checked that one is given)
    return _run(to_spec(body.run, planning=True))


def _train(given: TrainQuestion) -> Asked:
    question = asking.train(given)
    return Asked(
        subject=TrainingEstimator(question=question, coefficients=coefficients()),
        name=f"{question.method}-{question.shape.name}",
        most=None if question.method == "full" else _ONE_NODE,
        more={"envs": envs} if (envs := _told_to_train(given)) else {},
    )


def _told_to_train(given: TrainQuestion) -> dict[str, Any]:
    """What of the question the program must be told beside how it is spread; `_run` reads it back."""
    told = {"MODEL": given.model, "TOKENS": None if given.tokens is None else int(given.tokens)}
    return {name: value for name, value in told.items() if value is not None}


def _serve(given: ServeQuestion) -> Asked:
    question = asking.serve(given)
    return Asked(
        subject=ServingEstimator(question=question, coefficients=coefficients()),
        name=f"serve-{question.shape.name}",
        most=_ONE_NODE if question.users is None else None,
        command=_VLLM,
        more={"envs": {"MODEL": given.model or "."}},
    )


def _hpc(given: HpcQuestion) -> Asked:
    if given.code is None:
        precision = given.precision or "fp64"
        return Asked(subject=floating_point(given.flops, precision), name=precision, command="./solve")
    subject = molecular_dynamics(given.code, given.atoms or 0.0, given.ns, coefficients())
    commands = {"gromacs": "gmx mdrun -deffnm md", "amber": "pmemd.cuda -O -i md.in", "namd": "namd3 md.namd"}
    return Asked(
        subject=subject, name=f"{given.code}-md", command=commands.get(given.code.lower(), "python simulate.py")
    )


def _render(given: RenderQuestion) -> Asked:
    subject: Rated
    if given.frame_s is not None and given.measured_on is not None:
        subject = timed_rendering(
            given.frames, given.frame_s, _kind(given.measured_on), coefficients(), engine=given.engine
        )
    else:
        pixels = given.width * given.height
        subject = rendering(given.engine, given.frames, given.samples, pixels, coefficients())
    return Asked(
        subject=subject,
        name=f"render-{given.engine}",
        most=min(given.frames, 64),
        command="blender -b scene.blend -E CYCLES -f $CUMULO_ARRAY_INDEX -- --cycles-device CUDA",
        more={"array": f"1-{given.frames}"} if given.frames > 1 else {"envs": {"CUMULO_ARRAY_INDEX": 1}},
    )


def _kind(name: str) -> GpuKind:
    (kind, *_) = sorted(find(next(iter(asking.kinds_of(name)))), key=lambda kind: kind.memory_bytes)
    return kind


def _prove(given: ProveQuestion) -> Asked:
    subject = proving(
        given.system,
        constraints=given.constraints,
        cycles=given.cycles,
        proofs=given.proofs,
        coefficients=coefficients(),
    )
    return Asked(subject=subject, name=f"prove-{given.system}", most=min(given.proofs, _ONE_NODE), command="./prove")


def _run(spec: RunSpec) -> Asked:
    """By the model that its command or environment names, else by what it asks for."""
    told = " ".join([spec.command, *spec.env.values()])
    for word in _words(told):
        if find_model(word) is not None:
            if any(server in told for server in _SERVERS):
                return _serve(ServeQuestion(model=word))
            numbers = {name: _number(spec.env.get(name.upper(), "")) for name in ("tokens", "seq", "global_batch")}
            given: dict[str, Any] = {name: value for name, value in numbers.items() if value}
            return _train(TrainQuestion(model=word, method=_method(told), **given))
    if spec.ask.gpu is None:
        raise CumuloError(
            "invalid_request",
            "the run asks for no GPU and names no model, so there is nothing to advise on",
            hint="name a model in its command or envs, or ask for GPUs",
        )
    subject = held(spec.name, spec.ask.gpu, nodes=spec.ask.nodes, seconds=spec.max_duration_s)
    return Asked(subject=subject, name=spec.name, kinds=asking.admitted(spec.ask.gpu), command=spec.command)


def _number(text: str) -> int:
    """A whole number as a run file's envs hold it; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 17 else 0


def _words(text: str) -> Iterator[str]:
    """Words that may name a model: a letter and a digit in them, and no file's ending."""
    for word in _WORD.findall(text):
        name = word.rpartition("/")[2]
        if re.search(r"[A-Za-z]", name) and re.search(r"\d", name) and not name.endswith((".py", ".sh", ".yaml")):
            yield word


def _method(text: str) -> Any:
    return next((method for method in ("qlora", "lora") if method in text.lower()), "full")
