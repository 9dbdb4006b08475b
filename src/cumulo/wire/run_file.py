"""The run file: what people write to launch something, and what it becomes (`to_spec`).

SkyPilot's names, with the aliases gpu, commands, nodes and env. The same model reads YAML files and the API's
bodies, and its JSON Schema is published.
"""

import json
import time
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, WithJsonSchema
from pydantic.config import JsonDict

from cumulo.domain.ask import Ask, parse_gpu_ask
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import name_from
from cumulo.domain.run import DEFAULT_GRACE_S, FileMount, Retry, RunKind, RunSpec
from cumulo.domain.sharing import Isolation, SharingMode
from cumulo.wire.deadline import deadline_at
from cumulo.wire.fields import (
    ArrayText,
    CpusMilli,
    DeadlineText,
    Env,
    Gpus,
    MemoryBytes,
    Mounts,
    Name,
    Pattern,
    Price,
    RunNames,
    Script,
    Seconds,
    parse_array,
    type_words,
)
from cumulo.wire.gpu_ask import ISOLATION, Contradiction, complete
from cumulo.wire.level import Level, sentence_of
from cumulo.wire.purchase import Bought, bought
from cumulo.wire.uploads import FileMounts, Upload, UploadField

MAX_NODES: Final = 10_000
MAX_DURATION_S: Final = 365 * 86400.0


class ResourcesFile(Level):
    """What each node must give."""

    refused: ClassVar[dict[str, str]] = {
        "cloud": "has no effect here: say where by region",
        "zone": "has no effect here: say where by region",
        "infra": "has no effect here: say where by region",
        "instance_type": "has no effect here: ask for accelerators, cpus and memory",
        "accelerator_args": "has no effect here",
        "image_id": "can't be chosen yet: runs see this machine's own system",
        "disk_size": "can't be asked for yet: runs share the disk of their node",
        "disk_tier": "can't be asked for yet: runs share the disk of their node",
        "ports": "need not be opened: every port that a run listens on can be reached through Cumulo",
        "labels": "can't be asked for yet",
        "any_of": "is not known; name alternatives in one ask, such as A100,H100:8",
        "ordered": "is not known; name alternatives in one ask, such as A100,H100:8",
        "job_recovery": "is called retry here, beside resources",
        "autostop": "is not known here; give max_duration beside resources",
        "network_tier": "has no effect here",
        "local_disk": "can't be asked for yet",
        "priority": "stands beside resources, not in it",
    }
    aliases: ClassVar[dict[str, str]] = {"gpu": "accelerators", "gpus": "accelerators"}

    accelerators: Gpus | None = Field(
        default=None, description="GPUs of each node: A100:8, 24GB.., H100:0.25, H100:mig-1g.10gb:2"
    )
    cpus: CpusMilli | None = Field(default=None, description="CPUs of each node: 4, 0.5")
    memory: MemoryBytes | None = Field(
        default=None, description="memory of each node: 16GB, 512MB; a bare number is GB"
    )
    gpu_memory: MemoryBytes | None = Field(
        default=None, description="a part of one GPU, by its memory: 20GB; others share the rest"
    )
    sharing: Literal["mps", "timeslice"] | None = Field(
        default=None, description="how a part of a GPU is shared; the best there is if left out"
    )
    isolation: Literal["any", "hard"] = Field(
        default="any", description="hard: only a GPU or a MIG slice of its own, in a sandbox"
    )
    use_spot: bool = Field(default=False, description="may be preempted; then it is queued again")
    max_price: Price | None = Field(
        default=None,
        description="what a spot run pays for a GPU at most, in USD per hour; whatever it costs if left out",
    )
    purchase: Literal["on-demand", "spot", "reserved"] | None = Field(
        default=None, description="how its GPUs are bought; reserved draws on any reservation of the project"
    )
    reservation: Name | None = Field(default=None, description="the reservation that it draws on, by name or id")
    region: Name | None = Field(default=None, description="where; this cloud's own machine is the region `local`")


class RetryFile(Level):
    """When a unit gets another attempt."""

    on_events: list[Literal["interruption", "error", "lost"]] = Field(
        default=["interruption", "lost"], description="after which events"
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(default=3, description="attempts in all")
    backoff: Annotated[Seconds, Field(ge=0, le=3600)] = Field(
        default=5.0, description="wait before the next attempt, doubling"
    )


def _retry(value: Any) -> Any:
    if value is True:
        return RetryFile()
    return None if value is False else value


def _requirements(value: Any) -> tuple[str, ...] | str:
    """Lines of pip, or the path of a requirements file, which the client reads."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or len(value) > 2000:
        raise ValueError("must be a list of requirements such as [numpy, torch==2.5], or the path of a file of them")
    lines = [str(line).split(" #")[0].strip() if isinstance(line, str) else line for line in value]
    for line in lines:
        if not isinstance(line, str) or len(line) > 2000 or not line.isprintable():
            raise ValueError(f"{line!r:.80} is not a requirement; write for example numpy or torch==2.5")
    return tuple(line for line in lines if line and not line.startswith("#"))


def _or_boolean(schema: JsonDict) -> None:
    choices = schema["anyOf"]
    if isinstance(choices, list):
        choices.append({"type": "boolean"})


Requirements = Annotated[
    tuple[str, ...] | str,
    BeforeValidator(_requirements),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]


class RunFile(Level):
    """A run as people write it. Only `run` is needed."""

    aliases: ClassVar[dict[str, str]] = {"commands": "run", "nodes": "num_nodes", "env": "envs"}
    refused: ClassVar[dict[str, str]] = {
        "service": "services that scale have not landed yet",
        "secrets": "secrets have not landed yet; don't put them into envs, which people who share the run may read",
        "volumes": "volumes have not landed yet; name folders of the machine under mounts",
        "image": "images have not landed yet: runs see this machine's own system",
        "ports": "need not be named: every port that a run listens on can be reached through Cumulo",
        "config": "has no effect here",
        "python": "can't be chosen yet: a run's environment has the server's Python",
    }

    name: Name | None = Field(default=None, description="1 to 63 of a-z, 0-9, '-', '_' and '.'")
    kind: Literal["task", "dev"] = Field(default="task", description="task: ends by itself; dev: a server that stays")
    run: Script | None = Field(default=None, description="the command: a shell script, or a list of lines")
    setup: Script | None = Field(
        default=None, description="prepares the run's own environment, which is kept by content"
    )
    requirements: Requirements | None = Field(
        default=None, description="Python packages: lines of pip, or a file of them"
    )
    workdir: UploadField | None = Field(default=None, description="the folder that travels with the run")
    num_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = Field(default=1, description="nodes, all or none")
    resources: ResourcesFile = Field(default_factory=lambda: ResourcesFile(), description="what each node must give")
    gpu: Gpus | None = Field(default=None, description="the same as resources.accelerators")
    envs: Env = Field(default_factory=dict, description="environment variables")
    file_mounts: FileMounts = Field(default_factory=dict, description="files that travel: target to source")
    mounts: Mounts = Field(default_factory=list, description="folders of the node the run sees, such as /data and ~")
    runtime: Literal["process", "sandbox"] | None = Field(
        default=None, description="isolation; the best there is if left out"
    )
    array: ArrayText | None = Field(default=None, description="0-499, or 0-499%16 for 16 at once")
    priority: Annotated[int, Field(ge=-100, le=100)] = Field(default=0, description="higher goes first")
    after: RunNames = Field(default_factory=list, description="runs that must succeed first")
    max_duration: Annotated[Seconds, Field(gt=0, le=MAX_DURATION_S)] | None = Field(
        default=None, description="an attempt is stopped after this long"
    )
    deadline: DeadlineText | None = Field(
        default=None, description="when it is to be done, at the least cost: 20h, 18:00, 2026-12-24T18:00+01:00"
    )
    work: Annotated[Seconds, Field(gt=0, le=MAX_DURATION_S)] | None = Field(
        default=None, description="how long it runs for its deadline, all attempts together; else learnt from progress"
    )
    grace: Annotated[Seconds, Field(ge=0, le=3600)] = Field(
        default=DEFAULT_GRACE_S, description="from SIGTERM to SIGKILL when stopped"
    )
    retry: Annotated[RetryFile | None, BeforeValidator(_retry)] = Field(
        default=None,
        description="when to try again",
        json_schema_extra=_or_boolean,
    )
    migratable: bool = Field(
        default=False, description="may be stopped and placed elsewhere to make room, where the admin allows that"
    )
    progress: Pattern | None = Field(default=None, description=r"a regular expression over the log: step (\d+)/(\d+)")
    project: Annotated[Name, AfterValidator(str)] = Field(default="default", description="who pays")

    @property
    def gpu_path(self) -> tuple[str, ...]:
        """The key that the ask for GPUs stands under."""
        return ("gpu",) if self.gpu else ("resources", "accelerators")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Turns a checked file into a spec, where what is wrong depends on several keys at once."""

    file: RunFile
    planning: bool
    now: float

    def spec(self) -> RunSpec:
        file = self.file
        kind = RunKind(file.kind)
        if not (file.run or "").strip() and kind is RunKind.TASK:
            raise _refused(("run",), "is missing: say what to run, or 'kind: dev' for a server to work on")
        if file.array and kind is RunKind.DEV:
            raise _refused(("array",), "a dev run is one server; it can't be an array")
        self.check_deadline()
        bought = self.bought()
        return RunSpec(
            name=file.name or name_from((file.run or "dev").strip().split("\n")[0][:60]),
            kind=kind,
            ask=self.ask(),
            command=file.run or "",
            setup=file.setup or "",
            requirements=self.requirements(),
            env=dict(file.envs),
            workdir=self.digest(("workdir",), file.workdir) if file.workdir else None,
            file_mounts=self.file_mounts(),
            mounts=tuple(file.mounts),
            runtime=file.runtime,
            array=parse_array(file.array) if file.array else None,
            priority=file.priority,
            after=tuple(file.after),
            max_duration_s=file.max_duration,
            grace_s=file.grace,
            retry=self.retry(),
            deadline_at=deadline_at(file.deadline, self.now) if file.deadline else None,
            work_s=file.work,
            purchase=bought.option,
            max_price_nano_h=bought.max_price_nano_h,
            reservation=bought.reservation,
            migratable=file.migratable,
            progress_regex=file.progress,
            project=file.project,
        )

    def ask(self) -> Ask:
        file, resources = self.file, self.file.resources
        if file.gpu and resources.accelerators:
            raise _refused(("gpu",), "is the same as resources.accelerators, which is given as well; give one")
        if resources.region not in (None, "local"):
            raise _refused(("resources", "region"), f"there is no region {resources.region!r}; this cloud has 'local'")
        if resources.isolation == "hard" and file.runtime == "process":
            raise _refused(ISOLATION, "hard needs the runtime sandbox: process hides devices without fencing them")
        text = file.gpu or resources.accelerators
        try:
            gpu = complete(
                parse_gpu_ask(text) if text else None,
                path=file.gpu_path,
                memory=resources.gpu_memory,
                sharing=SharingMode(resources.sharing) if resources.sharing else None,
                isolation=Isolation(resources.isolation),
            )
        except Contradiction as error:
            raise _refused(error.path, error.message) from None
        return Ask(
            gpu=gpu,
            cpus_milli=resources.cpus,
            memory_bytes=resources.memory,
            nodes=file.num_nodes,
            isolation=Isolation(resources.isolation),
        )

    def requirements(self) -> tuple[str, ...]:
        given = self.file.requirements or ()
        if isinstance(given, tuple):
            return given
        if self.planning:
            return ()
        raise _refused(("requirements",), "is the path of a file; the client that submits must send its lines")

    def digest(self, path: tuple[str, ...], upload: Upload) -> str:
        if upload.manifest is None and not self.planning:
            raise _refused(path, "is a path; the client that submits must upload it and send its manifest")
        return upload.manifest or ""

    def file_mounts(self) -> tuple[FileMount, ...]:
        return tuple(
            FileMount(target=target, manifest=self.digest(("file_mounts", target), upload))
            for target, upload in self.file.file_mounts.items()
        )

    def bought(self) -> Bought:
        resources = self.file.resources
        try:
            return bought(
                purchase=resources.purchase,
                use_spot=resources.use_spot,
                max_price=resources.max_price,
                reservation=resources.reservation,
                gpus=bool(self.file.gpu or resources.accelerators or resources.gpu_memory),
                deadline=self.file.deadline is not None,
            )
        except Contradiction as error:
            raise _refused(error.path, error.message) from None

    def check_deadline(self) -> None:
        """What contradicts a deadline, which needs an end to come and a choice of how to buy."""
        file = self.file
        if file.deadline is None:
            if file.work is not None:
                raise _refused(("work",), "is how long the work takes for a deadline, which is missing")
            return
        if file.kind == "dev":
            raise _refused(("deadline",), "a dev run stays until it is stopped; it can't be done by a time")
        if file.resources.use_spot:
            text = "a deadline chooses between spot and on-demand as time passes; leave use_spot out"
            raise _refused(("resources", "use_spot"), text)
        if file.work and file.max_duration and file.work > file.max_duration:
            raise _refused(("work",), "takes longer than max_duration lets an attempt run")

    def retry(self) -> Retry | None:
        given = self.file.retry
        if given is None:
            return None
        return Retry(on_events=frozenset(given.on_events), max_attempts=given.max_attempts, backoff_s=given.backoff)


def _refused(path: tuple[str, ...], message: str) -> CumuloError:
    return CumuloError("invalid_run_file", f"{'.'.join(path)}: {message}", details={"path": list(path)})


def read_run_file(data: Any) -> RunFile:
    """Checks what YAML or JSON gave. Raises CumuloError (invalid_run_file, invalid_ask, not_supported_yet)."""
    if not isinstance(data, dict):
        raise CumuloError("invalid_run_file", f"a run file must be a mapping of keys, not {type_words(data)}")
    try:
        return RunFile.model_validate(data)
    except ValidationError as error:
        raise sentence_of(error) from None


def to_spec(file: RunFile, *, planning: bool = False, now: float | None = None) -> RunSpec:
    """The run that a file describes. With `planning`, paths that are not uploaded yet are let through (as "").

    `after` still holds what was written: names or ids. A deadline counts from `now` (epoch seconds; None: this moment).
    Raises CumuloError.
    """
    return _Reading(file=file, planning=planning, now=time.time() if now is None else now).spec()


def schema() -> dict[str, Any]:
    """The JSON Schema of a run file (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Cumulo run file",
        **{key: value for key, value in RunFile.model_json_schema(mode="validation").items() if key != "title"},
    }


if __name__ == "__main__":  # python -m cumulo.wire.run_file > docs/run-file.schema.json
    print(json.dumps(schema(), indent=2))
