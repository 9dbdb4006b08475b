"""Parts of GPUs in a running cloud: placed, held, billed, given back, and the same after a restart."""

from dataclasses import replace

import pytest

from cumulo.domain.ask import parse_gpu_ask
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import GIB
from cumulo.domain.sharing import Isolation, SharingMode
from cumulo.store import tables, views
from tests.control.fakes import GPU, PRICE, Clock, Cloud, FakeEngine, node, run_spec


def part(gpus, *, isolation=Isolation.ANY, **of_gpu):
    """A run on a part of a GPU."""
    spec = run_spec(gpus)
    return replace(spec, ask=replace(spec.ask, gpu=replace(spec.ask.gpu, **of_gpu), isolation=isolation))


def held(cloud):
    """(device, slice, mode, milli, profile, start) of all that the store says is held."""
    with cloud.db.read() as tx:
        rows = tx.execute(tables.hold.select()).all()
    return sorted((row.device_uuid, row.slice, row.mode, row.milli, row.profile, row.start) for row in rows)


def test_fractions_share_a_device_up_to_its_milli_and_memory(any_cloud):
    cloud = any_cloud
    first_run, first = cloud.launch("A100:0.6")
    _, second = cloud.launch(part("A100", slice_memory=24 * GIB))
    third = cloud.submit("A100:0.2")
    cloud.look()
    spec = cloud.engine.spec(second)
    assert [(each.device_uuid, each.milli, each.memory_bytes) for each in spec.slices] == [("one-0", 300, 24 * GIB)]
    assert cloud.run(third).placed_on == "one: 0.2 of A100-80GB (mps)", (
        "the next device is opened, not the first filled"
    )
    assert held(cloud)[:2] == sorted([("one-0", first, "mps", 600, "", None), ("one-0", second, "mps", 300, "", None)])
    assert cloud.seen == cloud.fresh()

    cloud.clock.pass_(3600)
    cloud.engine.end(first)
    cloud.look()
    with cloud.db.read() as tx:
        (row,) = [
            row for row in views.usage_totals(tx, since=0, until=cloud.clock(), group="run") if row.key == first_run
        ]
        (segment,) = [row for row in tx.execute(tables.usage.select()) if row.run_id == first_run]
    seconds = segment.ended_at - segment.started_at
    assert (segment.gpu_milli, segment.gpus) == (600, "0.6 of A100-80GB (mps)")
    assert row.gpu_seconds == pytest.approx(0.6 * seconds)
    assert cloud.run(first_run).cost_nano == round(seconds * PRICE * 0.6 / 3600)
    assert [slice_[1] for slice_ in held(cloud) if slice_[0] == "one-0"] == [second]


def test_mig_instances_are_held_by_profile_and_start_and_survive_a_restart(any_cloud):
    cloud = any_cloud
    _, big = cloud.launch("A100:mig-4g.40gb")
    _, small = cloud.launch("A100:mig-1g.10gb:3")
    before = held(cloud)
    assert [(row[2], row[4]) for row in before] == [("mig", "4g.40gb"), *[("mig", "1g.10gb")] * 3]
    assert before[0][:2] == ("one-0", "mig 0"), "a 4g fits at 0 only"
    assert {row[5] for row in before[1:]} <= {4, 5, 6}
    assert cloud.seen == cloud.fresh()
    cloud.boot()
    cloud.ready()
    assert (held(cloud), cloud.seen) == (before, cloud.fresh())
    assert [each.start for each in cloud.engine.spec(small).slices] == sorted(row[5] for row in before[1:])
    cloud.engine.end(big)
    cloud.look()
    assert {row[4] for row in held(cloud)} == {"1g.10gb"}


def test_a_device_is_in_one_mode_and_changes_it_once_it_is_empty(quick_db, tmp_path):
    cloud = Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one", 1),))).ready()
    _, shared = cloud.launch("A100:0.1")
    whole, sliced, turns = (
        cloud.submit("A100"),
        cloud.submit("A100:mig-1g.10gb"),
        cloud.submit(part("A100:0.1", sharing=SharingMode.TIMESLICE)),
    )
    cloud.look()
    assert cloud.engine.alive() == [shared]
    reasons = [cloud.control.why(run).summary for run in (whole, sliced, turns)]
    assert reasons == [
        "1 of 1 A100-80GB held (1 mps), 0 free, 1 asked",
        "no 1g.10gb slice free: 1 of 1 A100-80GB held (1 mps), 1 asked",
        "1 of 1 A100-80GB held (1 mps), 100 milli asked",
    ]
    for run in (whole, turns):
        cloud.control.want(run, "cancelled")
    cloud.engine.end(shared)
    cloud.look()
    assert [row[2] for row in held(cloud)] == ["mig"]
    assert cloud.run(sliced).status == "starting"


def test_hard_isolation_means_a_sandbox(cloud):
    _, hard = cloud.launch(part("A100:mig-1g.10gb", isolation=Isolation.HARD))
    _, any_ = cloud.launch("A100:mig-1g.10gb")
    assert (cloud.engine.spec(hard).runtime, cloud.engine.spec(any_).runtime) == ("sandbox", None)
    with pytest.raises(CumuloError, match="a fraction of a GPU is shared with others, hard isolation asked"):
        cloud.submit(part("A100:0.5", isolation=Isolation.HARD))


def test_a_leak_holds_the_slices_that_its_engine_saw(cloud):
    _, known = cloud.launch("A100:mig-3g.40gb")
    seen = cloud.engine.bodies[known].seen
    cloud.engine.plant("stranger-0-1-0", started_at=1.0)
    there = replace(seen.slices[0], start=4 - seen.slices[0].start)
    cloud.engine._see("stranger-0-1-0", slices=(there,))
    cloud.look()
    use = cloud.seen.world.nodes["local/one"].devices[there.device_uuid]
    assert use.holders == tuple(sorted((known, "stranger-0-1-0")))
    assert use.mode is SharingMode.MIG


def test_what_a_shared_device_was_stays_held_when_the_device_is_gone(cloud):
    for _ in range(2):
        cloud.launch("A100:0.3")
    cloud.engine.there = (node("one", 0), *cloud.engine.there[1:])
    cloud.look()
    cloud.boot()
    cloud.ready()
    assert cloud.seen == cloud.fresh()
    assert len(cloud.seen.world.holds) == 2


def offered(cloud, ask=None):
    found = cloud.control.offers(parse_gpu_ask(ask) if ask else None)
    rows = [row for row in found if row.purchase == "on-demand"]
    return [(row.gpu, row.mode, row.profile, row.isolation, row.free, row.total, row.free_milli) for row in rows]


def test_offers_tell_each_way_of_sharing_and_how_many_there_are_now(quick_db, tmp_path):
    devices = tuple(
        replace(each, modes=(SharingMode.EXCLUSIVE, SharingMode.TIMESLICE)) for each in node("t", 1, model="T4").devices
    )
    there = (node("one", 2), replace(node("t", 0), devices=devices))
    cloud = Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), there)).ready()
    cloud.launch("A100:mig-3g.40gb")
    cloud.launch("T4:0.25")
    rows = offered(cloud)
    assert [row[:3] for row in rows[:4]] == [
        (GPU, "exclusive", ""), (GPU, "mig", "1g.10gb"), (GPU, "mig", "1g.10gb+me"), (GPU, "mig", "1g.20gb")
    ]  # fmt: skip
    told = {row[:3]: row[3:] for row in rows}
    assert told[GPU, "exclusive", ""] == ("hard", 1, 2, 1000)
    assert told[GPU, "mig", "3g.40gb"] == ("hard", 3, 4, 1500)
    assert told[GPU, "mps", ""] == ("capped", 1, 2, 1000)
    assert told["T4", "timeslice", ""] == ("none", 1, 1, 750)
    assert ("T4", "mps", "") not in told
    assert offered(cloud, "T4:0.25") == [("T4", "timeslice", "", "none", 3, 4, 750)]
    assert offered(cloud, "mig-7g.80gb") == [(GPU, "mig", "7g.80gb", "hard", 1, 2, 1000)]
    (row,) = cloud.control.offers(parse_gpu_ask("A100:0.25"))
    assert (row.milli, row.price_nano_h, row.max_per_node) == (250, PRICE // 4, 8)
