"""A unit that runs is bought otherwise in place: nothing stops, and every second is billed once, at its own price."""

import pytest

from cumulo.control.buying import buy_as
from cumulo.control.rates import Rates
from cumulo.control.rules import Rules
from cumulo.domain.lifecycle import EndReason
from cumulo.domain.run import PurchaseOption
from cumulo.store import tables
from cumulo.store.batch import Batch
from tests.control.fakes import GPU, PRICE, Clock, Cloud, FakeEngine, node

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND


@pytest.fixture
def box(quick_db, tmp_path):
    """One node of 4 GPUs."""
    return Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one"),)), rules=Rules()).ready()


def change(cloud, run_id, option, rate=PRICE):
    """As a step of the loop would."""
    batch, run = Batch(), cloud.seen.runs[run_id]
    buy_as(cloud.seen, batch, run, run.units[0], option, Rates(gpu_nano_h={GPU: rate}), cloud.clock())
    with cloud.db.write() as tx:
        batch.flush(tx)
    assert cloud.fresh() == cloud.seen


def test_a_spot_unit_becomes_on_demand_where_it_runs_and_is_preempted_no_more(box):
    run_id, name = box.launch("A100:4", name="spare", purchase=SPOT)
    change(box, run_id, ON_DEMAND)
    box.submit("A100:4", name="urgent")
    box.look()
    assert box.engine.alive() == [name]
    assert (box.instance(name).purchase, box.unit(run_id).purchase) == ("on-demand", "on-demand")
    change(box, run_id, SPOT)
    box.look(2)
    assert name not in box.engine.alive()
    assert "run.preempted" in box.events(run_id)


def test_its_next_attempt_is_bought_as_the_last_one_was(box):
    run_id, name = box.launch("A100:4", name="spare")
    change(box, run_id, SPOT)
    box.submit("A100:4", name="urgent")
    box.look()
    box.engine.end(name, 143, EndReason.CANCELLED)
    box.look()
    waiting = box.seen.runs[run_id].waiting(box.clock(), 1)
    assert [each.purchase for each in waiting] == [SPOT]


def test_each_second_is_billed_once_and_at_the_price_that_it_had(box):
    run_id, name = box.launch("A100:2", name="train")
    began = box.instance(name).started_at
    box.clock.pass_(100.0)
    change(box, run_id, ON_DEMAND, rate=3 * PRICE)
    box.clock.pass_(50.0)
    box.engine.end(name)
    box.look()
    first, second = box.rows(tables.usage)
    assert (first.started_at, first.ended_at) == (began, second.started_at)
    assert (first.price_nano_h, second.price_nano_h) == (2 * PRICE, 6 * PRICE)
    assert second.ended_at == box.instance(name).ended_at
    paid = sum(round((row.ended_at - row.started_at) * row.price_nano_h / 3600) for row in (first, second))
    assert box.run(run_id).cost_nano == paid


def test_an_end_before_the_last_change_undoes_what_was_billed_after_it(box):
    run_id, name = box.launch("A100", name="train")
    began = box.instance(name).started_at
    box.engine.end(name)
    ended = box.clock()
    box.clock.pass_(10.0)
    for rate in (2, 3):
        box.clock.pass_(10.0)
        change(box, run_id, ON_DEMAND, rate=rate * PRICE)
    box.look()
    (segment,) = box.rows(tables.usage)
    assert (segment.started_at, segment.ended_at, segment.price_nano_h) == (began, ended, PRICE)
    assert box.run(run_id).cost_nano == round((ended - began) * PRICE / 3600)


def test_a_change_at_the_very_start_reprices_the_segment(box):
    run_id, name = box.launch("A100", name="train")
    began = box.instance(name).started_at
    box.clock.now = began
    change(box, run_id, SPOT)
    (segment,) = box.rows(tables.usage)
    assert (segment.started_at, segment.ended_at, segment.price_nano_h) == (began, None, PRICE * 363 // 1000)
    assert segment.purchase == "spot"
