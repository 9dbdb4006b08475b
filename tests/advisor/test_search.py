"""The search: what it tries, what it leaves out, how plans are priced."""

import time
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.advisor.estimate import Range
from cumulo.advisor.plans import Estimate, Price, Refusal
from cumulo.advisor.questions import Train, Wanted
from cumulo.advisor.search import search
from cumulo.advisor.search_board import cluster_of
from cumulo.advisor.search_training import TrainingEstimator
from cumulo.advisor.supply import rented_supplies
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.models import named_model
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import GIB, NANO
from cumulo.domain.run import PurchaseOption
from tests.advisor.supplies import supply


@dataclass
class Scripted:
    """Work of 1,000 units that each GPU does one of a second, and twice the GPUs do `gain` times as many."""

    gain: float = 2.0
    least: int = 1
    most: int = 1024
    endless: bool = False
    tried: list[tuple[str, int, int]] = field(default_factory=list)

    def least_gpus(self, supply):
        return self.least

    def most_gpus(self):
        return self.most

    def estimate(self, supply, gpus):
        self.tried.append((supply.kind.name, supply.per_node, gpus))
        if gpus < self.least:
            return Refusal("memory", "too little")
        rate = self.gain ** (gpus.bit_length() - 1)
        seconds = None if self.endless else Range.exactly(3600 * 1000 / rate)
        return Estimate(layout="", rate=Range.exactly(rate), unit="units/s", limit="compute", seconds=seconds)


def test_numbers_double_until_they_help_no_more():
    assert [plan.gpus for plan in search(Scripted(), [supply("H100")], Wanted(max_gpus=16)).plans] == [1, 2, 4, 8, 16]
    assert max(plan.gpus for plan in search(Scripted(gain=1.1), [supply("H100")], Wanted()).plans) == 2


def test_one_s_own_number_is_tried_as_well_and_never_more():
    found = search(Scripted(), [supply("A100-80GB", own=True, most=6, per_node=6)], Wanted())
    assert [plan.gpus for plan in found.plans] == [1, 2, 4, 6]


def test_the_whole_node_is_paid_for():
    plans = search(Scripted(), [supply("H100", per_node=8, usd_h=2)], Wanted(max_gpus=16)).plans
    assert [plan.nano_h for plan in plans] == [16 * NANO] * 4 + [32 * NANO]
    assert plans[4].nodes == 2
    assert plans[4].cost is not None
    assert plans[4].cost.expected == pytest.approx(1000 / 16 * 32 * NANO)


def test_one_s_own_node_is_paid_for_as_far_as_it_is_held():
    (plan,) = search(Scripted(), [supply("A100-80GB", own=True, most=8, usd_h=1)], Wanted(max_gpus=1)).plans
    assert plan.nano_h == NANO


def test_nodes_that_just_hold_the_work_are_taken():
    estimator = Scripted()
    search(estimator, [supply("H100", per_node=size) for size in (1, 2, 8)], Wanted(max_gpus=32))
    assert estimator.tried == [("H100-80GB", size, n) for size, n in ((1, 1), (2, 2), (8, 4), (8, 8), (8, 16), (8, 32))]


def test_every_purchase_option_is_a_plan_but_a_year_s_reservation_is_for_what_stays():
    sold = supply("H100", usd_h=3, spot=1, reserved=2)
    options = lambda plans: {plan.purchase for plan in plans}  # noqa: E731
    finite = search(Scripted(), [sold], Wanted(max_gpus=1)).plans
    assert options(finite) == {PurchaseOption.ON_DEMAND, PurchaseOption.SPOT}
    assert options(search(Scripted(endless=True), [sold], Wanted(max_gpus=1)).plans) == set(PurchaseOption)
    asked = Wanted(max_gpus=1, purchases=frozenset({PurchaseOption.RESERVED}))
    assert options(search(Scripted(), [sold], asked).plans) == {PurchaseOption.RESERVED}


def test_what_has_no_price_has_a_plan_without_one():
    (plan,) = search(Scripted(), [supply("GB300", usd_h=None)], Wanted(max_gpus=1)).plans
    assert (plan.price, plan.nano_h, plan.cost, plan.unit_cost) == (None, None, None, None)


def test_why_nothing_fits_is_kept_once_for_a_board():
    found = search(Scripted(least=64), [supply("T4")], Wanted(max_gpus=8))
    assert found.plans == []
    ((_, refusal),) = found.refusals
    assert refusal.reason in ("memory", "few")


def estimator(model, **options):
    return TrainingEstimator(question=Train(shape=named_model(model), **options), coefficients=coefficients())


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("llama-3.1-8b", {"method": "lora", "tokens": 2e9}),
        ("llama-3.1-70b", {"tokens": 1e12, "global_batch": 1024}),
        ("deepseek-v3", {"tokens": 1e13, "global_batch": 4096}),
    ],
)
def test_all_gpus_and_numbers_are_searched_at_once(model, options):
    """The budget is a second of a person's machine; CPU time is compared, with room for a slow one."""
    supplies = rented_supplies()
    began = time.process_time()
    found = search(estimator(model, **options), supplies, Wanted())
    assert time.process_time() - began < 3
    assert len({supply.variant.name for supply in supplies}) >= 50
    assert len(found.plans) > 100


def test_a_board_without_bf16_is_never_advised_for_it():
    for name in ("T4", "V100-32GB"):
        given = estimator("llama-3.2-1b", precision="bf16", method="lora", tokens=1e7).estimate(supply(name), 1)
        assert isinstance(given, Refusal)
        assert "no BF16" in given.text
        free = estimator("llama-3.2-1b", method="lora", tokens=1e7, seq=512).estimate(supply(name), 1)
        assert isinstance(free, Estimate)
        assert any("FP16 with loss scaling" in note for note in free.notes)
        assert free.settings["precision"] == "fp16"


def test_models_that_need_groups_find_them_on_many_gpus():
    estimator = TrainingEstimator(Train(shape=named_model("Llama-33B"), seq=2048, global_batch=2048), coefficients())
    found = estimator.estimate(supply("A100-80GB", per_node=8), 1024)
    assert isinstance(found, Estimate)


def test_a_micro_batch_leaves_no_gpu_idle_that_a_smaller_one_would_not():
    estimator = TrainingEstimator(Train(shape=named_model("Llama-3.2-1B"), global_batch=24), coefficients())
    board = supply("H100")
    best, _ = estimator.best(cluster_of(board, 8), "bf16", sure=True)
    assert best is not None
    assert best.plan.micro_batches * best.plan.micro_batch == 3


def test_states_on_the_host_ask_for_a_host_that_has_the_memory():
    cheap, roomy = (Price(usd * NANO, "cloud region-1", "big", None, gib * GIB) for usd, gib in ((1, 64), (2, 256)))
    board = replace(
        supply("H100", per_node=1),
        prices={PurchaseOption.ON_DEMAND: cheap, PurchaseOption.SPOT: cheap},
        roomier={PurchaseOption.ON_DEMAND: (roomy,)},
    )
    question = Train(shape=named_model("llama-3.1-8b"), tokens=1e8, optimizer="adamw-host")
    (plan,) = search(TrainingEstimator(question, coefficients()), [board], Wanted(max_gpus=1)).plans
    assert plan.price == roomy
    assert plan.estimate.layout.endswith("states on the host")
    assert any("GiB of the host's memory" in note for note in plan.estimate.notes)
    usual = search(
        TrainingEstimator(Train(shape=named_model("llama-3.2-1b"), tokens=1e8), coefficients()), [board], Wanted()
    )
    assert {each.price for each in usual.plans} == {cheap}


def test_what_does_not_fit_is_offered_with_its_states_on_the_host():
    estimator = TrainingEstimator(Train(shape=named_model("llama-3.1-8b"), tokens=1e8), coefficients())
    found = dict(estimator.remedies())
    other = found["optimizer states in the host's memory (--optimizer adamw-host)"]
    assert search(estimator, [supply("H100")], Wanted(max_gpus=1)).plans == []
    assert search(other, [supply("H100")], Wanted(max_gpus=1)).plans


def test_pcie_is_told_where_gpus_exchange_much():
    told = estimator("llama-2-13b", tokens=1e9).estimate(supply("L40S", per_node=8), 8)
    assert isinstance(told, Estimate)
    assert any("PCIe" in note for note in told.notes)


def test_nodes_joined_by_an_unknown_network_are_refused():
    told = estimator("llama-3.1-8b", tokens=1e9).estimate(supply("GH200-96GB", per_node=1), 16)
    assert isinstance(told, Refusal)
    assert told.reason == "network"


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(["llama-3.2-1b", "llama-3.1-8b", "mixtral-8x7b", "llama-3.1-70b"]),
    method=st.sampled_from(["full", "lora", "qlora"]),
    kind=st.sampled_from(["L4", "A100-80GB", "H200-141GB", "MI300X"]),
    gpus=st.sampled_from([1, 2, 4, 8, 64]),
    seq=st.sampled_from([512, 4096]),
)
def test_what_is_advised_fits_and_is_a_range(model, method, kind, gpus, seq):
    asked = estimator(model, method=method, tokens=1e9, seq=seq)
    given_supply = supply(kind)
    answer = asked.estimate(given_supply, gpus)
    if isinstance(answer, Refusal):
        assert answer.text
        return
    assert answer.seconds is not None
    assert answer.memory is not None
    assert 0 < answer.seconds.low <= answer.seconds.expected <= answer.seconds.high
    assert 0 < answer.rate.low <= answer.rate.expected <= answer.rate.high
    assert answer.memory.expected <= given_supply.memory_bytes
    assert answer.tight or answer.memory.high <= given_supply.memory_bytes
    assert sum(part.amount for part in answer.memory_parts) == pytest.approx(answer.memory.expected, rel=1e-6)
    groups = [int(answer.settings.get(name, 1)) for name in ("tensor_parallel", "pipeline_parallel")]
    assert gpus % (groups[0] * groups[1]) == 0


def test_a_bridge_between_two_cards_is_not_reckoned_with():
    sold = supply("H100-80GB")
    pcie = replace(sold, variant=next(each for each in sold.kind.variants if "PCIe" in each.name))
    for given_supply, told in ((sold, False), (pcie, True)):
        found = estimator("llama-2-7b", tokens=1e9).estimate(given_supply, 8)
        assert isinstance(found, Estimate)
        assert any("of each step" in note for note in found.notes) is told


def test_adapters_states_are_not_kept_on_the_host():
    with pytest.raises(CumuloError, match="too few to keep on the host"):
        Train(shape=named_model("llama-3.1-8b"), method="lora", optimizer="adamw-host")
    estimator = TrainingEstimator(Train(shape=named_model("llama-3.1-8b"), optimizer="adamw-host"), coefficients())
    assert [other.question.optimizer for _, other in estimator.remedies() if other.question.method != "full"] == [
        "adamw"
    ] * 2
