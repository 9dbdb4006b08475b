"""Reservations of a cloud that runs: made where there is room, drawn on, lent meanwhile, given back, and over."""

import pytest

from cumulo.control import reserving
from cumulo.control.buying import buy_as
from cumulo.control.rates import Rates
from cumulo.control.reserving import Wanted
from cumulo.control.rules import Rules
from cumulo.domain.ask import parse_gpu_ask
from cumulo.domain.errors import CumuloError
from cumulo.domain.run import PurchaseOption
from cumulo.store import people, tables
from cumulo.store.batch import Batch
from tests.control.fakes import GPU, PRICE, Clock, Cloud, FakeEngine, node
from tests.databases import NOW

SPOT, RESERVED = PurchaseOption.SPOT, PurchaseOption.RESERVED
DAY = 86400.0


@pytest.fixture
def box(quick_db, tmp_path):
    """One node of 4 GPUs at two dollars an hour, and a project `x`."""
    with quick_db.write() as tx:
        people.ensure_project(tx, "x", created_by="ada", now=NOW)
    return Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one"),)), rules=Rules()).ready()


def reserve(cloud, gpus="A100:2", *, term=30 * DAY, project="x", starts_at=None, upfront=False, name=None):
    return cloud.control.reserve(
        Wanted(
            project=project,
            account="ada",
            gpu=parse_gpu_ask(gpus),
            term_s=term,
            starts_at=starts_at,
            upfront=upfront,
            name=name,
        )
    )


def drawing(cloud, gpus="A100:2", **changes):
    return cloud.launch(gpus, purchase=RESERVED, project="x", **changes)


def refused(cloud, *args, **changes):
    with pytest.raises(CumuloError) as caught:
        reserve(cloud, *args, **changes)
    return caught.value


def test_what_it_does_not_use_is_lent_as_spot_and_taken_back(box):
    made = reserve(box)
    assert (made.kind, made.count, made.price_nano_h, made.name) == (GPU, 2, PRICE, "a100-80gb-2")
    spare, spare_name = box.launch("A100:4", name="spare", purchase=SPOT)
    run_id = box.submit("A100:2", name="train", purchase=RESERVED, project="x")
    box.look(3)
    assert "run.preempted" in box.events(spare)
    (name,) = box.instances_of(run_id)
    row = box.instance(name)
    assert (row.purchase, row.reservation_id, row.price_nano_h) == ("reserved", made.id, 0)
    assert spare_name not in box.engine.alive()
    assert box.fresh() == box.seen


def test_on_demand_runs_of_others_never_take_it(box):
    reserve(box)
    small, _ = box.launch("A100:2", name="small")
    large = box.submit("A100", name="large")
    box.look()
    why = box.control.why(large)
    assert (box.run(small).status, box.run(large).status) == ("running", "queued")
    assert why.binding == "reserved"
    assert why.summary.startswith("2 of 4 A100-80GB are reserved (2 by project x for another 29d 23h): 0 left")
    assert why.suggestion is not None
    assert why.suggestion.change == {"use_spot": True}


def test_a_run_beyond_its_count_waits(box):
    reserve(box)
    drawing(box, name="first")
    second = box.submit("A100", name="second", purchase=RESERVED, project="x")
    box.look()
    assert box.control.why(second).summary == "2 of 2 A100-80GB of reservation a100-80gb-2 are in use, 1 asked"


def test_it_costs_the_same_used_or_not_and_its_runs_nothing(box):
    run_id, name = (reserve(box), *drawing(box))[1:]
    box.clock.pass_(3600.0)
    box.engine.end(name)
    box.look()
    assert (box.run(run_id).cost_nano, box.run(run_id).rental_nano > 0) == (0, True)
    made = next(iter(box.seen.reservations.values()))
    hour = made.cost_nano(made.starts_at, made.starts_at + 3600.0)
    assert hour == 2 * PRICE


def test_upfront_is_paid_once_when_it_begins(box):
    made = reserve(box, upfront=True, term=10 * 3600.0, starts_at=box.clock() + 3600.0)
    assert (made.price_nano_h, made.upfront_nano) == (0, 20 * PRICE)
    assert made.cost_nano(NOW, made.starts_at) == 0
    assert made.cost_nano(made.starts_at, made.starts_at + 1.0) == 20 * PRICE
    assert made.cost_nano(made.starts_at + 1.0, made.ends_at) == 0


@pytest.mark.parametrize(
    ("gpus", "code", "text"),
    [
        ("A100:5", "no_capacity", "this cloud has 4 A100-80GB, 5 asked"),
        ("A100:0.5", "invalid_ask", "whole GPUs are reserved"),
        ("A100:1..2", "invalid_ask", "whole GPUs are reserved"),
        ("T4:1", "no_capacity", "this cloud has no T4 to reserve"),
        ("A1000:1", "unknown_gpu", "'A1000'"),
    ],
)
def test_what_can_not_be_reserved_at_all(box, gpus, code, text):
    error = refused(box, gpus)
    assert error.code == code
    assert text in error.message


def test_over_capacity_is_told_what_is_free_and_when(box):
    reserve(box, "A100:3", term=DAY)
    error = refused(box, "A100:2")
    assert error.message == "1 A100-80GB can be reserved from now for 30d 0h, 2 asked: 3 of 4 are reserved"
    assert error.hint == f"2 can be had from {reserving.moment(box.clock() + DAY)} on (--start)"
    assert reserve(box, "A100:2", starts_at=box.clock() + DAY).starts_at == box.clock() + DAY


def test_what_runs_hold_that_nothing_stops_can_not_be_reserved_till_they_must_have_ended(box):
    box.launch("A100:3", name="train", max_duration_s=3600.0)
    assert "3 held by runs that are not spot" in refused(box).message
    assert reserve(box, starts_at=box.clock() + 3600.0).count == 2
    box.launch("A100:1", name="dev", purchase=SPOT)
    assert refused(box, "A100:3", name="more").hint.startswith("3 can be had from")


def test_nobody_can_tell_when_what_declared_no_end_is_out_of_the_way(box):
    box.launch("A100:3", name="train")
    assert refused(box).hint == "nobody can tell when so many can be had: runs that hold them declared no max_duration"


def test_nobody_who_runs_as_spot_on_what_is_reserved_can_keep_it(box):
    run_id, name = box.launch("A100:3", name="spare", purchase=SPOT)
    reserve(box, "A100:2")
    batch, run = Batch(), box.seen.runs[run_id]
    rates = Rates(gpu_nano_h={GPU: PRICE})
    assert not buy_as(box.seen, batch, run, run.units[0], PurchaseOption.ON_DEMAND, rates, box.clock())
    assert not batch
    assert box.seen.instances[name].purchase is SPOT
    assert box.fresh() == box.seen


def test_a_name_is_used_once_in_a_project(box):
    reserve(box, "A100:1", name="mine")
    assert refused(box, "A100:1", name="mine").code == "conflict"


def test_when_it_is_over_what_drew_on_it_goes_on_as_on_demand(box):
    reserve(box, term=3600.0)
    run_id, name = drawing(box)
    box.clock.pass_(3600.0)
    box.look()
    row = box.instance(name)
    assert (row.purchase, row.reservation_id, row.price_nano_h) == ("on-demand", None, 2 * PRICE)
    assert "run.rebought" in box.events(run_id)
    assert box.engine.alive() == [name]
    assert box.seen.reservations == {}
    assert box.fresh() == box.seen


def test_it_goes_on_as_spot_where_the_rest_is_reserved_by_then(box):
    reserve(box, "A100:2", term=3600.0)
    reserve(box, "A100:4", name="all", starts_at=box.clock() + 3600.0)
    run_id, name = drawing(box)
    box.clock.pass_(3600.0)
    box.look()
    assert box.instance(name).purchase == "spot"
    assert "run.rebought" in box.events(run_id)


def test_one_that_was_given_back_is_paid_for_till_then_and_its_room_is_everybodys(box):
    made = reserve(box)
    box.clock.pass_(3600.0)
    over = box.control.give_back(made.name)
    assert over.cost_nano(0.0, NOW + DAY) == round((over.ends_at - over.starts_at) * 2 * PRICE / 3600)
    box.look()
    assert box.seen.reservations == {}
    assert [row.over for row in box.rows(tables.reservation)] == [True]
    run_id, _ = box.launch("A100:4", name="all")
    assert box.run(run_id).status == "running"
    with pytest.raises(CumuloError, match="no reservation 'a100-80gb-2' holds"):
        box.control.give_back(made.name)


def test_one_that_was_given_back_before_it_began_costs_nothing(box):
    made = reserve(box, starts_at=box.clock() + DAY, upfront=True)
    assert box.control.give_back(made.id).cost_nano(0.0, NOW + 2 * DAY) == 0


def test_a_control_plane_that_was_down_when_it_ended_finds_out(box):
    reserve(box, term=3600.0)
    _, name = drawing(box)
    box.clock.pass_(7200.0)
    box.boot()
    box.ready()
    box.look()
    assert box.instance(name).purchase == "on-demand"


def test_a_run_may_name_the_one_that_it_draws_on(box):
    first, second = reserve(box, "A100:2", name="first"), reserve(box, "A100:2", name="second", term=DAY)
    _, name = drawing(box, reservation="second")
    assert box.instance(name).reservation_id == second.id != first.id


@pytest.mark.parametrize(
    ("project", "name", "text"),
    [
        ("x", "third", "resources.reservation: project x has no reservation 'third'"),
        (
            "default",
            "first",
            "reservation first is of project x, and the run of project default",
        ),
    ],
)
def test_a_reservation_that_is_not_ones_own_is_refused(box, project, name, text):
    reserve(box, "A100:2", name="first")
    with pytest.raises(CumuloError) as caught:
        box.submit("A100", purchase=RESERVED, project=project, reservation=name)
    assert text in caught.value.message
