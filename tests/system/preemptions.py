"""Spot runs that are preempted by real on-demand runs, with evidence of every step they take.

A payload walks a chain of digests, a step at a time, and writes each step down beside when it took it. It saves at
intervals; when it is told to leave it saves once more and goes, or stays and is killed, as it was told to. What it ends
with does not depend on how often it was preempted, and what it did twice stands in its own words.
"""

import hashlib
import itertools
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cumulo.store import tables
from tests.system import evidence
from tests.system.cloud import Cloud
from tests.system.evidence import Row, Store
from tests.system.load import outputs

INTERVAL_S, GRACE_S, PAUSE_S = 0.4, 0.6, 0.04
SLACK_S = 0.4  # a step, a look at the clock, and a machine that others use too
NODES = "2x A100-80GB:4"
SPOT_RUNS = 7

PAYLOAD = """
exec python3 -u - <<'END'
import hashlib, json, os, signal, sys, time
from pathlib import Path
from cumulo import job

steps, pause, interval = int(os.environ["STEPS"]), float(os.environ["PAUSE"]), float(os.environ["INTERVAL"])
stays, rank = os.environ["STAYS"] == "1", os.environ["CUMULO_RANK"]
name = os.environ["CUMULO_INSTANCE_ID"]
state, out = job.checkpoint_dir() / f"state-{rank}", Path(os.environ["CUMULO_OUTPUT_DIR"])
first, digest = json.loads(state.read_text()) if state.exists() else (0, "")
log = open(out / f"steps-{rank}", "a", buffering=1)
log.write(f"{name} begin {first} {time.time()} {os.environ['CUDA_VISIBLE_DEVICES']}\\n")
saved = time.monotonic()
if stays:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in range(first, steps):
    time.sleep(pause)
    digest = hashlib.sha256(f"{digest}{step}".encode()).hexdigest()
    log.write(f"{name} step {step} {time.time()}\\n")
    job.progress(step + 1, steps, unit="step")
    leaves = not stays and job.preempted()
    if leaves or time.monotonic() - saved >= interval:
        with job.saving():
            part = state.with_suffix(".part")
            part.write_text(json.dumps([step + 1, digest]))
            part.replace(state)
        saved = time.monotonic()
    if leaves:
        sys.exit(0)
(out / f"result-{rank}").write_text(digest)
log.write(f"{name} end {steps} {time.time()}\\n")
END
"""


def undisturbed(steps: int) -> str:
    """What a payload ends with."""
    digest = ""
    for step in range(steps):
        digest = hashlib.sha256(f"{digest}{step}".encode()).hexdigest()
    return digest


@dataclass(frozen=True, slots=True)
class Sent:
    """A spot run and what its payload was told."""

    id: str
    steps: int
    stays: bool
    nodes: int


@dataclass
class Market:
    """Keeps spot runs going and has them preempted. What is random comes from `seed`; when things happen does not."""

    cloud: Cloud
    seed: int
    most_steps: int
    sent: list[Sent] = field(default_factory=list)
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.client = self.cloud.client()
        list(self.client.runs(active=True))  # from its first answer on, it waits for a server that restarts

    def fill(self) -> None:
        """Sends spot runs until so many are active."""
        for _ in range(SPOT_RUNS - sum(run.purchase == "spot" for run in self.client.runs(active=True))):
            steps, stays, nodes = (
                self.rng.randint(self.most_steps // 3, self.most_steps),
                self.rng.random() < 0.4,
                self.rng.choice((1, 1, 1, 2)),
            )
            told = {"STEPS": steps, "PAUSE": PAUSE_S, "INTERVAL": INTERVAL_S, "STAYS": int(stays)}
            run = self.client.submit(
                {
                    "name": f"spot-{len(self.sent)}",
                    "run": PAYLOAD,
                    "gpu": "A100",
                    "num_nodes": nodes,
                    "resources": {"use_spot": True, "cpus": 0.1, "memory": "100MB"},
                    "grace": GRACE_S,
                    "envs": {name: str(value) for name, value in told.items()},
                },
                queue=True,
            )
            self.sent.append(Sent(run.id, steps, stays, nodes))

    def preempt(self) -> str:
        """Launches an on-demand run that needs the room of some of them; its id."""
        run = self.client.submit(
            {
                "name": "first",
                "run": f"sleep {self.rng.uniform(0.05, 0.4):.2f}",
                "gpu": f"A100:{self.rng.randint(1, 4)}",
                "num_nodes": self.rng.choice((1, 1, 1, 2)),
                "resources": {"cpus": 0.1, "memory": "100MB"},
            },
            queue=True,
        )
        return run.id

    def preempted(self) -> int:
        """How many instances have made room so far."""
        with Store(self.cloud) as store:
            return sum(row["reason"] == "preempted" for row in store.rows(tables.instance))

    def await_end(self, patience_s: float = 120.0) -> None:
        deadline = time.monotonic() + patience_s
        while left := [f"{run.id} {run.status}" for run in self.client.runs(active=True)]:
            assert time.monotonic() < deadline, f"still active: {left}"
            time.sleep(0.1)


class Life(NamedTuple):
    """One life of a payload as it wrote it down: where it began, and when it took which step."""

    instance: str
    began: float
    first: int
    devices: tuple[str, ...]
    steps: dict[int, float]
    ended: bool

    @property
    def last(self) -> float:
        return max(self.steps.values(), default=self.began)


def lives(folder: Path, rank: int) -> list[Life]:
    found: list[Life] = []
    for line in (folder / f"steps-{rank}").read_text().splitlines():
        name, what, number, at, *devices = line.split()
        if what == "begin":
            cards = tuple(devices[0].split(",")) if devices else ()
            found.append(Life(name, float(at), int(number), cards, {}, ended=False))
        elif what == "step":
            found[-1].steps[int(number)] = float(at)
        else:
            found[-1] = found[-1]._replace(ended=True)
    return found


class Outcome(NamedTuple):
    """What the evidence came to."""

    preemptions: int
    worst_redone_s: float
    redone_s: float
    worked_s: float


def all_is_well(market: Market) -> Outcome:
    """Holds what the store says against what the payloads wrote, after everything has ended. Raises AssertionError."""
    with Store(market.cloud) as store:
        runs = {row["id"]: row for row in store.rows(tables.run)}
        instances = {row["id"]: row for row in store.rows(tables.instance)}
        segments = defaultdict(list)
        for row in store.rows(tables.usage):
            segments[row["instance_id"]].append(row)
        assert store.rows(tables.hold) == []
    assert {row["status"] for row in runs.values()} == {"succeeded"}, [(r["name"], r["message"]) for r in runs.values()]
    for row in instances.values():
        _metered(market.cloud, row, segments[row["id"]])
    told = [(one, rank, lives(outputs(market.cloud, one.id), rank)) for one in market.sent for rank in range(one.nodes)]
    redone = []
    for one, rank, each in told:
        result = (outputs(market.cloud, one.id) / f"result-{rank}").read_text()
        assert result == undisturbed(one.steps), f"{one.id} ended otherwise than undisturbed"
        reasons = [instances[life.instance]["reason"] for life in each]
        # A rank that is done while its peer must leave does its last steps again with it.
        assert {*reasons[:-1]} <= ({"preempted", "succeeded"} if one.nodes > 1 else {"preempted"}), (one, reasons)
        assert reasons[-1] == "succeeded", (one, reasons)
        redone += [_redone(one, *pair) for pair in itertools.pairwise(each)]
    _one_at_a_time(told, instances)
    rows = [row for row in instances.values() if row["reason"] == "preempted"]
    worked = sum(life.last - life.began for _, _, each in told for life in each)
    return Outcome(len(rows), max(redone, default=0.0), sum(redone), worked)


def _redone(one: Sent, before: Life, after: Life) -> float:
    """Seconds of work of one life that the next one did again."""
    assert after.first <= max(before.steps, default=before.first - 1) + 1, "a step was left out"
    again = [at for step, at in before.steps.items() if step >= after.first]
    seconds = max(again) - min(again) + PAUSE_S if again else 0.0
    bound = INTERVAL_S + GRACE_S if one.stays else GRACE_S
    assert seconds <= bound + SLACK_S, f"{before.instance} did {seconds:.2f} s in vain, {bound:.2f} s are allowed"
    return seconds


def _metered(cloud: Cloud, row: Row, segments: list[Row]) -> None:
    """What is billed is what its supervisor saw, to the last digit and without a gap."""
    record = evidence.record_of(cloud, row["id"])
    if row["started_at"] is None:
        assert not segments, row
        return
    assert record is not None, row
    spans = sorted((segment["started_at"], segment["ended_at"]) for segment in segments)
    assert spans[0][0] == record.started_at, (row["id"], spans, record)
    assert spans[-1][1] == record.ended_at, (row["id"], spans, record)
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(spans)), spans


def _one_at_a_time(told: list[tuple[Sent, int, list[Life]]], instances: dict[str, Row]) -> None:
    by_row = [
        (device, row["started_at"], row["ended_at"], row["id"])
        for row in instances.values()
        for device in row["devices"].split(",")
        if row["started_at"] and device
    ]
    by_word = [
        (device, life.began, life.last, life.instance)
        for _, _, each in told
        for life in each
        for device in life.devices
    ]
    evidence.one_at_a_time(by_row)
    evidence.one_at_a_time(by_word)


def facts(outcome: Outcome) -> dict[str, Any]:
    return {name: round(value, 2) for name, value in outcome._asdict().items()}
