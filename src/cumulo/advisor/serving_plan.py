"""How a model is served: with which weights, cache and engine, over how many GPUs."""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from cumulo.advisor.memory import WEIGHT_BYTES
from cumulo.catalog.models import ModelShape
from cumulo.catalog.variants import Variant

ServingPrecision = Literal["fp16", "bf16", "fp8", "int8", "int4", "fp4"]
PRECISIONS: Final[tuple[ServingPrecision, ...]] = ("bf16", "fp16", "fp8", "int8", "fp4", "int4")
ENGINE: Final = "tensorrt-llm-1.0"
"""The engine, and its generation, that rates were fitted to."""


class Held(NamedTuple):
    """How a precision is held and computed: `native` names the rate that its products run at."""

    cache_bytes: float
    native: Literal["fp16", "fp8", "int8", "fp4"]


# Weights in 4-bit integers are unpacked to 16 bits before they are multiplied; a model quantised to 8 or 4 bits is
# mostly served with an 8-bit cache.
_HELD: Final[dict[str, Held]] = {
    "bf16": Held(2.0, "fp16"),
    "fp16": Held(2.0, "fp16"),
    "fp8": Held(1.0, "fp8"),
    "int8": Held(1.0, "int8"),
    "fp4": Held(1.0, "fp4"),
    "int4": Held(2.0, "fp16"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """One replica: `tp` x `pp` GPUs that hold one copy of the model.

    `weight_bits` (bits a parameter, as GGUF files tell) overrules what the precision says of the weights' size.
    """

    shape: ModelShape
    precision: ServingPrecision = "bf16"
    tp: int = 1
    pp: int = 1
    weight_bits: float | None = None
    engine: str = ENGINE

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    @property
    def held(self) -> Held:
        return _HELD[self.precision]

    @property
    def weight_bytes(self) -> float:
        """Of all the weights. Quantised models keep embeddings and the output head in 16 bits."""
        shape = self.shape
        if self.weight_bits is not None:
            return shape.parameters * self.weight_bits / 8
        each = WEIGHT_BYTES[self.precision]
        return each * (shape.parameters - shape.embedding_parameters) + max(each, 2.0) * shape.embedding_parameters

    @property
    def read_bytes(self) -> float:
        """Of the weights that a step reads at most: of the input embedding only the rows of its tokens."""
        shape = self.shape
        unread = 0 if shape.tied else shape.vocab * shape.hidden
        each = 2.0 if self.weight_bits is None else self.weight_bits / 8
        return self.weight_bytes - each * unread

    def cache_bytes(self, context: int) -> float:
        """Of one sequence with so many tokens of context, over all GPUs. Heads that tp can't split are copied."""
        copied = max(self.tp / self.shape.kv_heads, 1.0) if not self.shape.kv_latent else float(self.tp)
        return self.held.cache_bytes * self.shape.kv_values(context) * copied


def supports(variant: Variant, precision: ServingPrecision) -> bool:
    """Whether the board has a dense rate for products in that precision; 4-bit integers only need 16-bit products."""
    return precision_tflops(variant, precision) is not None and (precision != "bf16" or variant.bf16 is not False)


def precision_tflops(variant: Variant, precision: ServingPrecision) -> float | None:
    """The dense rate that the precision's products run at; None where the board has none, or it is unknown."""
    native = _HELD[precision].native
    if native == "fp8":
        return variant.fp8_tensor_tflops
    if native == "int8":
        return variant.int8_tensor_tops
    if native == "fp4":
        return variant.fp4_tensor_tflops
    return variant.fp16_tensor_tflops or variant.fp32_tflops
