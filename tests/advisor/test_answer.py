"""What is marked, what comes first, when spot and reservations pay."""

from dataclasses import replace

import pytest

from cumulo.advisor.advise import Market, advise
from cumulo.advisor.answer import (
    BEST_VALUE,
    BY_DEADLINE,
    CHEAPEST,
    FASTEST,
    best,
    break_even,
    chosen,
    in_budget,
    in_time,
    marked,
)
from cumulo.advisor.estimate import Range
from cumulo.advisor.plans import Estimate, Plan
from cumulo.advisor.questions import Train, Wanted
from cumulo.advisor.search_training import TrainingEstimator
from cumulo.advisor.supply import rented_supplies
from cumulo.catalog.coefficients import coefficients
from cumulo.catalog.models import named_model
from cumulo.domain.quantities import NANO
from cumulo.domain.run import PurchaseOption
from tests.advisor.supplies import supply

HOUR = 3600.0


def plan(kind="H100", *, hours=1.0, usd_h=2.0, gpus=1, purchase=PurchaseOption.ON_DEMAND, **options):
    given = supply(kind, usd_h=None if purchase is not PurchaseOption.ON_DEMAND else usd_h, per_node=1, **options)
    if purchase is PurchaseOption.SPOT:
        given = supply(kind, usd_h=None, spot=usd_h, per_node=1, **options)
    seconds = Range(0.8 * hours * HOUR, hours * HOUR, 1.25 * hours * HOUR)
    return Plan(
        supply=given, gpus=gpus, nodes=gpus, purchase=purchase, price=given.prices.get(purchase), billed_gpus=gpus,
        estimate=Estimate(layout="", rate=seconds.inverted(HOUR), unit="x/s", limit="compute", seconds=seconds),
    )  # fmt: skip


def marks(plans, wanted=None):
    return [each.marks for each in marked(plans, wanted or Wanted())]


def test_cheapest_fastest_and_best_value():
    slow, fair, fast = plan("L4", hours=10, usd_h=1), plan("A100-80GB", hours=5, usd_h=2.2), plan(hours=1, usd_h=20)
    assert marks([slow, fair, fast]) == [(CHEAPEST,), (BEST_VALUE,), (FASTEST,)]


def test_a_deadline_is_met_by_the_whole_range():
    slow, fast = plan("L4", hours=10, usd_h=1), plan(hours=4, usd_h=4)
    wanted = Wanted(deadline_s=11 * HOUR)
    assert (in_time(slow, wanted), in_time(fast, wanted)) == (False, True)  # 12.5 hours at worst
    assert BY_DEADLINE in marks([slow, fast], wanted)[1]
    chosen_plan = best(marked([slow, fast], wanted), wanted, own=False)
    assert chosen_plan is not None
    assert chosen_plan.supply.kind.name == "H100-80GB"


def test_spot_may_be_cheapest_but_promises_no_time():
    spot = plan(hours=1, usd_h=1, purchase=PurchaseOption.SPOT)
    steady = plan("A100-80GB", hours=2, usd_h=3)
    told = marks([spot, steady], Wanted(deadline_s=9 * HOUR))
    assert told == [(CHEAPEST,), (FASTEST, BY_DEADLINE, BEST_VALUE)]


def test_one_s_own_come_first_and_are_marked_among_themselves():
    mine, rented = plan("A100-80GB", hours=9, usd_h=0, own=True, most=8), plan(hours=1)
    shown = chosen(marked([rented, mine], Wanted()), Wanted(), limit=5)
    assert [each.supply.own for each in shown] == [True, False]
    assert all(CHEAPEST in each.marks for each in shown)


def test_what_costs_too_much_is_not_marked():
    cheap, dear = plan("L4", hours=10, usd_h=1), plan(hours=1, usd_h=100)
    wanted = Wanted(budget_nano=50 * NANO)
    assert (in_budget(cheap, wanted), in_budget(dear, wanted)) == (True, False)
    assert marks([cheap, dear], wanted)[1] == ()


def test_what_may_run_out_of_memory_is_marked_only_where_nothing_is_sure():
    tight = plan("L4", hours=1, usd_h=0.1)
    tight = replace(tight, estimate=replace(tight.estimate, tight=True))
    assert marks([tight, plan()])[0] == ()
    assert CHEAPEST in marks([tight])[0]


def test_what_has_no_price_is_never_the_cheapest():
    assert marks([plan("GB300", usd_h=None, hours=0.1), plan()])[0] == ()


def test_break_even_of_spot_and_of_a_reservation():
    sold = supply("H100", usd_h=4, spot=1, reserved=2)
    told = list(break_even(replace(plan(), supply=sold)))
    assert "25% of on demand" in told[0]
    assert "4.0 times as long" in told[0]
    assert "4,380 hours of use a year (50%)" in told[1]


def test_no_spot_price_is_told_and_a_dear_reservation_too():
    told = list(break_even(replace(plan(), supply=supply("H100", usd_h=1, reserved=2))))
    assert "no list has a spot price" in told[0]
    assert "never pays" in told[1]


def subject(**options):
    return TrainingEstimator(
        question=Train(**{"shape": named_model("llama-2-7b"), "method": "lora", "tokens": 1e8, **options}),
        coefficients=coefficients(),
    )


def test_a_newcomer_s_question_is_answered():
    answer = advise(subject(), Market(own=[], rented=rented_supplies()), Wanted(max_gpus=8, deadline_s=24 * HOUR))
    assert answer.recommended is not None
    assert answer.recommended is answer.rented
    assert BY_DEADLINE in answer.recommended.marks
    assert len(answer.plans) <= 12
    assert "at most 8 GPUs" in answer.assumed
    why = "\n".join(answer.reasoning)
    for told in ("cheapest to rent", "Memory on each GPU: weights 12.6", "steps:", "Cost:", "list of 2026", "Spot"):
        assert told in why
    assert "2026-05-20" in answer.prices


def test_the_reasoning_can_be_checked_with_a_calculator():
    answer = advise(subject(), Market(own=[], rented=[supply("H100", per_node=1, usd_h=3)]), Wanted(max_gpus=1))
    (best_plan,) = answer.plans
    assert best_plan.cost is not None
    assert best_plan.estimate.seconds is not None
    assert best_plan.cost.expected == pytest.approx(3 * NANO * best_plan.estimate.seconds.expected / HOUR)
    question = subject().question
    step = sum(part.amount for part in best_plan.estimate.time_parts)
    assert best_plan.estimate.seconds.expected == pytest.approx(300 + step * question.steps, rel=0.02)


def test_own_gpus_that_compute_nothing_or_come_too_late_are_not_recommended():
    mine = supply("A100-80GB", own=True, most=8, usd_h=0)
    market = Market(own=[mine], rented=[supply("H100")])
    emulated = Market(own=[replace(mine, emulated=True)], rented=[supply("H100")])

    def own(asked, market, wanted):
        told = advise(asked, market, wanted).recommended
        assert told is not None
        return told.supply.own

    assert own(subject(), market, Wanted(max_gpus=8))
    assert not own(subject(), emulated, Wanted(max_gpus=8))
    assert not own(subject(tokens=4e9), market, Wanted(max_gpus=8, deadline_s=24 * HOUR))


def test_where_nothing_fits_it_is_told_what_would():
    big = subject(shape=named_model("llama-3.1-70b"), method="full")
    answer = advise(big, Market(own=[], rented=rented_supplies()), Wanted(kinds=frozenset({"A100-80GB"}), max_gpus=1))
    assert answer.plans == ()
    told = "\n".join(answer.suggestions)
    assert "more GPUs: " in told
    assert "QLoRA (4-bit weights): then 1 x A100-80GB" in told
    assert answer.refused
