"""What people are told: plans, reasons, the queue, offers."""

import pytest

from cumulo.catalog.prices import price
from cumulo.control.control import ended_text
from cumulo.domain.ask import parse_gpu_ask
from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import EndReason, RunStatus
from cumulo.domain.run import PurchaseOption, Retry, RunKind
from tests.control.fakes import GPU, PRICE, Clock, Cloud, FakeEngine, node, run_spec


def plan(cloud, *arguments, **changes):
    return cloud.control.plan(run_spec(*arguments, **changes), account="ada")


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_of_what_starts_now(cloud):
    told = plan(cloud, "A100:2", nodes=2, retry=Retry())
    assert (told.starts_now, told.satisfiable, told.queue_position) == (True, True, 0)
    assert (told.expected_start, told.expected_text) == (cloud.clock(), "now")
    [choice] = told.choices
    assert (choice.region, choice.node, choice.devices) == ("local", "one, two", "2 nodes x 2x A100-80GB")
    assert choice.price_nano_h == 4 * PRICE
    listed = price(GPU)
    assert listed is not None
    assert listed.on_demand is not None
    assert choice.rental_nano_h == 4 * listed.on_demand.median
    assert told.warnings == ()


def test_a_plan_lists_every_node_it_could_go_to_and_how_often(cloud):
    cloud.launch("A100:3")
    told = plan(cloud, "A100")
    assert [(choice.node, choice.free) for choice in told.choices] == [("one", 1), ("two", 4)]


def test_a_plan_of_what_must_wait(cloud):
    cloud.launch("A100:4", nodes=2, max_duration_s=1000.0)
    started = cloud.clock() - 5.5
    cloud.submit("A100:4", name="before", max_duration_s=50.0)
    cloud.look()
    told = plan(cloud, "A100:4", nodes=2)
    assert (told.starts_now, told.satisfiable, told.queue_position) == (False, True, 2)
    latest = started + 1050.0  # if all take as long as they may
    assert cloud.clock() < told.expected_from < told.expected_start < told.expected_to < latest
    assert told.expected_text == "judged by what was declared: little has ended here yet"
    assert told.problems == ("2 of 2 nodes: 4 of 4 A100-80GB held, 0 free, 4 asked",)


def test_a_plan_of_what_can_never_be(cloud):
    told = plan(cloud, "A100:16")
    assert (told.satisfiable, told.expected_text) == (False, "never on the nodes that are there now")
    assert told.suggestions == ("ask for 4 GPUs instead of 16",)
    with pytest.raises(CumuloError, match=r"no GPU .* is known"):
        plan(cloud, "Voodoo")


def test_a_plan_warns(quick_db, tmp_path):
    cloud = Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one", emulated=True), node("two")))).ready()
    told = plan(cloud, "A100", nodes=2, purchase=PurchaseOption.SPOT)
    assert [warning.split(":")[0] for warning in told.warnings] == [
        "the GPUs here are emulated",
        "spot runs are stopped when others need their room; it would be queued again",
        "without `retry` the run ends when one of its nodes does",
    ]
    emulated = plan(cloud, "A100:4").choices[0]
    assert (emulated.devices, emulated.price_nano_h, emulated.rental_nano_h) == ("4x A100-80GB (emulated)", 0, None)


# ---- why -------------------------------------------------------------------------------------------------------------


def test_why_it_waits(cloud):
    holder, _, _ = cloud.launch("A100:4", nodes=2, name="holder", max_duration_s=3600.0)
    first = cloud.submit("A100:2", name="first", priority=1)
    run_id = cloud.submit("A100:2", name="mine")
    cloud.look()
    why = cloud.control.why(run_id)
    assert why.summary == "2 of 2 nodes: 4 of 4 A100-80GB held, 0 free, 2 asked"
    assert why.binding == "gpu_held"
    assert [(count.constraint, count.nodes, count.text) for count in why.counts] == [
        ("gpu_held", 2, "2 of 2 nodes: others hold the GPUs")
    ]
    assert [(each.node, each.fits) for each in why.nodes] == [("local/one", False), ("local/two", False)]
    assert [(each.run_id, each.text) for each in why.ahead] == [
        (holder, "holds 4 GPUs of one, ends in 59m 49s at the latest"),
        (first, "waits before it (priority 1)"),
    ]
    assert why.expected_start is not None
    assert why.suggestion is None


def test_why_with_a_change_that_helps(cloud):
    cloud.launch("A100:3")
    run_id = cloud.submit("A100:4", nodes=2)
    cloud.look()
    why = cloud.control.why(run_id)
    assert why.binding == "nodes"
    assert why.counts[-1].text == "1 of 2 nodes could take it, 2 asked"
    assert why.suggestion is not None
    assert (why.suggestion.text, why.suggestion.change) == (
        "ask for 1 GPU instead of 4",
        {"accelerators": "A100:1"},
    )
    assert why.expected_text == ("can't tell: train declared no max_duration, and too few runs have ended to judge by")


def test_why_a_gang_of_mixed_kinds_waits(quick_db, tmp_path):
    engine = FakeEngine(Clock(), (node("one"), node("two", model="H100-80GB")))
    cloud = Cloud(quick_db, tmp_path, engine=engine).ready()
    run_id = cloud.submit("A100,H100:4", nodes=2, queue=True)
    cloud.look()
    assert cloud.control.why(run_id).summary == (
        "no node here can ever take it: 2 of 2 nodes could take it, but no 2 with GPUs of one kind"
    )


def test_why_of_what_runs_stops_and_is_stopped(cloud):
    cloud.engine.obedient = False
    run_id, name = cloud.launch(kind=RunKind.DEV)
    assert cloud.control.why(run_id).summary == "it has been running for 5.5s"
    cloud.control.want(run_id, "stopped")
    assert cloud.control.why(run_id).summary == (
        "it is stopping: its instances (1 stopping) have their grace to end by themselves"
    )
    cloud.turn()
    cloud.engine.end(name, 143, EndReason.CANCELLED)
    cloud.look()
    assert cloud.control.why(run_id).summary == "it is stopped; `cumulo start` queues it again"


def test_why_of_what_backs_off(cloud):
    run_id, name = cloud.launch(retry=Retry(on_events=frozenset({"error"}), backoff_s=60.0))
    cloud.engine.end(name, 1)
    cloud.look()
    why = cloud.control.why(run_id)
    assert (why.summary, why.binding) == ("attempt 1 ended; the next begins in 1m 00s", "backoff")
    [row] = cloud.control.queue()
    assert row.waiting_for == why.summary


def test_why_of_an_array_some_of_which_runs(cloud):
    run_id = cloud.submit(array=(0, 9, 2), retry=Retry(on_events=frozenset({"error"}), backoff_s=60.0))
    cloud.look()
    for name in cloud.instances_of(run_id):
        cloud.engine.start(name)
    cloud.look()
    assert cloud.control.why(run_id).summary == "2 indices run at once as its %2 says; 8 wait for their turn"
    cloud.engine.end(f"{run_id}-0-1-0", 1)
    cloud.look()
    assert "2 indices run" in cloud.control.why(run_id).summary, "one that backs off does not speak for the others"


def test_why_it_ended(cloud):
    run_id, name = cloud.launch()
    cloud.engine.logs[name] = b"".join(b"line %d\n" % number for number in range(30)) + b"\x1b[2Jboom"
    cloud.engine.end(name, 2)
    cloud.look()
    why = cloud.control.why(run_id)
    assert why.ended == why.summary == "its command exited with code 2 after 5.5s"
    assert why.last_log_lines[-2:] == ("line 29", "?[2Jboom")
    assert len(why.last_log_lines) == 10
    with pytest.raises(CumuloError, match="there is no run"):
        cloud.control.why("nobody")


@pytest.mark.parametrize(
    ("status", "reason", "message", "text"),
    [
        (RunStatus.SUCCEEDED, "succeeded", "", "it succeeded"),
        (RunStatus.SUCCEEDED, "succeeded", "5 succeeded", "5 succeeded"),
        (RunStatus.FAILED, "out_of_memory", "", "it was killed for using more memory than it asked for"),
        (RunStatus.FAILED, "setup_failed", "pip failed", "its setup failed: pip failed"),
        (RunStatus.LOST, "lost", "it was lost", "it was lost"),
        (RunStatus.FAILED, "what was that", "", "it ended: failed"),
        (RunStatus.FAILED, "failed", "its command exited with code 2", "its command exited with code 2"),
        (RunStatus.CANCELLED, "cancelled", "cancelled before it started", "it was cancelled before it started"),
    ],
)
def test_an_end_in_words(status, reason, message, text):
    assert ended_text(status, reason, message) == text


# ---- lists -----------------------------------------------------------------------------------------------------------


def test_the_queue_is_in_the_order_of_placement(cloud):
    cloud.launch("A100:4", nodes=2, name="holder")
    low = cloud.submit("A100", name="low")
    array = cloud.submit("A100", name="array", array=(0, 99, None))
    cloud.clock.pass_(1)
    high = cloud.submit("A100:2", name="high", priority=9)
    after = cloud.submit("A100", name="after", after=("holder",))
    cloud.look()
    rows = cloud.control.queue()
    assert [(row.place, row.run_id) for row in rows] == [(1, high), *enumerate(sorted((low, array)), 2), (4, after)]
    assert rows[0].waiting_for == "2 of 2 nodes: 4 of 4 A100-80GB held, 0 free, 2 asked"
    assert rows[3].waiting_for.startswith("it comes after holder")


def test_offers(quick_db, tmp_path):
    engine = FakeEngine(Clock(), (node("one"), node("two", 2, model="T4"), node("em", 1, emulated=True)))
    cloud = Cloud(quick_db, tmp_path, engine=engine).ready()
    cloud.launch("A100:3")
    rows = {(row.gpu, row.emulated): row for row in cloud.control.offers(None)}
    assert [(key, row.free, row.total, row.max_per_node) for key, row in rows.items()] == [
        ((GPU, False), 1, 4, 4),
        ((GPU, True), 1, 1, 1),
        (("T4", False), 2, 2, 2),
    ]
    assert (rows[GPU, False].price_nano_h, rows["T4", False].price_nano_h) == (PRICE, 0)
    assert rows[GPU, True].rental_nano_h is None
    assert [row.gpu for row in cloud.control.offers(parse_gpu_ask("T4"))] == ["T4"]
    assert cloud.control.offers(parse_gpu_ask("H100")) == ()
    with pytest.raises(CumuloError, match=r"no GPU .* is known"):
        cloud.control.offers(parse_gpu_ask("Voodoo"))


def test_a_region_that_no_engine_serves(cloud):
    assert cloud.control.engine_of("local") is cloud.engine
    with pytest.raises(CumuloError, match="no engine serves region 'moon'"):
        cloud.control.engine_of("moon")


def test_what_ended_here_tells_when_the_next_starts_and_outlasts_a_restart(cloud):
    for _ in range(6):
        _, *ids = cloud.launch("A100:4", nodes=2)
        cloud.clock.pass_(1000.0)
        for name in ids:
            cloud.engine.end(name)
        cloud.look()
    cloud.launch("A100:4", nodes=2)
    run_id = cloud.submit("A100:4")
    cloud.look()
    why = cloud.control.why(run_id)
    assert why.expected_text == "judged by 6 runs that ended"
    assert 500.0 < why.expected_from - cloud.clock() < why.expected_start - cloud.clock() < 1500.0
    cloud.boot()
    cloud.ready()
    again = cloud.control.why(run_id)
    assert again.expected_text == why.expected_text
    assert again.expected_start == pytest.approx(why.expected_start, abs=60.0)


def test_a_forecast_that_was_told_is_held_against_what_happened(cloud):
    _, *ids = cloud.launch("A100:4", nodes=2, max_duration_s=1000.0)
    run_id = cloud.submit("A100:4")
    cloud.look()
    assert cloud.control.why(run_id).expected_to is not None
    assert cloud.seen.learning.past.record.outcomes == 0
    for name in ids:
        cloud.engine.end(name)
    cloud.look()
    assert cloud.instances_of(run_id)
    assert cloud.loop.seen.learning.past.record.outcomes == 1
