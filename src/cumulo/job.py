"""What a run may import inside: where to save, when to save, whether to leave, and how far it has come.

    from cumulo import job

    for step in range(first, steps):
        train(step)
        job.progress(step + 1, steps, loss=loss)
        if job.checkpoint_due():
            with job.saving():
                save(job.checkpoint_dir() / "state.pt")
        if job.preempted():
            break

Standard library only and plain Python 3.8, since it is imported by the run's own interpreter, where Cumulo need not be
installed: the engine puts this file on PYTHONPATH. Outside Cumulo nothing of it does anything, so a program that uses
it runs anywhere.

Whoever asks `preempted`, `on_preempt` or `checkpoint_due` first, in the main thread, also takes SIGTERM in hand: from
then on it ends the program only where it does not announce a preemption.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import signal
import sys
import time
from bisect import bisect_right
from contextlib import contextmanager
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

USUAL_HAZARD = 1 / 86400  # per second, where nobody told: one interruption a day
FIRST_COST_S = 10.0  # what a save is taken to cost before there was one
PAUSE_S = 0.1  # between two lines of progress, so that a tight loop writes no gigabytes
SIGNAL_S = 1.0  # a signal that follows a notice has come by then
EXIT_CODE = 128 + signal.SIGTERM


def interval(cost_s: float, age_s: float, hazard: tuple[tuple[float, float], ...] = ()) -> float:
    """Seconds of work between two saves that cost `cost_s` each: Young's interval √(2δ/h), by the hazard at this age.

    `hazard` is (age in seconds from which it holds, per second), rising from age 0. Young, "A first order
    approximation to the optimum checkpoint interval", 1974.
    """
    ages = [each[0] for each in hazard]
    per_s = hazard[max(0, bisect_right(ages, age_s) - 1)][1] if hazard else USUAL_HAZARD
    return max(cost_s, math.sqrt(2 * cost_s / max(per_s, 1e-12)))


class Job:
    """One process of a run. The module's functions are those of the process that imported it."""

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        env = os.environ if env is None else env
        self._clock, self._wall = clock, wall
        self._inside = "CUMULO_INSTANCE_ID" in env
        self._folder = Path(env.get("CUMULO_CHECKPOINT_DIR", "."))
        self._notice = env.get("CUMULO_NOTICE")
        # RANK numbers all processes of a run: of instances, or of torchrun's workers. One of them speaks for all.
        self._progress = env.get("CUMULO_PROGRESS") if env.get("RANK", "0") == "0" else None
        self._saves = env.get("CUMULO_PROGRESS") if env.get("LOCAL_RANK", "0") == "0" else None
        self._hazard = _table(env.get("CUMULO_HAZARD", ""))
        self._began = clock()
        self._age_s = max(0.0, wall() - float(env.get("CUMULO_BEGAN_AT") or wall()))  # when this began
        self._costs: list[float] = []
        self._saved = self._began  # when the last save was done
        self._saved_since = self._began  # what it holds: the work until here
        self._told_at: float | None = None  # when it was first seen that we must leave
        self._saving = False
        self._callbacks: list[Callable[[], object]] = []
        self._listens = self._signalled = False
        self._pid = os.getpid()
        self._line: dict[str, object] = {}
        self._written_at = -math.inf
        self._unwritten = False

    # ---- where and when to save -------------------------------------------------------------------------------------

    def checkpoint_dir(self) -> Path:
        """The folder that outlives the attempt; outside Cumulo the current one."""
        return self._folder

    def checkpoint_due(self) -> bool:
        """Whether to save now: Young's interval for what a save costs here has passed, or the run must leave.

        Each process decides for itself: where several save together, ask in one and tell the others.
        """
        if not self._inside:
            return False
        if self.preempted() and self._told_at is not None:
            return self._saved_since < self._told_at
        now = self._clock()
        return now - self._saved >= interval(self.cost_s(), self._age_s + now - self._began, self._hazard)

    def cost_s(self) -> float:
        """The mean of what saves have cost, in seconds."""
        return sum(self._costs) / len(self._costs) if self._costs else FIRST_COST_S

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Around a save: measures what it costs, and tells Cumulo that the work until now is safe if it succeeds."""
        since, at = self._clock(), self._wall()
        before, self._saving = self._saving, True
        try:
            yield
            self.saved(self._clock() - since, at)
            self._saved_since = since
        finally:
            self._saving = before
            if self._callbacks and not before and self._told_at is not None:
                self._leave()

    def saved(self, cost_s: float, at: float | None = None) -> None:
        """The same for a library that saves by itself: what it cost, and of when (epoch seconds) the state is."""
        self._saved = self._saved_since = self._clock()
        self._costs.append(cost_s)
        self._line["checkpoint"] = round(self._wall() - cost_s if at is None else at, 3)
        if self._saves:
            self._write(self._saves)

    # ---- whether to leave -------------------------------------------------------------------------------------------

    def preempted(self) -> bool:
        """Whether the run has been told to make room for others: save what is not saved, and end."""
        self._listen()
        if self._told_at is None and self._announced():
            self._told_at = self._clock()
        return self._told_at is not None

    def _announced(self) -> bool:
        """Whether the notice is there, and the signal that follows it has come or can't be waited for.

        The signal also ends the shell around this program: who left before it would let that go on to its next command.
        """
        try:
            since = os.stat(self._notice).st_mtime if self._notice else None
        except OSError:
            return False
        waits = self._listens and not self._signalled
        return since is not None and not (waits and self._wall() - since < SIGNAL_S)

    def preempt_at(self) -> float | None:
        """When the run will be killed, in epoch seconds; None while nobody wants its place."""
        if not self.preempted() or self._notice is None:
            return None
        return float(Path(self._notice).read_text().partition("=")[2])

    def on_preempt(self, callback: Callable[[], object]) -> None:
        """Calls it once the run must leave, in the main thread wherever that is then, and ends the program after it.

        Several are called in the order in which they came. A save under way is done first.
        """
        self._listen()
        self._callbacks.append(callback)
        if self.preempted():
            self._leave()

    def _listen(self) -> None:
        if self._listens or not self._inside:
            return
        try:
            self._before = signal.signal(signal.SIGTERM, self._on_term)
            self._listens = True
        except ValueError:  # not the main thread, which may ask later; until then the file must do
            return

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True
        if self.preempted():
            if os.getpid() == self._pid and self._callbacks and not self._saving:
                self._leave()
            return  # a forked child, such as one that loads data, is needed until its parent has saved
        if callable(self._before):
            self._before(number, frame)
        elif self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def _leave(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        sys.exit(EXIT_CODE)

    # ---- how far it has come ----------------------------------------------------------------------------------------

    def progress(self, done: float, total: float = 0, *, unit: str = "", **metrics: float | str) -> None:
        """How much is done of how much (0: nobody knows), for the bar, for `cumulo status`, and to learn the rate."""
        if self._progress is None:
            return
        if "done" not in self._line:
            atexit.register(self._flush)
        self._line.update(done=float(done), total=float(total), unit=unit)
        self._line["metrics"] = {name: one if isinstance(one, str) else float(one) for name, one in metrics.items()}
        self._unwritten = True
        if self._clock() - self._written_at >= PAUSE_S or 0 < total <= done:
            self._write(self._progress)

    def _flush(self) -> None:
        if self._unwritten and self._progress and os.getpid() == self._pid:
            self._write(self._progress)

    def _write(self, path: str) -> None:
        """One line that says all there is to say, since only the last line counts."""
        self._written_at, self._unwritten = self._clock(), False
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(self._line) + "\n")
        except OSError:  # a full disk must not end the work
            return


def _table(text: str) -> tuple[tuple[float, float], ...]:
    """Reads CUMULO_HAZARD: `age:hazard,age:hazard,…`."""
    pairs = (each.partition(":") for each in text.split(",") if each)
    return tuple((float(age_s), float(per_s)) for age_s, _, per_s in pairs)


_here = Job()
checkpoint_dir = _here.checkpoint_dir
checkpoint_due = _here.checkpoint_due
cost_s = _here.cost_s
saving = _here.saving
saved = _here.saved
preempted = _here.preempted
preempt_at = _here.preempt_at
on_preempt = _here.on_preempt
progress = _here.progress
