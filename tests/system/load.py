"""People at work while the server dies: threads that submit and cancel, and payloads that write down their own lives.

A payload notes in its outputs folder each life it begins (instance, devices, time) and counts on, ten times a second,
in a file of its instance. What it wrote there is the evidence that `tests.system.evidence` holds against the store.
"""

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cumulo.client import Client, run_file
from cumulo.domain.errors import CumuloError
from tests.system.cloud import Cloud

# No fork in the loop: reading from a silent pipe is a pause that bash does by itself.
PAYLOAD = """
lives=$CUMULO_OUTPUT_DIR/lives
echo "$CUMULO_INSTANCE_ID begin $EPOCHREALTIME ${CUDA_VISIBLE_DEVICES:--}" >> "$lives"
if [ "$TRAP" = 1 ]; then trap 'exit 9' TERM; fi
exec {silence}<> <(:)
for ((i = 0; i < BEATS; i++)); do
  echo "$i $$ $EPOCHREALTIME" >> "$CUMULO_OUTPUT_DIR/$CUMULO_INSTANCE_ID.beats"
  read -rt 0.1 -u "$silence" || true
done
[ -z "$WANTS" ] || grep -qx "$WANTS" content
echo "$CUMULO_INSTANCE_ID end $EPOCHREALTIME" >> "$lives"
exit "$CODE"
"""
ACTIVE = 24  # submitters hold back while so many runs are active


@dataclass(frozen=True, slots=True)
class Sent:
    """A run that was accepted: its id and what its payload was told."""

    id: str
    beats: int
    code: int
    data: dict[str, Any]


@dataclass
class Load:
    """Submits and cancels until `stop`. Everything random comes from `seed`; when things happen does not."""

    cloud: Cloud
    seed: int
    sent: list[Sent] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for number, work in enumerate((self._submit, self._submit, self._cancel)):
            rng, client = random.Random(self.seed * 10 + number), self.cloud.client()
            list(client.runs(active=True))  # from its first answer on, a client waits for a server that restarts
            self._threads.append(threading.Thread(target=self._guarded, args=(work, client, rng)))
            self._threads[-1].start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, work: Any, client: Client, rng: random.Random) -> None:
        try:
            while not self._over.wait(rng.uniform(0.02, 0.3)):
                work(client, rng)
        except Exception as error:
            self.errors.append(f"{work.__name__}: {error!r}")

    def _submit(self, client: Client, rng: random.Random) -> None:
        if sum(1 for _ in client.runs(active=True)) >= ACTIVE:
            return
        beats, code = rng.randint(1, 25), rng.choice((0, 0, 0, 3))
        data = self._kind(client, rng) | {"name": f"load-{rng.randrange(10**6)}", "run": PAYLOAD, "grace": 1}
        envs = {"BEATS": beats, "CODE": code, "TRAP": rng.randint(0, 1), "WANTS": data.pop("wants", "")}
        data["envs"] = {name: str(value) for name, value in envs.items()}
        try:
            run = client.submit(data, queue=True)
        except CumuloError as error:
            if error.code == "conflict" and "after" in data:  # what it was to come after has failed
                return
            raise
        self.sent.append(Sent(run.id, beats, code, data))

    def _kind(self, client: Client, rng: random.Random) -> dict[str, Any]:
        """What is launched: plain runs, arrays, gangs, runs with files, after others, with retries."""
        gpu = rng.choice((None, "T4", "A100-80GB", "A100:2", "A100-80GB:4"))
        plain: dict[str, Any] = {"gpu": gpu} if gpu else {}
        match rng.randrange(8):
            case 0:
                return {"array": f"0-{rng.randint(1, 6)}%3", "gpu": rng.choice(("T4", "A100"))}
            case 1:
                return {"num_nodes": 2, "gpu": rng.choice(("A100", "A100:3"))}
            case 2:
                return plain | self._files(client, rng)
            case 3 if self.sent:
                return plain | {"after": [rng.choice(self.sent[-20:]).id]}
            case 4:
                return plain | {"retry": {"on_events": ["error", "lost"], "max_attempts": 2, "backoff": 0.1}}
            case 5:
                return plain | {"runtime": "process"}
        return plain

    def _files(self, client: Client, rng: random.Random) -> dict[str, Any]:
        folder = self.cloud.folder / f"files-{rng.randrange(10**9)}"
        folder.mkdir()
        text = str(rng.random())
        (folder / "content").write_text(text + "\n")
        drafted = run_file.draft({"workdir": "."}, folder)
        return {"wants": text, **run_file.complete(client, drafted, env=self.cloud.env)}

    def _cancel(self, client: Client, rng: random.Random) -> None:
        if not self.sent or rng.random() < 0.6:
            return
        run = rng.choice(self.sent[-12:]).id
        self.cancelled.add(run)  # before: it may be done, and the answer die with the server
        try:
            client.cancel(run, grace_s=rng.choice((0, 0.3, None)))
        except CumuloError as error:
            if error.code != "conflict":  # it had ended
                raise

    def await_end(self, patience_s: float = 90.0) -> None:
        """Waits until nothing is active any more."""
        client, deadline = self.cloud.client(), time.monotonic() + patience_s
        while left := [f"{run.id} {run.status}" for run in client.runs(active=True)]:
            assert time.monotonic() < deadline, f"still active: {left}"
            time.sleep(0.1)


def outputs(cloud: Cloud, run: str, unit: int = 0) -> Path:
    """Where the payloads of a unit write, seen from outside."""
    return cloud.home / "node" / "runs" / run / str(unit) / "outputs"
