"""A run's log on a terminal or in a pipe: prefixes where several instances write, and a progress bar below.

The log goes to stdout as it is; the bar and the changes of status go to stderr. The bar is drawn only where both are a
terminal, always below whole lines; elsewhere progress comes as a plain line now and then.
"""

import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, TextIO

from cumulo.cli import phrases
from cumulo.cli.tables import cut, is_terminal, styled
from cumulo.client.answers.logs import LogText, StatusChange
from cumulo.client.answers.runs import Progress, Run

_GANG = re.compile(r"\d+ nodes x")
_BAR = 24
_LINE_EVERY_S = 15.0


def has_several(run: Run) -> bool:
    """Whether several instances write this run's log, so that each line must say whose it is."""
    return run.units > 1 or bool(_GANG.match(run.ask))


@dataclass(slots=True)
class LogWriter:
    """Writes log text; with `prefixed`, whole lines with their source before them. `close` writes what is left.

    A line stands between what one attempt wrote and what the next one does.
    """

    out: BinaryIO
    prefixed: bool
    bar: "ProgressBar | None" = None
    _pieces: dict[str, str] = field(default_factory=dict)
    _attempts: dict[str, int] = field(default_factory=dict)  # by source, whose text came last
    _whole: bool = True  # the last line is complete

    def write(self, piece: LogText) -> None:
        source, text = phrases.clean(piece.source or f"rank {piece.rank}"), piece.text
        if self._attempts.setdefault(source, piece.attempt) != piece.attempt:
            self._attempts[source] = piece.attempt
            whole = not self._pieces.get(source) if self.prefixed else self._whole
            text = f"{'' if whole else chr(10)}[cumulo: attempt {piece.attempt}]\n{text}"
        if not self.prefixed:
            self._emit(text)
            return
        *lines, rest = (self._pieces.pop(source, "") + text).split("\n")
        self._emit("".join(f"[{source}] {line}\n" for line in lines))
        if rest:
            self._pieces[source] = rest

    def close(self) -> None:
        for source, rest in self._pieces.items():
            self._emit(f"[{source}] {rest}\n")
        self._pieces.clear()

    def _emit(self, text: str) -> None:
        if not text:
            return
        if self.bar:
            self.bar.clear()
        self._whole = text.endswith("\n")
        self.out.write(text.encode("utf-8", "replace"))
        self.out.flush()
        if self.bar:
            self.bar.at_line_start = self._whole
            self.bar.draw()


@dataclass(slots=True)
class ProgressBar:
    """Progress and status below the log on a terminal, or as plain lines without one."""

    err: TextIO
    drawn: bool  # a bar, rather than lines
    clock: Callable[[], float] = time.monotonic
    at_line_start: bool = True
    _line: str = ""
    _shown: bool = False
    _told: str = ""
    _told_at: float = float("-inf")

    @classmethod
    def for_terminal(cls) -> "ProgressBar":
        return cls(sys.stderr, is_terminal(sys.stdout) and is_terminal(sys.stderr))

    def progress(self, given: Progress) -> None:
        more = phrases.progress_more(given)
        text = phrases.progress_text(given) + (f"  {more}" if more else "")
        if not self.drawn:
            whole = given.total > 0 and given.done >= given.total
            if text != self._told and (whole or self.clock() - self._told_at >= _LINE_EVERY_S):
                self._told, self._told_at = text, self.clock()
                print(f"progress: {text}", file=self.err, flush=True)
            return
        fraction = given.fraction
        if fraction is None and given.total > 0:
            fraction = given.done / given.total
        bar = ""
        if fraction is not None:
            full = round(_BAR * min(1.0, max(0.0, fraction)))
            bar = f"{'█' * full}{'░' * (_BAR - full)} "
        self.clear()
        self._line = bar + text
        self.draw()

    def status(self, change: StatusChange) -> None:
        """Says what the run does now."""
        message = f": {phrases.clean(change.message)}" if change.message else ""
        unit = "" if change.unit is None else f"[{change.unit}] "
        self.say(f"{unit}{change.status}{message}")

    def say(self, text: str) -> None:
        """One line to the person, above the bar."""
        self.clear()
        if not self.at_line_start and self.drawn:
            print(file=self.err)
            self.at_line_start = True
        print(styled(text, "dim", stream=self.err), file=self.err, flush=True)
        self.draw()

    def clear(self) -> None:
        if self._shown:
            self.err.write("\r\x1b[K")
            self.err.flush()
            self._shown = False

    def draw(self) -> None:
        if self.drawn and self._line and self.at_line_start:
            limit = shutil.get_terminal_size().columns - 1
            self.err.write(cut(self._line, limit))
            self.err.flush()
            self._shown = True

    def close(self) -> None:
        """Leaves the bar's last state behind as a line."""
        if self._shown:
            self.err.write("\n")
            self.err.flush()
            self._shown = False
        elif not self.at_line_start and self.drawn:
            print(file=self.err, flush=True)
        self._line = ""
