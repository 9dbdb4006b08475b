"""A seeded driver that does everything that can happen to a cloud, in any order, and checks what must always hold."""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cumulo.control.driver import Report
from cumulo.control.requests import Inbox
from cumulo.control.rules import Policy, ProjectRules, Quota, Rules
from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import TERMINAL, EndReason, InstanceState, RunStatus
from cumulo.domain.node import DeviceHealth
from cumulo.domain.run import PurchaseOption, Retry, RunKind
from cumulo.domain.sharing import device_uuids
from cumulo.store import events, people, tables
from tests.control.fakes import GPU, PRICE, Clock, Cloud, FakeEngine, Lost, node
from tests.databases import NOW

_OVER = {str(status) for status in TERMINAL}

ASKS = ("A100", "A100:2", "1..2", "0.3", "A100:0.5", "mig-1g.10gb:2", "mig-3g.40gb")

# Everything that has others make room: spot runs, what is borrowed, and runs that can be moved.
POLICY = Policy(
    projects={
        "sure": ProjectRules(guaranteed={GPU: 2}, weight=2.0),
        "small": ProjectRules(quota=Quota(gpus=4)),
    },
    half_life_s=600.0,
    make_room=True,
)


class Chaos:
    """`play` takes random actions; `settle` lets the engine behave well until everything is over."""

    def __init__(self, db, home, seed, monkeypatch):
        self.random = random.Random(seed)
        monkeypatch.setattr("cumulo.control.submitting.secrets.token_bytes", self.random.randbytes)
        nodes = (node("one", 3), node("two", 2), node("cpu", 0, cpus=4))
        self.cloud = Cloud(db, home, engine=FakeEngine(Clock(), nodes), rules=Rules(policy=POLICY))
        with db.write() as tx:
            for name in POLICY.projects:
                people.ensure_project(tx, name, created_by="ada", now=NOW)
        self.engine, self.whole = self.cloud.engine, nodes
        self.accepted: list[str] = []
        self.ends: dict[str, tuple[object, ...]] = {}
        self.reports: list[Report] = []
        self.leaks = 0
        self.lost: set[str] = set()  # instances that may be taken for lost
        self.did: list[str] = []
        self._listen()

    def _listen(self):
        """Keeps the reports that are sent, to send some of them again."""
        report = Inbox.report

        def note(each):
            self.reports = [*self.reports[-5:], each]
            report(self.cloud.inbox, each)

        self.cloud.driver._report = note

    # ---- what may happen --------------------------------------------------------------------------------------------

    def play(self, actions):
        weights = {
            self.submit: 8,
            self.wish: 6,
            self.step: 12,
            self.turn: 12,
            self.time: 8,
            self.begin: 12,
            self.finish: 8,
            self.forget: 1,
            self.hint: 4,
            self.repeat_reports: 2,
            self.crash: 2,
            self.break_write: 2,
            self.break_engine: 1,
            self.mend_engine: 3,
            self.change_nodes: 1,
            self.mend_nodes: 2,
            self.leak: 0.5,
            self.foreigner: 0.5,
            self.long_silence: 0.2,
        }
        for _ in range(actions):
            [action] = self.random.choices(list(weights), list(weights.values()))
            self.did.append(action.__name__)
            action()
            if action in (self.step, self.crash) or self.random.random() < 0.1:
                self.check()

    def submit(self):
        if not self.cloud.control.ready:
            return  # it would wait for that
        r = self.random
        shape = r.choice(("task", "task", "array", "gang", "dev", "cpu"))
        changes: dict[str, Any] = {"name": f"r{len(self.accepted)}", "priority": r.choice((0, 0, 0, 5))}
        if shape == "array":
            changes |= {"array": (r.choice((0, 7)), 7 + r.randrange(4), r.choice((None, 1, 2)))}
        if shape == "gang":
            changes |= {"nodes": 2}
        if shape == "dev":
            changes |= {"kind": RunKind.DEV}
        if r.random() < 0.4:
            on = frozenset(r.sample(("error", "lost", "interruption"), r.randint(1, 3)))
            changes |= {"retry": Retry(on_events=on, max_attempts=r.randint(1, 3), backoff_s=r.choice((0.0, 5.0)))}
        if r.random() < 0.25 and self.accepted:
            changes |= {"after": tuple(r.sample(self.accepted, min(len(self.accepted), r.randint(1, 2))))}
        if r.random() < 0.2:
            changes |= {"max_duration_s": 3600.0}
        changes |= {"project": r.choice(("default", "default", "sure", "small"))}
        changes |= {"purchase": r.choice(tuple(PurchaseOption)[:2]), "migratable": r.random() < 0.3}
        gpus = None if shape == "cpu" else r.choice(ASKS)
        key = r.choice((None, f"k{len(self.accepted)}"))
        try:
            run_id = self.cloud.submit(gpus=gpus, key=key, queue=True, **changes)
        except (CumuloError, Lost):
            return
        self.accepted.append(run_id)

    def wish(self):
        if not self.accepted:
            return
        run_id = self.random.choice(self.accepted[-8:])
        wanted = self.random.choice(("cancelled", "cancelled", "stopped", "running"))
        unit = self.random.choice((None, None, None, 7, 8, 9))
        grace_s = self.random.choice((None, None, 0.0, 5.0))
        with suppress(CumuloError, Lost):
            self.cloud.control.want(run_id, wanted, grace_s=grace_s, unit=unit)

    def step(self):
        self.cloud.step()

    def turn(self):
        self.cloud.turn()

    def time(self):
        self.cloud.clock.pass_(self.random.choice((0.01, 0.5, 2.5, 2.5, 6.0, 30.0)))

    def _some(self, *states):
        return [
            name
            for name, body in self.engine.bodies.items()
            if body.spec is not None and body.seen.state in states and name not in self.engine.stopped
        ]

    def begin(self):
        if waiting := self._some(InstanceState.PROVISIONING, InstanceState.PULLING):
            name = self.random.choice(waiting)
            if self.random.random() < 0.2:
                self.engine.move(name, InstanceState.PULLING)
            else:
                self.engine.start(name, self.random.choice((None, '{"done": 1, "total": 3}')))

    def finish(self):
        if running := self.engine.alive():
            name = self.random.choice(running)
            started = self.engine.bodies[name].seen.started_at is not None
            reason = self.random.choice([*list(EndReason)[:7], EndReason.LOST, EndReason.SUCCEEDED])
            if not started:
                reason = EndReason.START_FAILED
            if name in self.engine.stopped:
                reason = EndReason.CANCELLED
            if reason is EndReason.LOST:
                self.lost.add(name)
            self.engine.end(name, 0 if reason is EndReason.SUCCEEDED else 1, reason)

    def forget(self):
        """An engine keeps what has begun until that was seen, and what has ended until it is released."""
        with self.cloud.db.read() as tx:
            seen = {row.id for row in tx.execute(tables.instance.select()) if row.started_at is not None}
        begun = {name for name in self.engine.bodies if self.engine.starts[name]}
        if gone := sorted(set(self.engine.alive()) - (begun - seen)):
            name = self.random.choice(gone)
            self.lost.add(name)
            self.engine.forget(name)

    def hint(self):
        for name in self.random.sample(list(self.engine.bodies), min(2, len(self.engine.bodies))):
            self.cloud.driver.hint(name)

    def repeat_reports(self):
        for each in self.random.sample(self.reports, len(self.reports)):
            self.cloud.inbox.report(each)

    def crash(self):
        while True:
            try:
                self.cloud.boot()
                break
            except Lost:
                continue
        self._listen()
        self.reports = []

    def break_write(self):
        self.cloud.fail = self.random.choice(("before", "after"))

    def break_engine(self):
        how = self.random.choice(("down", "deaf", "refuses"))
        self.engine.down = "no route" if how == "down" else ""
        self.engine.obedient = how != "deaf"
        if how == "refuses":
            self.engine.refuses = {f"{run_id}-0-1-0" for run_id in self.accepted[-3:]}

    def mend_engine(self):
        self.engine.down, self.engine.obedient, self.engine.refuses = "", True, set()

    def change_nodes(self):
        how = self.random.choice(("gone", "sick", "foreign"))
        if how == "gone":
            self.engine.there = self.random.choice((self.whole[1:], self.whole[:1]))
            return
        first = self.whole[0]
        devices = tuple(
            replace(
                each,
                health=DeviceHealth.QUARANTINED if how == "sick" else DeviceHealth.OK,
                foreign="ada's python" if how == "foreign" else "",
            )
            for each in first.devices
        )
        self.engine.there = (replace(first, devices=devices), *self.whole[1:])

    def mend_nodes(self):
        self.engine.there = self.whole

    def leak(self):
        """Something of ours that the store never heard of, on a device that nobody uses."""
        used = {
            uuid for name in self.engine.alive() for uuid in device_uuids(self.engine.bodies[name].seen.slices or ())
        }
        free = [uuid for uuid in ("one-0", "one-1", "one-2") if uuid not in used]
        with self.cloud.db.read() as tx:
            held = {row.device_uuid for row in tx.execute(tables.hold.select())}
        if free := [uuid for uuid in free if uuid not in held]:
            self.leaks += 1
            self.engine.plant(f"leak{self.leaks}-0-1-0", devices=free[:1])
            self.look()
            if f"leak{self.leaks}-0-1-0" not in self.cloud.loop.absences.leaks:
                self.engine.forget(f"leak{self.leaks}-0-1-0")  # nobody can know of what nobody has seen

    def foreigner(self):
        self.engine.plant("theirs-0-1-0", cloud_id="another")

    def long_silence(self):
        down, self.engine.down = self.engine.down, "gone"
        for _ in range(22):
            self.cloud.clock.pass_(30)
            self.cloud.turn()
            self.cloud.step()
        self.engine.down = down
        with self.cloud.db.read() as tx:
            self.lost.update(row.id for row in tx.execute(tables.instance.select()) if row.reason == "lost")

    def look(self):
        self.cloud.clock.pass_(5.5)
        self.cloud.turn()
        self.cloud.step()

    # ---- what must hold ---------------------------------------------------------------------------------------------

    def check(self):
        told = f"after {self.did[-12:]}"
        assert not self.engine.wrongs, f"{self.engine.wrongs}, {told}"
        with self.cloud.db.read() as tx:
            runs = {row.id: row for row in tx.execute(tables.run.select())}
            units = tx.execute(tables.unit.select()).all()
            holds = tx.execute(tables.hold.select()).all()
            segments = tx.execute(tables.usage.select()).all()
            instances = {row.id: row for row in tx.execute(tables.instance.select())}
        lost = {row.id for row in instances.values() if row.reason == "lost"}
        assert lost <= self.lost, f"{lost - self.lost} were healthy, {told}"
        assert set(self.accepted) <= set(runs), told
        for run_id, row in runs.items():
            if row.status in _OVER:
                assert self.ends.setdefault(run_id, tuple(row)) == tuple(row), f"{run_id} changed after its end, {told}"
                assert row.ended_at is not None
                assert row.reason, f"{run_id} ended for no reason, {told}"
        for unit in units:
            if runs[unit.run_id].status in _OVER:
                assert unit.status in _OVER, f"{unit.run_id} is over, its unit {unit.status}, {told}"
        self._check_bills(runs, instances, segments)
        self._check_picture(holds, told)

    def _check_bills(self, runs, instances, segments):
        """Every second that ran is billed once, at the price it had, and a run costs what its segments do."""
        cost: Counter[str] = Counter()
        by_instance: dict[str, list[Any]] = {}
        for segment in sorted(segments, key=lambda each: each.started_at):
            by_instance.setdefault(segment.instance_id, []).append(segment)
            on_demand = segment.gpu_milli * PRICE // 1000
            assert segment.price_nano_h <= on_demand
            assert segment.price_nano_h == on_demand or segment.purchase == "spot"
        for name, mine in by_instance.items():
            assert [each.ended_at for each in mine[:-1]] == [each.started_at for each in mine[1:]], "billed once"
            assert (mine[0].started_at, mine[-1].ended_at) == (instances[name].started_at, instances[name].ended_at)
            for segment in mine if instances[name].ended_at is not None else ():
                seconds = segment.ended_at - segment.started_at
                cost[segment.run_id] += round(seconds * segment.price_nano_h / 3600)
        assert {run_id: row.cost_nano for run_id, row in runs.items()} == {run_id: cost[run_id] for run_id in runs}

    def _check_picture(self, holds, told):
        if self.cloud.loop._stale:
            return
        seen, fresh = self.cloud.seen, self.cloud.fresh()
        world = seen.world.copy()
        for name in self.cloud.loop.absences.leaks:
            world.release(name)
        known = {run_id: run for run_id, run in fresh.runs.items() if run_id in seen.runs}
        assert seen.runs == known, told
        assert all(not run.units for run_id, run in fresh.runs.items() if run_id not in known), told
        assert seen.instances == fresh.instances, told
        assert world.holds == fresh.world.holds, told
        assert world.nodes == fresh.world.nodes, told
        held = Counter((each.device_uuid, hold.instance_id) for hold in world.holds.values() for each in hold.slices)
        assert held == Counter((row.device_uuid, row.instance_id) for row in holds), told
        for use in world.nodes.values():
            assert use.cpus_free >= 0, told
            assert use.memory_free >= 0, told

    # ---- the end ----------------------------------------------------------------------------------------------------

    def settle(self):
        """With an engine that behaves, everything comes to its end, and each run to one."""
        self.mend_engine()
        self.mend_nodes()
        self.cloud.fail = ""
        for name in [name for name in self.engine.alive() if self.engine.bodies[name].spec is None]:
            self.engine.forget(name)  # the admin ends what leaked
        for _ in range(400):
            for name in self._some(InstanceState.PROVISIONING, InstanceState.PULLING):
                self.engine.start(name)
            self.look()
            self.cloud.turn()
            for name in self.engine.alive():
                if self.engine.bodies[name].spec is not None:
                    self.engine.end(name)
            self._end_devs()
            if not self.cloud.seen.runs and not self.cloud.loop._stale:
                break
        for _ in range(3):
            self.look()
        self.check()
        with self.cloud.db.read() as tx:
            rows = {row.id: row for row in tx.execute(tables.run.select())}
            kinds: dict[str, Counter[str]] = {run_id: Counter() for run_id in rows}
            after = 0
            while page := events.page(tx, after=after, limit=500):
                after = page[-1].seq
                for event in page:
                    if event.run_id:
                        kinds[event.run_id][event.kind] += 1
        for run_id, row in rows.items():
            assert row.status in _OVER, f"{row.name} is still {row.status}"
            assert kinds[run_id]["run.accepted"] == 1
            assert sum(kinds[run_id][f"run.{status}"] for status in _OVER) == 1, kinds[run_id]
            assert kinds[run_id][f"run.{row.status}"] == 1
        with self.cloud.db.read() as tx:
            assert tx.execute(tables.hold.select()).all() == []
        assert [name for name in self.engine.alive() if self.engine.bodies[name].spec is not None] == []
        return Counter(row.status for row in rows.values())

    def _end_devs(self):
        for run in list(self.cloud.seen.runs.values()):
            if run.spec.kind is RunKind.DEV and run.status in (RunStatus.STOPPED, RunStatus.RUNNING):
                self.cloud.control.want(run.id, "cancelled")


__all__ = ["GPU", "Chaos"]
