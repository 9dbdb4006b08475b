"""See Engine: nodes that are declared, and instances that live by the clock alone.

It is for scale and for rehearsal: thousands of nodes on a laptop, with the whole control plane at work and nothing
started. All it shows bears its name: the region and its nodes are called `simulated`, and its devices are emulated.
"""

import contextlib
import errno
import heapq
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cumulo.domain.check import Check
from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import InstanceSpec, Observation, parse_instance_id
from cumulo.domain.lifecycle import InstanceState
from cumulo.domain.node import Node, Pool
from cumulo.domain.storage import Stored
from cumulo.engines.epoch import EpochFence
from cumulo.engines.notice import last_moment
from cumulo.engines.protocol import ByteStream, Readings, StreamRequest
from cumulo.engines.simulated.journal import Journal, Line
from cumulo.engines.simulated.life import Life
from cumulo.node.devices.emulated import parse_emulation

NAME: Final = "simulated"
MAX_NODES: Final = 200_000
# What was let go this recently stays known whatever is asked: an old call may still be on its way.
_YOUNG_S: Final = 3600.0
_MOST_WAIT_S: Final = 3600.0  # the clock may be set meanwhile


class SimulatedEngine:
    """`nodes` declares its nodes as `cumulo up --emulate` does; `root` is where it keeps what was asked of it.

    `clock` gives epoch seconds. Raises EmulationError, or OSError where `root` can't be written.
    """

    kind = NAME

    def __init__(
        self, *, root: Path, cloud_id: str, nodes: str, name: str = NAME, clock: Callable[[], float] = time.time
    ) -> None:
        self.name = name
        self.cloud_id = cloud_id
        self._nodes = parse_emulation(nodes, called=NAME, most=MAX_NODES)
        self._clock = clock
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fence = EpochFence(root / "epoch")
        self._journal = Journal(root / "journal")
        self._lives: dict[str, Life] = {}
        self._released: dict[str, float] = {}  # when they were let go
        self._listeners: list[Callable[[str], None]] = []
        self._ends: list[tuple[float, str]] = []  # a heap: when to tell of whom
        self._changed = threading.Condition()  # over all of the above
        self._closing = False
        with self._changed:
            self._recall()
        self._teller = threading.Thread(target=self._tell_ends, name="simulated-ends", daemon=True)
        self._teller.start()

    # What is there

    def pools(self) -> tuple[Pool, ...]:
        return ()

    def nodes(self) -> tuple[Node, ...]:
        return self._nodes

    def observe(self, only: frozenset[str] | None = None) -> Observation:
        with self._changed:
            as_of = self._clock()
            lives = (
                self._lives.values()
                if only is None
                else [self._lives[name] for name in sorted(only) if name in self._lives]
            )
            told = tuple(life.observed(as_of) for life in lives)
        return Observation(instances=told, complete=only is None, as_of=as_of)

    def telemetry(self) -> Readings:
        return Readings(devices=(), instances=())  # nothing happens that could be measured

    def read_log(self, instance_id: str, offset: int, limit: int = 1 << 20) -> bytes:
        with self._changed:
            if instance_id not in self._lives and instance_id not in self._released:
                raise KeyError(instance_id)
        return b""

    def stream(self, instance_id: str, request: StreamRequest) -> ByteStream:
        self.read_log(instance_id, 0)  # KeyError for one that is unknown
        raise CumuloError("conflict", f"the instance {instance_id} is simulated: there is no process and no file in it")

    def on_change(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def doctor(self) -> tuple[Check, ...]:
        text = f"{len(self._nodes)} declared: what is placed there is accounted for, but nothing of it is started"
        return (Check(name="simulated nodes", status="info", text=text),)

    # What shall be

    def ensure(self, spec: InstanceSpec, epoch: int) -> None:
        name = spec.instance_id
        with self._changed:
            self._fence.check(epoch)
            if name in self._lives or name in self._released:
                return
            life = Life.of(spec, self._clock())
            self._note({"life": life.to_wire()})
            self._lives[name] = life
            self._expect_end(life)
        self._hint(name)

    def stop(self, instance_id: str, grace_s: float, epoch: int, preempt_at: float | None = None) -> None:
        with self._changed:
            self._fence.check(epoch)
            life = self._lives.get(instance_id) or Life(instance_id=instance_id, cloud_id=self.cloud_id)
            now = self._clock()
            over = life.asked_at is not None and life.observed(now).state is InstanceState.ENDED
            if over or instance_id in self._released or (life.asked_at is None and life.stop_at is not None):
                return
            if preempt_at is not None:
                grace_s = last_moment(preempt_at, grace_s, now) - now
            self._note({"stop": instance_id, "grace_s": grace_s, "at": now})
            life.stop(grace_s, now)
            self._lives[instance_id] = life
            self._expect_end(life)
        self._hint(instance_id)

    def release(self, instance_id: str, epoch: int) -> None:
        with self._changed:
            self._fence.check(epoch)
            life, now = self._lives.get(instance_id), self._clock()
            if life is None:
                return
            if life.observed(now).state is not InstanceState.ENDED:
                raise CumuloError("conflict", f"the instance {instance_id} has not ended, so it can't be released")
            self._note({"release": instance_id, "at": now})
            del self._lives[instance_id]
            self._released[instance_id] = now

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._teller.join(timeout=5)
        self._journal.close()

    # What it keeps

    def storage(self) -> tuple[Stored, ...]:
        """What it keeps on the disk, by kind."""
        with self._changed:
            count = len(self._lives) + len(self._released)
            return (Stored(what="records", count=count, bytes=self._journal.size, path=str(self._journal.path)),)

    def sweep(
        self, *, keep_s: float, environments_s: float, active_runs: frozenset[str], dry_run: bool = False
    ) -> tuple[Stored, ...]:
        """Forgets instances of runs other than `active_runs` that were let go more than `keep_s` seconds ago.

        Returns what went, by kind; with `dry_run`, what would. It has no environments.
        """
        with self._changed:
            until = self._clock() - max(_YOUNG_S, keep_s)
            old = [name for name, at in self._released.items() if at < until and _run_of(name) not in active_runs]
            before = self._journal.size
            size = before * len(old) // max(1, len(self._lives) + len(self._released))  # lines are about alike
            if old and not dry_run:
                for name in old:
                    del self._released[name]
                with self._writing():
                    self._journal.replace(self._lines())
                size = before - self._journal.size
            return (Stored(what="records", count=len(old), bytes=size, path=str(self._journal.path)),)

    # Inside

    def _recall(self) -> None:
        """Takes up what an engine before this one was asked, and leaves out of the journal what is over."""
        for line in self._journal.read():
            if "life" in line:
                life = Life.from_wire(line["life"])
                self._lives[life.instance_id] = life
            elif "stop" in line:
                name = line["stop"]
                life = self._lives.setdefault(name, Life(instance_id=name, cloud_id=self.cloud_id))
                life.stop(line["grace_s"], line["at"])
            elif "release" in line:
                self._lives.pop(line["release"], None)
                self._released[line["release"]] = line["at"]
        self._journal.replace(self._lines())
        for life in self._lives.values():
            self._expect_end(life)

    def _lines(self) -> Iterator[Line]:
        yield from ({"life": life.to_wire()} for life in self._lives.values())
        yield from ({"release": name, "at": at} for name, at in self._released.items())

    def _note(self, line: Line) -> None:
        with self._writing():
            self._journal.append(line)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Tells a disk's refusal as what it is: the caller tries again later."""
        try:
            yield
        except OSError as error:
            code = "storage_read_only" if error.errno in (errno.EROFS, errno.EACCES) else "storage_full"
            raise CumuloError(code, f"{self._journal.path} can't be written: {error.strerror}") from error

    def _expect_end(self, life: Life) -> None:
        end = life.end
        if end is not None:
            heapq.heappush(self._ends, (end.at, life.instance_id))
            self._changed.notify()

    def _tell_ends(self) -> None:
        """Hints at each end when its time has come."""
        while True:
            with self._changed:
                now = self._clock()
                wait = min(_MOST_WAIT_S, self._ends[0][0] - now) if self._ends else _MOST_WAIT_S
                if not self._closing and wait > 0:
                    self._changed.wait(wait)
                    now = self._clock()
                if self._closing:
                    return
                due = []
                while self._ends and self._ends[0][0] <= now:
                    due.append(heapq.heappop(self._ends)[1])
            for name in due:
                self._hint(name)

    def _hint(self, instance_id: str) -> None:
        for listener in self._listeners:
            listener(instance_id)


def _run_of(name: str) -> str:
    try:
        return parse_instance_id(name).run_id
    except ValueError:
        return ""
