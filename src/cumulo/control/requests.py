"""What reaches the control loop from other threads: new runs, wishes with an answer, and the engines' reports."""

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from cumulo.control.driver import Report
from cumulo.domain.errors import CumuloError

# Wishes are answered when they are in the store; nobody waits for that longer than this.
ANSWER_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Something wanted of a run: `running`, `stopped` or `cancelled`. The answer is None, or the error it raises."""

    run_id: str
    wanted: str
    grace_s: float | None
    index: int | None
    answer: Future[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """A change of the picture and a batch, on the loop's thread. Its outcome is the answer, once in the store."""

    do: Callable[[Any, Any, float], Any]
    answer: Future[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something to be worked out from the loop's picture, on the loop's thread, so that it is of one moment."""

    ask: Callable[[Any], Any]
    answer: Future[Any]


@dataclass(slots=True)
class Mail:
    """All that had arrived when the loop looked."""

    runs: list[str] = field(default_factory=list)
    wishes: list[Wish] = field(default_factory=list)
    deeds: list[Deed] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    progress: dict[str, str] = field(default_factory=dict)
    closing: bool = False

    def __bool__(self) -> bool:
        asked = self.wishes or self.deeds or self.questions
        return bool(self.runs or asked or self.reports or self.progress or self.closing)


Item = str | Wish | Deed | Question | Report | tuple[str, str] | None


class Inbox:
    """The loop's letter box. Anybody may put something in; only the loop takes out."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._closed = False

    def new_run(self, run_id: str) -> None:
        self._queue.put(run_id)

    def report(self, report: Report) -> None:
        self._queue.put(report)

    def progress(self, instance_id: str, line: str) -> None:
        self._queue.put((instance_id, line))

    def wish(self, run_id: str, wanted: str, *, grace_s: float | None = None, index: int | None = None) -> None:
        """Returns when the wish is in the store. Raises what the loop found wrong with it, or `unreachable`."""
        answer: Future[None] = Future()
        self._queue.put(Wish(run_id=run_id, wanted=wanted, grace_s=grace_s, index=index, answer=answer))
        self.wait(answer)

    def deed(self, do: Callable[[Any, Any, float], Any]) -> Any:
        """What `do` made of the picture, a batch and the time, once that is in the store. Raises what it raises."""
        answer: Future[Any] = Future()
        self._queue.put(Deed(do=do, answer=answer))
        return self.wait(answer)

    def question(self, ask: Callable[[Any], Any]) -> Any:
        """What `ask` makes of the loop's picture. Raises what it raises, or CumuloError `unreachable`."""
        answer: Future[Any] = Future()
        self._queue.put(Question(ask=ask, answer=answer))
        return self.wait(answer)

    def wait(self, answer: "Future[Any]") -> Any:
        """The loop's answer."""
        try:
            return answer.result(timeout=0.0 if self._closed else ANSWER_S)
        except TimeoutError:
            # Once cancelled it is never done; if the loop has just begun with it, it may still be.
            if answer.done() and not answer.cancelled():
                return answer.result()
            answer.cancel()
            text = "the server is stopping" if self._closed else f"the control loop did not answer in {ANSWER_S:g} s"
            raise CumuloError("unreachable", text, hint="try again in a moment") from None

    def put_back(self, mail: Mail) -> None:
        """What arrived is to be worked out once more, on a new picture."""
        items: list[Item] = [*mail.runs, *mail.wishes, *mail.deeds, *mail.questions, *mail.reports]
        items += mail.progress.items()
        for item in items:
            self._queue.put(item)

    def close(self) -> None:
        """Lets the loop end; what it has not answered by then never is."""
        self._closed = True
        self._queue.put(None)

    def take(self, timeout: float) -> Mail:
        """All that is there, after waiting up to `timeout` seconds for the first."""
        mail = Mail()
        deadline = time.monotonic() + timeout
        while True:
            try:
                item = self._queue.get(timeout=max(0.0, deadline - time.monotonic())) if not mail else None
                if item is None and mail:
                    item = self._queue.get_nowait()
            except queue.Empty:
                return mail
            _sort(mail, item)


def _sort(mail: Mail, item: Item) -> None:
    match item:
        case None:
            mail.closing = True
        case str():
            mail.runs.append(item)
        case Wish():
            mail.wishes.append(item)
        case Deed():
            mail.deeds.append(item)
        case Question():
            mail.questions.append(item)
        case Report():
            mail.reports.append(item)
        case (instance_id, line):
            mail.progress[instance_id] = line
