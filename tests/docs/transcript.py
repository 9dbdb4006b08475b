"""What a document shows of a terminal, and whether a real session said the same.

A block of the language `console` holds commands (after `$ `, continued after `> `) and what each prints. What differs
from one machine and moment to the next is made alike on both sides: ids, times, durations, ports, sizes, the folders
above a file, counts that move, the width of columns. In what is shown, `…` stands for anything on its line; alone on a
line, for any lines.
"""

import re
from typing import NamedTuple

from tests.docs.documents import Block

# In this order: a path holds ids, a time looks like a duration.
_ALIKE = (
    (r"\x1b\[[0-9;]*[mK]", ""),
    (r"cumulo_[0-9a-f]{12}_[0-9a-f]{64}", "TOKEN"),
    (r"(?<![\w.])(~|\.{0,2})(/[\w.@+-]+)+/?(?=[\s:,;'\")]|$)", lambda found: f"/{_last(found[0])}"),
    (r"\b[0-9a-hjkmnp-tv-z]{12}\b(?=-\d)", "ID"),
    (r"\b(?=[0-9a-z]*\d)(?=[0-9a-z]*[a-z])[0-9a-hjkmnp-tv-z]{12}\b", "ID"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\b(DATE[T ])?\d\d:\d\d:\d\d(\.\d+)?Z?\b", "TIME"),
    (r"\b\d+(\.\d+)?(d \d+h|h \d\dm|m \d\ds|s)\b", "DURATION"),
    (r"(?<=127\.0\.0\.1:)\d+", "PORT"),
    (r"\b\d+(\.\d+)? (B|kB|MB|GB|TB)\b", "SIZE"),
    (r"\b[\d,]+/(\d[\d,]*)\b", r"N/\1"),
    (r"(N/[\d,]+(?: \w+)?) \d+%", r"\1 N%"),
    (r"\b\d+(\.\d+)?/s\b", "RATE"),
    (r"\(pid \d+", "(pid N"),
)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


class Step(NamedTuple):
    """One command and what is shown of its output. `line` is where the command stands."""

    line: int
    command: str
    shown: tuple[str, ...]

    @property
    def fails(self) -> bool:
        """Whether the document shows a failure: an error of Cumulo's, or a run that failed."""
        return any(re.match(r"error: |\S+ failed( after [^:]*)?: ", line) for line in self.shown)


def steps(block: Block) -> list[Step]:
    """The commands of a block. Raises ValueError for output that no command precedes."""
    found: list[Step] = []
    for number, line in enumerate(block.lines, start=block.line):
        if line.startswith("$ "):
            found.append(Step(number, line[2:], ()))
            continue
        if not found:
            raise ValueError(f"line {number} shows output before any command")
        last = found[-1]
        if line.startswith("> ") and not last.shown:
            found[-1] = last._replace(command=f"{last.command}\n{line[2:]}")
        else:
            found[-1] = last._replace(shown=(*last.shown, line))
    return found


def alike(line: str, *, user: str = "") -> str:
    """A line without what differs between machines and moments. `user` becomes the name that documents use."""
    for pattern, replacement in _ALIKE:
        line = re.sub(pattern, replacement, line)
    if user:
        line = re.sub(rf"\b{re.escape(user)}\b", "ada", line)
    return " ".join(line.split())


def matches(shown: tuple[str, ...], said: str, *, user: str = "") -> bool:
    """Whether `said` is what is `shown`."""
    expected = [alike(line) for line in shown]
    actual = _settled([alike(line, user=user) for line in said.rstrip("\n").split("\n")] if said.strip() else [])
    pattern = "".join(_pattern(line) for line in _settled(expected))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in actual), re.DOTALL) is not None


def _settled(lines: list[str]) -> list[str]:
    """Neighbouring lines of several instances in the order of their prefixes: which of them came first is chance."""
    result: list[str] = []
    run: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("[rank "):
            run.append(line)
            continue
        result += [*sorted(run), line]
        run = []
    return result[:-1]


def _pattern(line: str) -> str:
    if line == "…":
        return r"(?:[^\n]*\n)*?"
    return r"[^\n]*?".join(re.escape(part) for part in line.split("…")) + r"\n"
