"""Where store and engine disagree: what is missing, what should not be there, and engines that do not answer."""

from dataclasses import replace

import pytest

from cumulo.control.driver import Report
from cumulo.control.nodes import LEASE_S
from cumulo.domain.instance import Observation
from cumulo.domain.lifecycle import InstanceState
from cumulo.domain.run import Retry
from cumulo.store import tables
from tests.control.fakes import node


def report(cloud, *, as_of, complete=True, instances=()):
    """An observation arrives, whenever it was made."""
    seen = Observation(instances=tuple(instances), complete=complete, as_of=as_of)
    cloud.inbox.report(Report(region="local", observation=seen))
    cloud.step()


# ---- missing ---------------------------------------------------------------------------------------------------------


def test_what_ran_and_is_gone_is_lost(any_cloud):
    cloud = any_cloud
    run_id, name = cloud.launch()
    cloud.engine.forget(name)
    cloud.look()
    run = cloud.run(run_id)
    assert (run.status, run.reason) == ("lost", "lost")
    assert run.message == "its engine no longer knows it; was its folder deleted?"
    assert cloud.rows(tables.hold) == []
    assert cloud.rows(tables.usage)[0].ended_at is not None


@pytest.mark.parametrize(
    ("complete", "after_sight"), [(False, 100.0), (True, 0.0), (True, -1.0)], ids=["partial", "same", "older"]
)
def test_absence_proves_nothing_in_a_partial_or_an_older_observation(cloud, complete, after_sight):
    run_id, _ = cloud.launch()
    report(cloud, as_of=cloud.clock() + after_sight, complete=complete)
    assert cloud.run(run_id).status == "running"


def test_what_was_asked_for_is_not_missed_before_it_can_be_there(cloud):
    run_id = cloud.submit()
    cloud.step()
    report(cloud, as_of=cloud.clock() - 0.001)
    cloud.control.want(run_id, "cancelled")
    report(cloud, as_of=cloud.clock() - 0.001)
    assert cloud.run(run_id).status == "stopping"


def test_what_an_engine_forgot_before_it_ran_is_asked_for_again(cloud):
    run_id = cloud.submit()
    cloud.look()
    [name] = cloud.instances_of(run_id)
    cloud.engine.forget(name)
    cloud.look()
    assert cloud.instances_of(run_id) == [name]
    assert cloud.run(run_id).status == "starting"


def test_what_an_engine_will_not_take_is_not_asked_for_for_ever(cloud):
    run_id = cloud.submit()
    cloud.step()
    [name] = cloud.seen.instances
    cloud.engine.refuses = {name}
    cloud.look(20)
    assert cloud.run(run_id).status == "starting"
    assert "node.unreachable" not in cloud.events(), "one refusal does not make an engine unreachable"
    cloud.look(300)
    run = cloud.run(run_id)
    assert (run.status, run.reason, run.message) == ("failed", "start_failed", "its engine never took it in")


def test_after_a_crash_between_the_commit_and_the_engine_it_is_asked_for(any_cloud):
    cloud = any_cloud
    run_id = cloud.submit()
    cloud.step()
    cloud.boot()
    cloud.ready()
    cloud.look()
    assert cloud.instances_of(run_id) == [f"{run_id}-0-1-0"]


def test_after_a_crash_what_was_to_stop_stops(cloud):
    run_id, _ = cloud.launch()
    cloud.control.want(run_id, "cancelled", grace_s=7.0)
    cloud.boot()
    cloud.ready()
    cloud.look()
    assert cloud.run(run_id).status == "cancelled"
    assert cloud.engine.stops[0][1] == 7.0


def test_what_ended_while_nobody_looked_is_known(any_cloud):
    cloud = any_cloud
    run_id, name = cloud.launch()
    began = cloud.rows(tables.usage)[0].started_at
    cloud.boot()
    cloud.engine.end(name, exit_code=5)
    ended = cloud.clock()
    cloud.clock.pass_(4000)
    cloud.ready()
    run = cloud.run(run_id)
    assert (run.status, run.exit_code, run.ended_at) == ("failed", 5, ended)
    assert run.message == f"its command exited with code 5 after {ended - began:.1f}s"


def test_a_restart_touches_nothing_that_runs(cloud):
    run_id, name = cloud.launch()
    for _ in range(3):
        cloud.boot()
        cloud.ready()
        cloud.look()
    assert (cloud.run(run_id).status, cloud.engine.stops, cloud.engine.starts[name]) == ("running", [], 1)


# ---- repeated, reordered, contradicting ------------------------------------------------------------------------------


def test_the_same_news_twice_in_one_letter(cloud):
    run_id, name = cloud.launch()
    cloud.engine.end(name)
    cloud.clock.pass_(5.5)
    cloud.turn()
    mail = cloud.inbox.take(0)
    cloud.inbox.put_back(mail)
    cloud.inbox.put_back(mail)
    cloud.step()
    cloud.turn()
    assert cloud.run(run_id).status == "succeeded"
    assert cloud.events(run_id).count("run.succeeded") == 1
    assert cloud.engine.released == [name]


def test_old_news_of_what_has_ended_changes_nothing(cloud):
    _, name = cloud.launch()
    running = cloud.engine.bodies[name].seen
    seen_at = cloud.clock()
    cloud.engine.end(name)
    cloud.look()
    report(cloud, as_of=seen_at, instances=[running])
    assert cloud.control.leaks() == ()
    cloud.turn()
    assert cloud.engine.stops == []


def test_states_only_go_forward(cloud):
    run_id, name = cloud.launch()
    early = replace(cloud.engine.bodies[name].seen, state=InstanceState.PULLING, started_at=None)
    report(cloud, as_of=cloud.clock() - 3, instances=[early])
    assert cloud.instance(name).state == "running"
    assert cloud.run(run_id).status == "running"


def test_what_was_taken_for_lost_and_runs_on_keeps_its_device_until_it_has_ended(cloud):
    cloud.engine.obedient = False
    run_id, name = cloud.launch(gpus="A100:4", nodes=1, retry=Retry(backoff_s=0.0))
    body = cloud.engine.bodies[name]
    cloud.engine.forget(name)
    cloud.look()
    assert cloud.unit(run_id).attempts == 2
    [second] = cloud.instances_of(run_id)
    cloud.engine.bodies[name] = body
    cloud.engine.end(second)
    cloud.look()
    [leak] = cloud.control.leaks()
    assert (leak.instance_id, leak.stopped) == (name, True)
    assert leak.text == f"{name} runs on one but was taken for ended; it is being stopped"
    blocked = cloud.submit(gpus="A100:4", nodes=2)
    cloud.look()
    assert cloud.run(blocked).status == "queued"
    cloud.engine.end(name, 143)
    cloud.look(2)
    assert cloud.control.leaks() == ()
    assert cloud.run(blocked).status == "starting"
    assert cloud.engine.wrongs == []


# ---- leaks -----------------------------------------------------------------------------------------------------------


def test_a_young_leak_is_stopped(any_cloud):
    cloud = any_cloud
    cloud.clock.pass_(1)
    cloud.engine.plant("stranger-0-1-0", devices=("one-0",))
    cloud.look()
    assert cloud.engine.stops == [("stranger-0-1-0", 30.0)]
    assert cloud.events()[-1] == "instance.leaked"
    cloud.look()
    assert cloud.control.leaks() == ()
    assert set(cloud.engine.released) == {"stranger-0-1-0"}
    assert cloud.seen == cloud.fresh()


def test_an_old_leak_is_left_to_the_admin_and_holds_what_it_holds(cloud):
    cloud.engine.plant("stranger-0-1-0", devices=("one-0",), started_at=cloud.clock() - 1000)
    cloud.look(3)
    [leak] = cloud.control.leaks()
    assert (leak.stopped, cloud.engine.stops) == (False, [])
    assert "the admin must decide" in leak.text
    assert cloud.events().count("instance.leaked") == 1
    [check] = [each for each in cloud.control.doctor() if each.name == "leak"]
    assert check.status == "warn"
    run_id = cloud.submit(gpus="A100:4", nodes=2)
    cloud.look()
    assert cloud.run(run_id).status == "queued"
    other = cloud.submit(gpus="A100")
    cloud.fail = "before"
    assert not cloud.step()
    assert cloud.step()
    cloud.look()
    assert cloud.run(run_id).status == "queued", "what a leak holds is held on a new picture too"
    cloud.engine.end("stranger-0-1-0")
    cloud.look()
    cloud.engine.end(f"{other}-0-1-0")
    cloud.look()
    assert cloud.run(run_id).status == "starting"


def test_a_leak_is_not_gone_because_of_an_older_look(cloud):
    before = cloud.clock()
    cloud.engine.plant("stranger-0-1-0", devices=("one-0",), started_at=before - 1000)
    cloud.look()
    report(cloud, as_of=before)
    assert len(cloud.control.leaks()) == 1
    cloud.engine.forget("stranger-0-1-0")
    cloud.look()
    assert cloud.control.leaks() == ()


def test_a_leak_on_a_node_that_comes_later_holds_its_device(cloud):
    both = cloud.engine.there
    cloud.engine.there = both[1:]
    cloud.look()
    cloud.engine.plant("stranger-0-1-0", devices=("one-0",), started_at=cloud.clock() - 1000)
    cloud.look()
    cloud.engine.there = both
    cloud.look()
    assert cloud.seen.world.nodes["local/one"].devices["one-0"].holders == ("stranger-0-1-0",)


def test_a_leak_whose_news_could_not_be_written_is_told_again(cloud):
    cloud.engine.plant("stranger-0-1-0", started_at=cloud.clock() - 1000)
    cloud.fail = "before"
    cloud.look()
    assert "instance.leaked" not in cloud.events()
    cloud.look(2)
    assert cloud.events().count("instance.leaked") == 1


def test_a_run_that_a_restored_store_has_forgotten_to_have_started_waits_for_its_own_leak(cloud):
    run_id = cloud.submit()
    mail = cloud.inbox.take(0)
    cloud.engine.plant(f"{run_id}-0-1-0", devices=("one-0",), started_at=cloud.clock() - 1000)
    cloud.look()
    cloud.inbox.put_back(mail)
    cloud.look(2)
    assert cloud.loop.trouble == ""
    assert cloud.run(run_id).status == "queued"
    assert cloud.control.why(run_id).binding == "leak"
    assert cloud.control.plan(cloud.seen.runs[run_id].spec, account="ada").starts_now


def test_what_is_another_clouds_is_never_touched(any_cloud):
    cloud = any_cloud
    cloud.engine.plant("theirs-0-1-0", cloud_id="another", devices=("one-0",))
    cloud.engine.plant("gone-0-1-0", cloud_id="another")
    cloud.engine.end("gone-0-1-0")
    cloud.look(3)
    assert (cloud.engine.stops, cloud.engine.released, cloud.control.leaks()) == ([], [], ())
    assert "instance.leaked" not in cloud.events()


def test_what_ended_and_nobody_knows_is_released(cloud):
    cloud.engine.plant("stranger-0-1-0")
    cloud.engine.end("stranger-0-1-0")
    cloud.look()
    assert cloud.engine.released == ["stranger-0-1-0"]
    assert cloud.control.leaks() == ()


# ---- engines that do not answer, nodes that go -----------------------------------------------------------------------


def silence(cloud, seconds, every=10.0):
    cloud.engine.down = "no route to host"
    for _ in range(round(seconds / every)):
        cloud.clock.pass_(every)
        cloud.turn()
        cloud.step()


def test_unreachable_is_not_dead(any_cloud):
    cloud = any_cloud
    run_id, _ = cloud.launch()
    silence(cloud, LEASE_S)
    assert cloud.run(run_id).status == "running"
    assert cloud.seen.world.nodes["local/one"].blocked == "unreachable: its engine does not answer: no route to host"
    waiting = cloud.submit(queue=True)
    cloud.step()
    assert cloud.run(waiting).status == "queued", "nothing is placed there"
    assert cloud.seen == cloud.fresh()
    cloud.engine.down = ""
    cloud.look(2)
    assert cloud.run(run_id).status == "running"
    assert cloud.run(waiting).status == "starting"
    assert cloud.events().count("node.unreachable") == 2
    assert cloud.events().count("node.ready") == 4


def test_a_lease_runs_out(any_cloud):
    cloud = any_cloud
    run_id, name = cloud.launch()
    silence(cloud, LEASE_S + 10)
    run = cloud.run(run_id)
    assert (run.status, run.message) == ("lost", "its node did not answer for 10 minutes")
    assert cloud.rows(tables.hold) == []
    cloud.engine.down = ""
    again = cloud.submit(gpus="A100:4", nodes=2)
    cloud.look()
    assert cloud.engine.stops == [(name, 30.0)]
    cloud.look(2)
    assert cloud.engine.wrongs == []
    assert cloud.run(again).status == "starting"


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_or_a_machine_that_slept_is_no_silence(cloud, jump):
    run_id, _ = cloud.launch()
    cloud.engine.down = "a hiccup"
    cloud.clock.pass_(2)
    cloud.driver.turn(10**9)
    cloud.step()
    cloud.clock.pass_(jump)
    cloud.driver.turn(10**9 + 5)
    cloud.step()
    cloud.engine.down = ""
    cloud.driver.turn(10**9 + 10)
    cloud.step()
    assert cloud.run(run_id).status == "running"


def test_a_short_silence_is_not_even_told(cloud):
    silence(cloud, 6, every=3.0)
    assert "node.unreachable" not in cloud.events()


def test_a_node_that_goes_keeps_what_it_holds(any_cloud):
    cloud = any_cloud
    run_id, name = cloud.launch(gpus="A100:2")
    cloud.engine.there = (node("two"),)
    cloud.look()
    assert cloud.seen.world.nodes["local/one"].blocked == "down: its engine no longer has it"
    assert cloud.run(run_id).status == "running"
    assert cloud.seen == cloud.fresh()
    cloud.engine.end(name)
    cloud.look()
    cloud.look()
    assert set(cloud.seen.world.nodes) == {"local/two"}
    assert [row.id for row in cloud.rows(tables.node)] == ["local/two"]
    assert cloud.events()[-1] == "node.gone"


def test_a_host_that_was_renamed_keeps_its_devices(any_cloud):
    """The same GPUs come back under another node's name, while one of them is held."""
    cloud = any_cloud
    run_id, name = cloud.launch()
    old = cloud.engine.there[0]
    cloud.engine.there = (replace(old, name="new"),)
    cloud.look(2)
    assert cloud.loop.trouble == ""
    assert cloud.run(run_id).status == "running"
    assert cloud.seen == cloud.fresh()
    blocked = cloud.submit(gpus="A100:4", queue=True)
    cloud.look()
    why = cloud.control.why(blocked)
    assert f"GPU 0 used by {name}, which was placed when it was part of another node" in why.summary
    cloud.engine.end(name)
    cloud.look(2)
    assert cloud.run(blocked).status == "starting"
    assert {row.node_id for row in cloud.rows(tables.device)} == {"local/new"}


def test_a_device_that_vanished_while_it_was_held(any_cloud):
    cloud = any_cloud
    run_id, name = cloud.launch()
    one, two = cloud.engine.there
    cloud.engine.there = (replace(one, devices=one.devices[1:]), two)
    cloud.look()
    assert cloud.run(run_id).status == "running"
    assert cloud.seen == cloud.fresh()
    cloud.engine.end(name)
    cloud.look()
    cloud.engine.there = (one, two)
    cloud.look(2)
    assert cloud.seen == cloud.fresh()
    assert len(cloud.rows(tables.device)) == 8


def test_a_node_that_goes_and_comes_back_in_one_letter(cloud):
    cloud.launch(gpus="A100")
    both = cloud.engine.there
    run_id = cloud.submit(gpus="A100:4")
    for there in (both[:1], both):
        cloud.inbox.report(Report(region="local", nodes=there))
    assert cloud.step()
    assert cloud.run(run_id).status == "starting"
    assert cloud.seen == cloud.fresh()


def test_sick_devices_are_told_once(cloud):
    one, two = cloud.engine.there
    sick = replace(one.devices[0], health="quarantined", health_reason="Xid 79\x1b[2J")
    cloud.engine.there = (replace(one, devices=(sick, *one.devices[1:])), two)
    cloud.look(3)
    assert cloud.events().count("device.health") == 1


def test_nothing_is_placed_before_all_that_runs_is_known(cloud):
    run_id = cloud.submit()
    cloud.boot()
    cloud.inbox.report(Report(region="local", nodes=cloud.engine.there))
    cloud.step()
    assert not cloud.control.ready
    assert cloud.run(run_id).status == "queued"
    cloud.turn()
    cloud.step()
    assert cloud.control.ready
    assert cloud.run(run_id).status == "starting"


def test_a_report_of_nodes_that_could_not_be_written_is_written_with_the_next(cloud):
    cloud.engine.there = (*cloud.engine.there, node("three"))
    cloud.fail = "before"
    cloud.look()
    assert len(cloud.rows(tables.node)) == 2
    cloud.look()
    assert len(cloud.rows(tables.node)) == 3
    assert cloud.events().count("node.ready") == 3
    assert cloud.seen == cloud.fresh()


def test_nobody_waits_behind_one_that_a_leak_keeps_waiting(cloud):
    cloud.engine.plant("stranger-0-1-0", devices=("one-0",), started_at=cloud.clock() - 1000)
    cloud.look(3)
    large = cloud.submit(gpus="A100:4", nodes=2)
    cloud.clock.pass_(1.0)
    small = cloud.submit(gpus="A100")
    cloud.look()
    assert (cloud.run(large).status, cloud.run(small).status) == ("queued", "starting")


def test_a_leak_found_where_something_else_just_ended_holds_its_device(cloud):
    _, name = cloud.launch("A100:4")
    [uuid, *_] = cloud.engine.spec(name).device_uuids
    cloud.engine.plant("stranger-0-1-0", devices=(uuid,), started_at=cloud.clock() - 1000)
    cloud.engine.bodies = dict(reversed(cloud.engine.bodies.items()))  # seen before the end of the other
    cloud.engine.end(name)
    later = cloud.submit("A100:8", queue=True)
    cloud.look()
    assert uuid in cloud.seen.world.holds["stranger-0-1-0"].device_uuids
    assert cloud.run(later).status == "queued"
