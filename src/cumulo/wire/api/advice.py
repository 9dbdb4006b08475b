"""What the advisor is asked and what it answers.

Exactly one kind of work is asked about. Numbers are plain: a client turns `2B` tokens or `24h` into them.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cumulo.wire.api.model import Body, Model, NamingBody
from cumulo.wire.run_file import RunFile

Count = Annotated[int, Field(ge=1, le=10**9)]
Amount = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86400, allow_inf_nan=False)]
Word = Annotated[str, Field(min_length=1, max_length=120)]


class ModelNumbers(Body):
    """A transformer that no table has. `ffn` is an expert's width where there are experts."""

    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn: Count
    vocab: Count
    gated: bool = True
    tied: bool = False
    experts: Annotated[int, Field(ge=0, le=100_000)] = 0
    active_experts: Annotated[int, Field(ge=0, le=100_000)] = 0
    context: Count | None = None


class LanguageModel(Body):
    """Which model: its name, its Hugging Face `config`, or its numbers."""

    model: Word | None = None
    config: Annotated[dict[str, Any], Field(max_length=500)] | None = None
    shape: ModelNumbers | None = None

    @model_validator(mode="after")
    def one_model(self) -> Self:
        """One of the three says which model."""
        if sum(given is not None for given in (self.model, self.config, self.shape)) != 1:
            raise ValueError("give one of model (a name), config (a config.json) and shape (numbers)")
        return self


class TrainQuestion(LanguageModel):
    """Training of a language model. Without `tokens` only the rate is told; what is left out is chosen."""

    method: Literal["full", "lora", "qlora"] = "full"
    tokens: Amount | None = None
    seq: Count = 4096
    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp8"] | None = None
    optimizer: Literal["adamw", "adamw-bf16", "adamw-8bit", "paged-8bit", "adamw-host", "sgd"] = "adamw"
    global_batch: Annotated[Count | None, Field(description="sequences in a step")] = None
    micro_batch: Annotated[Count | None, Field(description="sequences on a GPU at once")] = None
    recompute: Annotated[Literal["none", "selective", "full"] | None, Field(description="of activations")] = None
    rank: Annotated[Count, Field(description="of LoRA's matrices")] = 16


class ServeQuestion(LanguageModel):
    """Serving a language model: `users` at once with `context` tokens each, or as much as it takes."""

    context: Annotated[Count, Field(description="tokens a request may have, its answer included")] = 4096
    prompt: Annotated[
        Count | None, Field(description="tokens of a prompt; three quarters of the context if left out")
    ] = None
    users: Annotated[Count | None, Field(description="requests in flight at once; as many as fit if left out")] = None
    ttft_s: Annotated[Seconds | None, Field(description="to the first token, at most")] = None
    tpot_s: Annotated[Seconds | None, Field(description="for each further token, at most")] = None
    precisions: Annotated[
        list[Literal["fp16", "bf16", "fp8", "fp4", "int8", "int4"]],
        Field(min_length=1, max_length=6, description="of the weights; each is tried; bf16 if left out"),
    ] = Field(default_factory=lambda: ["bf16"])  # type: ignore[arg-type]


class VisionQuestion(Body):
    """Training of a named vision network on `images`, `epochs` times."""

    model: Word
    images: Amount
    epochs: Amount = 1


class HpcQuestion(Body):
    """Molecular dynamics by `code`, or floating-point work of `precision` in general."""

    code: Word | None = None
    atoms: Amount | None = None
    ns: Annotated[Amount | None, Field(description="nanoseconds to simulate")] = None
    precision: Literal["fp64", "fp32"] | None = None
    flops: Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False, description="operations in all")] | None = None

    @model_validator(mode="after")
    def one_kind(self) -> Self:
        """A code with its atoms, or a precision."""
        if self.code is None and self.precision is None:
            raise ValueError("give a code with its atoms, or a precision")
        if self.code is not None and self.atoms is None:
            raise ValueError("atoms are missing: how large is the system?")
        if self.code is not None and (self.precision is not None or self.flops is not None):
            raise ValueError("code and precision contradict each other: a code computes as it does; give one")
        if self.code is None and (self.atoms is not None or self.ns is not None):
            raise ValueError("atoms and ns say nothing without a code")
        return self


class RenderQuestion(Body):
    """Rendering of `frames` at `samples` a pixel, or of frames of which one took `frame_s` on `measured_on`."""

    engine: Word = "cycles"
    frames: Annotated[int, Field(ge=1, le=10**6)] = 1
    samples: Count = 1024
    width: Count = 1920
    height: Count = 1080
    frame_s: Seconds | None = None
    measured_on: Word | None = None

    @model_validator(mode="after")
    def measured(self) -> Self:
        """A time says something with the GPU it was taken on, and a GPU with a time."""
        if (self.frame_s is None) != (self.measured_on is None):
            raise ValueError("give frame_s and measured_on together: how long a frame took, and on which GPU")
        return self


class ProveQuestion(Body):
    """Zero-knowledge proofs: `constraints` of a circuit, or `cycles` of a virtual machine."""

    system: Word
    constraints: Amount | None = None
    cycles: Amount | None = None
    proofs: Annotated[int, Field(ge=1, le=10**7)] = 1


class HashQuestion(Body):
    """Hashing: how fast, and what a number of `hashes` takes."""

    algorithm: Word = "ethash"
    hashes: Amount | None = None


class Limits(Body):
    """What a plan must keep to. `gpu` is an ask such as `A100,H100` or `24GB..`; lists that are empty allow all."""

    deadline_s: Seconds | None = None
    budget_usd: Amount | None = None
    gpu: Annotated[str, Field(max_length=256)] | None = None
    max_gpus: Annotated[int, Field(ge=1, le=16_384)] | None = None
    clouds: Annotated[list[Word], Field(max_length=32)] = Field(default_factory=list)
    regions: Annotated[list[Word], Field(max_length=64)] = Field(default_factory=list)
    purchases: Annotated[list[Literal["on-demand", "spot", "reserved"]], Field(max_length=3)] = Field(
        default_factory=list
    )
    own: Annotated[Literal["first", "only", "none"], Field(description="this cloud's GPUs")] = "first"


WORKLOADS = ("train", "serve", "vision", "hpc", "render", "prove", "hash", "run")


class AdviceQuestion(NamingBody):
    """One kind of work, and the limits. A `run` is a run file: what it asks for, and what its command tells."""

    train: TrainQuestion | None = None
    serve: ServeQuestion | None = None
    vision: VisionQuestion | None = None
    hpc: HpcQuestion | None = None
    render: RenderQuestion | None = None
    prove: ProveQuestion | None = None
    hash: HashQuestion | None = None
    run: RunFile | None = None
    limits: Limits = Field(default_factory=Limits)
    limit: Annotated[int, Field(ge=1, le=100, description="plans shown beside the marked ones")] = 6

    @model_validator(mode="after")
    def one_kind(self) -> Self:
        """One kind of work at a time."""
        if sum(getattr(self, name) is not None for name in WORKLOADS) != 1:
            raise ValueError(f"give exactly one of {', '.join(WORKLOADS)}")
        return self


class Interval(Model):
    """What is expected, and the bounds within which it should lie as often as `confidence` says."""

    low: float
    expected: float
    high: float


class AdviceFigure(Model):
    """A latency, a share, a rate beside the main one."""

    name: str
    value: Interval
    unit: str


class AdvicePlan(Model):
    """So many GPUs of one kind, how the work is spread over them, and what comes of it.

    `memory_need_gb` is of one GPU, against `memory_gb` there; `seconds` and `cost_usd` are of all the work, null where
    it has no end or no price. What is not known is null, never 0. `rental_usd_h` is what one's own would rent for.
    """

    gpu: str
    gpus: int
    nodes: int
    gpus_per_node: int
    own: bool
    region: str
    instance_type: str
    mode: str
    profile: str | None
    emulated: bool
    free: int | None
    purchase: str
    price_usd_h: float | None
    price_date: str | None
    rental_usd_h: float | None
    layout: str
    memory_need_gb: Interval | None
    memory_gb: float
    seconds: Interval | None
    cost_usd: Interval | None
    rate: Interval
    unit: str
    unit_cost_usd: Interval | None
    limit: str
    figures: list[AdviceFigure]
    marks: list[str]
    notes: list[str]
    in_time: bool
    in_budget: bool


class Advice(Model):
    """Plans, this cloud's own first. `own` and `rented` are places in the list: the best of each; null without any.

    `recommended` is one of the two: `own` if it is real and in time. `reasoning` derives its numbers; `launch` is a run
    file for `own`, else for `rented`; `unit_cost_usd` is for `per` units of work. `suggestions` say what would let the
    work run where nothing fits.
    """

    asked: str
    confidence: float
    recommended: int | None
    own: int | None
    rented: int | None
    plans: list[AdvicePlan]
    considered: int
    reasoning: list[str]
    warnings: list[str]
    assumed: list[str]
    refused: list[str]
    suggestions: list[str]
    prices: str
    per: float
    launch: dict[str, Any] | None
