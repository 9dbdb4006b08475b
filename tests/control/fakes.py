"""A cloud without threads or time: the real control plane and store over an engine that a test moves by hand.

`Cloud.look` lets time pass until the next complete look at the engine and everything that follows from it. Nothing
happens otherwise, so a test can stop the world anywhere, throw the control plane away, and go on with a new one.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, select

from cumulo.control import Control
from cumulo.control.loading import load
from cumulo.control.rates import Rates
from cumulo.control.requests import Inbox
from cumulo.control.rules import Rules
from cumulo.domain.ask import Ask, parse_gpu_ask
from cumulo.domain.instance import InstanceSpec, Observation, ObservedInstance
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.domain.node import Device, Node
from cumulo.domain.quantities import GIB, NANO
from cumulo.domain.run import Array, RunKind, RunSpec
from cumulo.domain.sharing import SharingMode, whole_devices
from cumulo.engines.protocol import Readings, StaleEpoch
from cumulo.store import events, tables, views
from cumulo.store.logs import Logs
from tests.databases import CLOUD_ID, NOW

GPU = "A100-80GB"
PRICE = 2 * NANO  # per GPU-hour


class Clock:
    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now

    def pass_(self, seconds):
        self.now += seconds


def clash(one, other):
    """Whether two slices can't be held at once, as far as two alone can tell."""
    if one.device_uuid != other.device_uuid:
        return False
    if one.mode is not other.mode or one.mode is SharingMode.EXCLUSIVE:
        return True
    return one.start == other.start if one.mode is SharingMode.MIG else one.milli + other.milli > 1000


def node(name, gpus=4, *, cpus=64, gib=512, model=GPU, **changes):
    devices = tuple(
        Device(
            uuid=f"{name}-{index}",
            index=index,
            model=model,
            memory_bytes=80 * GIB,
            emulated=changes.get("emulated", False),
            modes=tuple(SharingMode),
        )
        for index in range(gpus)
    )
    return Node(name=name, cpus_milli=cpus * 1000, memory_bytes=gib * GIB, devices=devices, **changes)


def run_spec(gpus="A100", *, name="train", array=None, nodes=1, kind=RunKind.TASK, cpus=1, gib=1, **changes):
    """A run file in one call; `array` is (first, last, parallel)."""
    ask = Ask(gpu=parse_gpu_ask(gpus) if gpus else None, cpus_milli=cpus * 1000, memory_bytes=gib * GIB, nodes=nodes)
    indices = Array(first=array[0], last=array[1], parallel=array[2]) if array else None
    return RunSpec(name=name, kind=kind, ask=ask, command="true", array=indices, **changes)


@dataclass
class _Body:
    """What the engine really has of an instance."""

    spec: InstanceSpec | None
    seen: ObservedInstance


class Down(Exception):
    """What the engine raises when a test has it fail."""


@dataclass
class FakeEngine:
    """Keeps the promises that engines make, and notes in `wrongs` where the control plane breaks its own."""

    clock: Callable[[], float]
    there: tuple[Node, ...] = field(default_factory=lambda: (node("one"), node("two")))
    name: str = "local"
    kind: str = "fake"
    down: str = ""  # every call fails with these words
    refuses: set[str] = field(default_factory=set)  # ids of which `ensure` and `stop` fail
    obedient: bool = True  # a stop ends an instance at once
    instant: bool = False  # an instance runs as soon as it is asked for
    bodies: dict[str, _Body] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    stops: list[tuple[str, float]] = field(default_factory=list)
    notices: dict[str, float] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    released: list[str] = field(default_factory=list)
    listeners: list[Callable[[str], None]] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)
    epoch: int = 0

    # What a test does to it

    def start(self, instance_id, progress=None):
        if self.bodies[instance_id].seen.started_at is None:
            self.starts[instance_id] += 1
            if self.starts[instance_id] > 1:
                self.wrongs.append(f"{instance_id} was started {self.starts[instance_id]} times")
        self._see(instance_id, state=InstanceState.RUNNING, started_at=self.clock(), progress=progress)

    def move(self, instance_id, state):
        self._see(instance_id, state=state)

    def end(self, instance_id, exit_code=0, reason=None, message="", **changes):
        reason = reason or (EndReason.FAILED if exit_code else EndReason.SUCCEEDED)
        values = {"exit_code": exit_code, "reason": reason, "message": message, "ended_at": self.clock()} | changes
        self._see(instance_id, state=InstanceState.ENDED, **values)

    def forget(self, instance_id):
        """It is gone, and nobody can say how it ended."""
        del self.bodies[instance_id]

    def plant(self, instance_id, *, cloud_id=CLOUD_ID, node="one", devices=(), started_at=None):
        """Something runs that nobody asked for."""
        self.bodies[instance_id] = _Body(
            None,
            ObservedInstance(
                instance_id=instance_id,
                cloud_id=cloud_id,
                state=InstanceState.RUNNING,
                node=node,
                started_at=self.clock() if started_at is None else started_at,
                slices=whole_devices(devices),
            ),
        )

    def alive(self):
        """Ids of what is there and has not ended, in the order it came."""
        return [name for name, body in self.bodies.items() if body.seen.state is not InstanceState.ENDED]

    def spec(self, instance_id) -> InstanceSpec:
        spec = self.bodies[instance_id].spec
        assert spec is not None
        return spec

    def _see(self, instance_id, **changes):
        body = self.bodies[instance_id]
        body.seen = replace(body.seen, **changes)

    def _check(self, epoch=None):
        if self.down:
            raise Down(self.down)
        if epoch is not None and epoch < self.epoch:
            raise StaleEpoch
        self.epoch = max(self.epoch, epoch or 0)

    # The protocol

    def pools(self):
        return ()

    def nodes(self):
        self._check()
        return self.there

    def ensure(self, spec, epoch):
        self._check(epoch)
        name = spec.instance_id
        if name in self.refuses:
            raise Down(f"{name} is refused")
        if name in self.bodies or name in self.stopped or name in self.released:
            return
        used = [(other, each) for other in self.alive() for each in self.bodies[other].seen.slices or ()]
        for each in spec.slices:
            for other, theirs in used:
                if clash(theirs, each):
                    self.wrongs.append(f"{name} started on {each}, which {other} uses: {theirs}")
        seen = ObservedInstance(
            instance_id=name,
            cloud_id=spec.cloud_id,
            state=InstanceState.PROVISIONING,
            node=spec.node,
            slices=spec.slices,
        )
        self.bodies[name] = _Body(spec, seen)
        if self.instant:
            self.start(name)

    def stop(self, instance_id, grace_s, epoch, preempt_at=None):
        self._check(epoch)
        if instance_id in self.refuses:
            raise Down(f"{instance_id} is refused")
        self.stops.append((instance_id, grace_s))
        if preempt_at is not None:
            self.notices.setdefault(instance_id, preempt_at)
        self.stopped.add(instance_id)
        if instance_id in self.bodies and self.bodies[instance_id].seen.state is not InstanceState.ENDED:
            self.move(instance_id, InstanceState.STOPPING)
            if self.obedient:
                self.end(instance_id, 143, EndReason.CANCELLED)

    def release(self, instance_id, epoch):
        self._check(epoch)
        body = self.bodies.get(instance_id)
        if body is not None and body.seen.state is not InstanceState.ENDED:
            raise Down(f"{instance_id} has not ended")
        self.bodies.pop(instance_id, None)
        self.released.append(instance_id)

    def observe(self, only=None):
        self._check()
        found = [body.seen for name, body in self.bodies.items() if only is None or name in only]
        return Observation(instances=tuple(found), complete=only is None, as_of=self.clock())

    def read_log(self, instance_id, offset, limit=1 << 20):
        return self.logs.get(instance_id, b"")[offset : offset + limit]

    def stream(self, instance_id, request):
        raise KeyError(instance_id)

    def telemetry(self):
        return Readings(devices=(), instances=())

    def doctor(self):
        return ()

    def on_change(self, listener):
        self.listeners.append(listener)

    def close(self):
        self.listeners.clear()


class PumpedInbox(Inbox):
    """Whoever waits for an answer lets the loop take a step himself, since nobody else would."""

    def __init__(self, pump):
        super().__init__()
        self._pump = pump

    def wait(self, answer):
        for _ in range(3):
            if not answer.done():
                self._pump()
        return answer.result(timeout=0)


class Lost(Exception):
    """What a write raises when a test has it fail."""


class Cloud:
    """The control plane over a fake engine. `fail` is "before" or "after": the next commit fails there."""

    def __init__(self, db, home, *, engine=None, prices=True, rules=None):
        self.db, self.logs, self.clock = db, Logs(home), Clock()
        self.engine = engine or FakeEngine(self.clock)
        self.engine.clock = self.clock
        self.fail = ""
        self.rules = rules or Rules()
        self._prices = {GPU: PRICE} if prices else {}
        self._write = db.write
        db.write = self._failing_write
        self.boot()

    @contextmanager
    def _failing_write(self) -> Iterator[Connection]:
        with self._write() as tx:
            yield tx
            if self.fail == "before":
                self.fail = ""
                raise Lost("the disk went away before the commit")
        if self.fail == "after":
            self.fail = ""
            raise Lost("the connection went away after the commit")

    def boot(self):
        """A new control plane on the same store and engine, as after a SIGKILL."""
        self.engine.listeners.clear()
        self.inbox = PumpedInbox(self.step)
        self.control = Control(
            db=self.db,
            logs=self.logs,
            engines={self.engine.name: self.engine},
            cloud_id=CLOUD_ID,
            rates=Rates(gpu_nano_h=self._prices),
            rules=self.rules,
            clock=self.clock,
            inbox=self.inbox,
        )
        self.driver = self.control.drivers[self.engine.name]
        self.loop = self.control.loop
        self.mail = None

    def step(self):
        """Whether the loop's step over what has arrived succeeded."""
        self.mail = self.inbox.take(0)
        return self.loop.step(self.mail)

    def turn(self):
        """The engine's driver does what there is to do and looks where that is due. False once fenced."""
        return self.driver.turn(self.clock())

    def look(self, times=1):
        """Time passes to the next complete look, what it shows is taken in, and the engine is told what follows."""
        for _ in range(times):
            self.clock.pass_(5.5)
            self.turn()
            self.step()
            self.turn()

    def ready(self):
        self.turn()
        self.step()
        return self

    # What people do

    def submit(self, what="A100", *, key=None, fingerprint="f", queue=False, account="ada", **changes):
        """Submits a spec, or one for those GPUs."""
        spec = what if isinstance(what, RunSpec) else run_spec(**({"gpus": what} | changes))
        run_id, _ = self.control.submit(
            spec, account=account, idempotency_key=key, fingerprint=fingerprint, queue=queue
        )
        return run_id

    def launch(self, *gpus, **changes):
        """Submits and lets the run start; returns its id and the ids of its instances."""
        run_id = self.submit(*gpus, **changes)
        self.look()
        ids = self.instances_of(run_id)
        for name in ids:
            self.engine.start(name)
        self.look()
        return (run_id, *ids)

    def instances_of(self, run_id):
        return [name for name in self.engine.alive() if name.startswith(run_id)]

    # What the store says

    def run(self, run_id):
        with self.db.read() as tx:
            return views.find_run(tx, run_id, account="", project="")

    def unit(self, run_id, place=0):
        with self.db.read() as tx:
            return views.find_unit(tx, run_id, place)

    def instance(self, instance_id):
        with self.db.read() as tx:
            return tx.execute(select(tables.instance).where(tables.instance.c.id == instance_id)).first()

    def rows(self, table):
        with self.db.read() as tx:
            return tx.execute(select(table)).all()

    def events(self, run_id=None):
        """Kinds of events, in order."""
        with self.db.read() as tx:
            return [event.kind for event in events.page(tx, run_id=run_id, limit=500)]

    def fresh(self):
        """The picture as the store tells it."""
        with self.db.read() as tx:
            return load(tx, self.rules)

    @property
    def seen(self):
        return self.loop.seen
