"""Other estimators, by their formulae."""

from dataclasses import replace

import pytest

from bench.advisor.peers import llm_analysis_seconds
from cumulo.advisor.topology import typical_cluster
from cumulo.advisor.training_plan import TrainingPlan
from cumulo.catalog.kinds import find
from cumulo.catalog.models import named_model

PLAN = TrainingPlan(shape=named_model("GPT-3-175B"), seq=2048, global_batch=1536, tp=8, pp=8, dp=24, recompute="full")


def cluster(name):
    kind = find(name)[0]
    assert kind.typical
    return typical_cluster(kind.typical, kind.architecture, memory_bytes=kind.memory_bytes, gpus=1536)


def test_llm_analysis_counts_as_the_megatron_paper_and_takes_half_the_peak():
    """Eq. 3 of arXiv:2104.04473: 96 B s l h^2 (1 + s/6h + V/16lh), the head computed again as well."""
    shape = PLAN.shape
    layers = 96 * 1536 * 2048 * shape.layers * shape.hidden**2
    counted = layers * (1 + 2048 / (6 * shape.hidden) + shape.vocab / (12 * shape.layers * shape.hidden))
    found = llm_analysis_seconds(PLAN, cluster("A100-80GB"))
    assert found == pytest.approx(counted / (0.5 * 312e12 * 1536))


def test_less_recomputation_takes_less_and_eight_bits_half():
    board = cluster("H100-80GB")
    full, some, none = (
        llm_analysis_seconds(replace(PLAN, recompute=each), board) or 0 for each in ("full", "selective", "none")
    )
    assert none == pytest.approx(0.75 * full)
    assert none < some < full
    assert llm_analysis_seconds(replace(PLAN, precision="fp8"), board) == pytest.approx(full / 2, rel=0.01)


def test_what_it_leaves_out_has_no_time():
    mixture = replace(PLAN, shape=named_model("Mixtral-8x7B"))
    assert llm_analysis_seconds(mixture, cluster("A100-80GB")) is None
    assert llm_analysis_seconds(PLAN, cluster("K80")) is None
