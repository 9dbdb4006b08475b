"""What a person asks, checked: numbers are positive and possible, and don't contradict one another.

What travels is `cumulo.wire.api.advice`'s; these are the same questions inside, with defaults filled in and told.
"""

from dataclasses import dataclass
from typing import Final, Literal

from cumulo.advisor.serving_plan import ServingPrecision
from cumulo.advisor.training_plan import Method, Optimizer, Precision, Recompute
from cumulo.catalog.models import ModelShape
from cumulo.domain.errors import CumuloError
from cumulo.domain.run import PurchaseOption

Workload = Literal["train", "serve", "vision", "hpc", "render", "prove", "hash"]
_LONGEST_S: Final = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a plan must keep to, whatever the work: limits, and which GPUs, clouds and purchase options may be used."""

    deadline_s: float | None = None
    budget_nano: int | None = None
    kinds: frozenset[str] = frozenset()
    max_gpus: int | None = None
    clouds: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()
    purchases: frozenset[PurchaseOption] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Training of a language model. `tokens` None: only how fast. What is None is chosen for each GPU.

    `global_batch` is in sequences. `rank` is LoRA's, over all projections.
    """

    shape: ModelShape
    method: Method = "full"
    tokens: float | None = None
    seq: int = 4096
    precision: Precision | None = None
    optimizer: Optimizer = "adamw"
    global_batch: int = 64
    micro_batch: int | None = None
    recompute: Recompute | None = None
    rank: int = 16

    def __post_init__(self) -> None:
        _between("seq", self.seq, 16, 10_000_000)
        _between("global_batch", self.global_batch, 1, 1_000_000)
        _between("rank", self.rank, 1, 16_384)
        if self.tokens is not None:
            _between("tokens", self.tokens, self.seq, 1e16)
        if self.micro_batch is not None:
            _between("micro_batch", self.micro_batch, 1, 4096)
            if self.micro_batch > self.global_batch:
                raise contradiction(
                    f"a micro-batch of {self.micro_batch} is more than the global batch of {self.global_batch}"
                )
        if self.optimizer == "adamw-host" and self.method != "full":
            raise contradiction("adapters' states are too few to keep on the host", "leave the optimizer out")
        context = self.shape.max_context
        if context is not None and self.seq > context and self.method != "full":
            raise contradiction(
                f"sequences of {self.seq:,} tokens are longer than {self.shape.name} takes ({context:,})",
                "train with shorter sequences, or another model",
            )

    @property
    def trainable(self) -> int | None:
        """Parameters that LoRA adds; None where all are trained."""
        if self.method == "full":
            return None
        shape = self.shape
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        attention = 2 * (shape.hidden + queries) + 2 * (shape.hidden + keys)
        feed = (3 if shape.gated else 2) * (shape.hidden + (shape.ffn if not shape.experts else 0))
        return shape.layers * self.rank * (attention + (0 if shape.experts else feed))

    @property
    def steps(self) -> float | None:
        return None if self.tokens is None else max(self.tokens / (self.global_batch * self.seq), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """Serving of a language model. Each of `users` at once has `context` tokens, of which `prompt` are asked.

    `users` None: as many as fit. Each of `precisions` is tried; the fastest counts.
    """

    shape: ModelShape
    context: int
    prompt: int
    users: int | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    precisions: tuple[ServingPrecision, ...] = ("bf16",)

    def __post_init__(self) -> None:
        _between("context", self.context, 2, 100_000_000)
        if self.prompt >= self.context:
            raise contradiction(
                f"a prompt of {self.prompt:,} tokens leaves no answer in a context of {self.context:,}",
                "the context holds both",
            )
        most = self.shape.max_context
        if most is not None and self.context > most:
            raise contradiction(
                f"a context of {self.context:,} tokens is longer than {self.shape.name} takes ({most:,})",
                "ask for less, or for another model",
            )
        if self.users is not None:
            _between("users", self.users, 1, 10_000_000)

    @property
    def answer(self) -> int:
        return self.context - self.prompt


def contradiction(message: str, hint: str = "change one of the two") -> CumuloError:
    return CumuloError("invalid_request", message, hint=hint)


def _between(name: str, value: float, low: float, high: float) -> None:
    """Refuses what is absurd; the edge has refused what is no number."""
    if not low <= value <= high:
        raise CumuloError("invalid_request", f"{name}: {value:g} must be between {low:g} and {high:g}")
