"""What other estimators say of the same plans, from their published formulae: no code of theirs runs here.

llm-analysis (0.2.2) divides the operations of a micro-batch by the peak times a given efficiency: feed-forward layers
are taken to be four times as wide as the model, attention looks at all pairs, recomputation adds what it computes
again. Nothing is sent, no pipeline waits, nothing is launched. Calculon is not on PyPI (another project has that name),
and how well matrix products do is a table of its code: what it was measured to be off stands in docs/accuracy.md.
"""

from typing import Final

from cumulo.advisor.topology import Cluster
from cumulo.advisor.training_plan import TrainingPlan

_EFFICIENCY: Final = 0.5
"""What llm-analysis names as Megatron's."""


def llm_analysis_seconds(plan: TrainingPlan, where: Cluster) -> float | None:
    """Of a step, as llm-analysis reckons a dense model; None where it has no rate or leaves the model out."""
    shape, board = plan.shape, where.variant
    narrow = board.fp8_tensor_tflops if plan.precision in ("fp8", "fp4") else None
    peak = narrow or board.fp16_tensor_tflops
    if shape.experts or not peak:
        return None
    tokens, hidden = plan.micro_batch * plan.seq, shape.hidden
    scores = 4 * tokens * plan.seq * hidden
    layer = tokens * hidden**2 * (4 + 4 * shape.kv_heads / shape.heads + 16) + scores
    forward = shape.layers * layer + 2 * tokens * hidden * shape.vocab
    again = {"full": forward, "selective": shape.layers * scores}.get(plan.recompute, 0.0)
    rate = plan.tp * plan.pp * plan.cp * peak * 1e12 * _EFFICIENCY
    return (3 * forward + again) / rate * plan.micro_batches
