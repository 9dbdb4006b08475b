"""Published results of fine-tuning as plans."""

from bench.advisor import data
from cumulo.advisor.training_plan import Method, TrainingPlan
from cumulo.catalog.models import ModelShape


def finetune_plan(row: data.Cells, method: str, shape: ModelShape, gpus: int) -> TrainingPlan:
    """The plan that a row of fine-tuning tells; `method` in lower case."""
    notes = row.get("notes", "")
    paged = "optimizer-in-backward" in notes or ("single-device recipe" in notes and method == "full")
    full: Method = "adapter-v2" if method.endswith("v2") else "qlora" if held_as(method) != "bf16" else "lora"
    return TrainingPlan(
        shape=shape,
        method="full" if method.startswith("full") else full,
        optimizer="paged-8bit" if paged else "adamw-bf16" if "true" in row.get("precision", "") else "adamw",
        seq=data.whole(row, "seq", 512),
        micro_batch=data.whole(row, "micro_batch", 1),
        global_batch=data.whole(row, "micro_batch", 1) * gpus,
        recompute="full" if data.true(row, "act_ckpt") else "none",
        sharding="zero3" if gpus > 1 else "none",
        dp=gpus,
        stack="fsdp" if "compile" in notes else "eager",
        trainable=data.whole(row, "trainable") or None,
        chunked_loss="torchtune" in row.get("source", ""),
        held_as=None if method.startswith("full") else held_as(method),
    )


def held_as(method: str) -> str:
    """How the weights are held, by the name of a method."""
    if "nf4-dq" in method:
        return "nf4-dq"
    return "nf4" if "nf4" in method or "qlora" in method or "-q-" in method else "bf16"
