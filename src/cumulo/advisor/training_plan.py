"""How a language model is trained: the method, and how the work is spread over GPUs."""

from dataclasses import dataclass
from typing import Literal

from cumulo.catalog.models import ModelShape

Method = Literal["full", "lora", "qlora", "adapter-v2"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
Optimizer = Literal["adamw", "adamw-bf16", "adamw-8bit", "paged-8bit", "adamw-host", "sgd"]
Recompute = Literal["none", "selective", "full"]
Sharding = Literal["none", "zero1", "zero2", "zero3"]
Stack = Literal["megatron", "megatron-2021", "fsdp", "eager"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """One way to train one model. Sizes of batches are sequences; `tp`, `pp`, `dp`, `cp` and `ep` are group sizes.

    `stack` is the software that the constants were fitted on: Megatron of today (NeMo) or of 2021 (attention not
    fused, collectives not overlapped), compiled FSDP, or eager PyTorch on one GPU. Experts are spread over GPUs of the
    data-parallel group. `trainable` counts the parameters of LoRA's matrices; None: rank 8 on two projections.
    `held_as` is how frozen weights are held (`nf4-dq`); None: `bf16`, and `nf4` for QLoRA. `paged-8bit` is 8-bit AdamW
    whose state moves to the host when room is short, stepping in the backward pass, so that no gradient stays.
    `adamw-host` keeps AdamW's states in the host's memory, where the CPU updates them (ZeRO-Offload, arXiv:2101.06840).
    A `chunked_loss` makes logits of a part of the tokens at a time.
    """

    shape: ModelShape
    method: Method = "full"
    precision: Precision = "bf16"
    optimizer: Optimizer = "adamw"
    seq: int = 4096
    micro_batch: int = 1
    global_batch: int = 1
    recompute: Recompute = "none"
    sharding: Sharding = "none"
    tp: int = 1
    pp: int = 1
    virtual: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    stack: Stack = "fsdp"
    trainable: int | None = None
    held_as: str | None = None
    chunked_loss: bool = False

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def micro_batches(self) -> int:
        """How many a pipeline works off in a step: where they don't come out even, some GPUs wait for the others."""
        return max(-(-self.global_batch // (self.dp * self.micro_batch)), 1)

    @property
    def tokens(self) -> int:
        """Of one micro-batch, on one GPU."""
        return max(self.micro_batch * self.seq // self.cp, 1)

    @property
    def step_tokens(self) -> int:
        return self.global_batch * self.seq

    @property
    def fused_attention(self) -> bool:
        """Whether scores of all pairs of tokens stay out of memory (FlashAttention and its like)."""
        return self.stack != "megatron-2021"

    @property
    def trainable_parameters(self) -> float:
        """What has gradients and optimizer state."""
        if self.method == "full":
            return self.shape.parameters
        if self.trainable is not None:
            return self.trainable
        return self.shape.layers * 4 * 8 * self.shape.hidden
