"""The run file of a plan is one that Cumulo takes, and asks for what the plan says."""

from dataclasses import replace

import pytest

from cumulo.advisor.estimate import Range
from cumulo.advisor.launchable import ask, run_of
from cumulo.advisor.plans import Estimate, Plan
from cumulo.domain.quantities import GIB
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import SharingMode
from cumulo.wire.run_file import read_run_file, to_spec
from tests.advisor.supplies import supply


def plan(given=None, *, gpus=8, nodes=1, purchase=PurchaseOption.ON_DEMAND):
    estimate = Estimate(
        layout="", rate=Range.exactly(1), unit="tokens/s", limit="compute", settings={"micro_batch": 2, "seq": 4096}
    )
    return Plan(
        supply=given or supply("H100"), gpus=gpus, nodes=nodes, purchase=purchase, price=None, billed_gpus=gpus,
        estimate=estimate,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "nodes", "asked"), [(8, 1, "H100-80GB:8"), (16, 2, "H100-80GB:8"), (1, 1, "H100-80GB:1")]
)
def test_it_asks_for_each_node_s_gpus(gpus, nodes, asked):
    spec = to_spec(
        read_run_file(run_of(plan(gpus=gpus, nodes=nodes), command="python train.py", name="Train Llama-3.1 8B"))
    )
    assert spec.ask.gpu is not None
    assert spec.ask.gpu.canonical == asked
    assert spec.ask.nodes == nodes
    assert spec.name == "train-llama-3-1-8b"
    assert spec.env["MICRO_BATCH"] == "2"
    assert ("torchrun" in spec.command) == (gpus > 1)


def test_slices():
    part = replace(supply("A100-80GB", own=True, most=2), share=3 / 7, profile="3g.40gb", mode=SharingMode.MIG)
    assert ask(plan(part, gpus=1)) == "A100-80GB:mig-3g.40gb"
    shared = replace(supply("L4", own=True, most=1), share=0.5, mode=SharingMode.MPS)
    spec = to_spec(read_run_file(run_of(plan(shared, gpus=1), command="python train.py", name="x")))
    assert spec.ask.gpu is not None
    assert (spec.ask.gpu.milli, spec.ask.gpu.sharing) == (500, SharingMode.MPS)


def test_spot_tries_again():
    spec = to_spec(read_run_file(run_of(plan(purchase=PurchaseOption.SPOT), command="python train.py", name="x")))
    assert spec.purchase is PurchaseOption.SPOT
    assert spec.retry is not None


def test_a_host_that_keeps_states_is_asked_for_its_memory():
    found = plan(gpus=16, nodes=2)
    found = replace(found, estimate=replace(found.estimate, host_bytes=10.5 * GIB))
    spec = to_spec(read_run_file(run_of(found, command="python train.py", name="train")))
    assert spec.ask.memory_bytes == 84 * GIB
