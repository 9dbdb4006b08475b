"""Which files of a folder do not travel: the rules of .gitignore, read from .gitignore and .cumuloignore files.

A pattern's last match wins; `!` takes a match back; a trailing `/` means folders only; a `/` elsewhere ties the
pattern to the folder of its file; `**` spans folders. What lies below an ignored folder can't be taken back, as in
git.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

FILES = (".gitignore", ".cumuloignore")
ALWAYS = frozenset({".git", "__pycache__", ".ipynb_checkpoints"})


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line. `regex` matches paths relative to the folder whose file has the line."""

    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """The patterns in force in a folder: pairs of (folder they are relative to, pattern), the strongest last."""

    patterns: tuple[tuple[str, Pattern], ...] = ()

    def joined(self, folder: str, lines: Iterable[str]) -> Self:
        """These rules and those of a file in `folder` (relative to the root, "" for the root itself)."""
        more = tuple((folder, pattern) for line in lines if (pattern := parse(line)))
        return type(self)(self.patterns + more)

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Whether `path`, relative to the root with `/` between its parts, stays behind."""
        for folder, pattern in reversed(self.patterns):
            if pattern.folders_only and not is_folder:
                continue
            below = path[len(folder) + 1 :] if folder else path
            if pattern.regex.fullmatch(below):
                return not pattern.negated
        return False


def parse(line: str) -> Pattern | None:
    """Reads one line; None for blank lines, comments and patterns that can match nothing."""
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!") if negated else text
    folders_only = text.endswith("/")
    text = text.removesuffix("/") if folders_only else text
    tied = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    try:
        regex = ("" if tied else "(?:.*/)?") + _translate(text)
        return Pattern(re.compile(regex, re.DOTALL), negated, folders_only)
    except (re.error, ValueError):
        return None


def _translate(text: str) -> str:
    """A regular expression for a pattern without its marks. Raises ValueError for one that can match nothing."""
    out, at = [], 0
    while at < len(text):
        if text.startswith("**", at) and (at == 0 or text[at - 1] == "/"):
            stars = len(text[at:]) - len(text[at:].lstrip("*"))
            after = at + stars
            if after == len(text):
                out.append(".+" if at else ".*")
                return "".join(out)
            if text[after] == "/" and stars == 2:
                out.append("(?:.*/)?")
                at = after + 1
                continue
        char = text[at]
        at += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            regex, at = _bracket(text, at)
            out.append(regex)
        elif char == "\\":
            if at == len(text):
                raise ValueError("a backslash at the end")
            out.append(re.escape(text[at]))
            at += 1
        else:
            out.append(re.escape(char))
    return "".join(out)


def _bracket(text: str, at: int) -> tuple[str, int]:
    """The regular expression of a bracket whose inside begins at `at`, and where it ends."""
    begin = at
    negated = text[at : at + 1] in ("!", "^")
    at += negated
    items: list[str] = []
    first = True
    while True:
        if at >= len(text):
            raise ValueError("a bracket that is not closed")
        if text[at] == "]" and not first:
            break
        first = False
        if named := re.match(r"\[:([a-z]+):\]", text[at:]):
            items.append(_CLASSES[named[1]] if named[1] in _CLASSES else _fail(named[1]))
            at += len(named[0])
            continue
        low, at = _one(text, at)
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("]", ""):
            high, at = _one(text, at + 1)
            if low <= high:
                items.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            items.append(re.escape(low))
    inside = "".join(items)
    if not inside:
        return ("[^/]" if negated else "(?!)"), at + 1
    return (f"(?!/)[^{inside}]" if negated else f"(?!/)[{inside}]"), max(at, begin) + 1


def _one(text: str, at: int) -> tuple[str, int]:
    if text[at] == "\\":
        at += 1
        if at >= len(text):
            raise ValueError("a backslash at the end")
    return text[at], at + 1


def _fail(name: str) -> str:
    raise ValueError(f"[:{name}:] is not a class of characters")


_CLASSES = {
    "alnum": "A-Za-z0-9", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "xdigit": "A-Fa-f0-9",
    "space": r" \t\n\r\f\v", "blank": r" \t", "punct": r"!-/:-@\[-`{-~", "word": r"\w",
}  # fmt: skip
